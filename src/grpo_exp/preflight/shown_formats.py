"""What form the prompts ask for, as far as settings alone tell: those of a table may say more."""

from __future__ import annotations

from grpo_exp.settings.reward import (
    Component,
    CountdownComponent,
    ExactComponent,
    Gsm8kComponent,
    LetterComponent,
    MathComponent,
    NumericComponent,
    ReasoningGymComponent,
    RegexComponent,
)
from grpo_exp.settings.run import RunSettings

#: Kinds of components that pay for form, not for a right answer, with a tag that stands for the form.
FORMS = {"think_format": "<think>", "answer_tag": "<answer>", "tag_count": None}
#: Where an answer may stand -> what a prompt says that asks for it there.
_PLACES = {"box": "\\boxed", "answer_tag": "<answer>", "gsm8k": "####"}
_WITH_SOURCE = (
    CountdownComponent, ExactComponent, LetterComponent, NumericComponent, ReasoningGymComponent, RegexComponent,
)  # fmt: skip


def forms_not_shown(settings: RunSettings) -> list[str]:
    """Return the names of the components that pay for a form of which the prompts are not known to show any tag."""
    shown = _shown(settings)
    return [
        name
        for name, component in settings.reward.components.items()
        if component.kind in FORMS and not any(tag in shown for tag in _tags(component))
    ]


def other_place_note(settings: RunSettings) -> list[str]:
    """Tell of prompts that ask for the answer in one place while `reward.primary` looks for it in another."""
    component, shown = settings.reward.components[settings.reward.primary], _shown(settings)
    wanted = _PLACES.get(_place_of(component) or "")
    asked = [mark for mark in _PLACES.values() if mark in shown]
    if wanted is None or not asked or wanted in asked:
        return []
    return [
        f"reward.components.{settings.reward.primary}.kind={component.kind}: looks for the answer at {wanted}, and the "
        f"prompts ask for {asked[0]}, so right answers may get nothing; say {wanted} in dataset.system_prompt, or "
        "choose the reward that reads what is asked for"
    ]


def _place_of(component: Component) -> str | None:
    if isinstance(component, Gsm8kComponent):
        return "gsm8k"
    if isinstance(component, MathComponent):
        return "box"
    return component.source if isinstance(component, _WITH_SOURCE) else None


def _shown(settings: RunSettings) -> str:
    dataset = settings.dataset
    texts = [dataset.system_prompt or "", dataset.prompt_template or ""]
    if dataset.kind == "countdown":  # its tasks ask for both, as TinyZero's prompts do
        texts.append("<think> <answer>")
    return "\n".join(texts)


def _tags(component: Component) -> tuple[str, ...]:
    if component.kind == "tag_count":
        return component.tags
    tag = FORMS[component.kind]
    assert tag is not None
    return (tag,)
