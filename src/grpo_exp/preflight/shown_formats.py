"""Which forms that are paid for the prompts show, as far as settings alone tell: those of a table may show more."""

from __future__ import annotations

from grpo_exp.settings.reward import Component
from grpo_exp.settings.run import RunSettings

#: Kinds of components that pay for form, not for a right answer, with a tag that stands for the form.
FORMS = {"think_format": "<think>", "answer_tag": "<answer>", "tag_count": None}


def forms_not_shown(settings: RunSettings) -> list[str]:
    """Return the names of the components that pay for a form of which the prompts are not known to show any tag."""
    dataset = settings.dataset
    texts = [dataset.system_prompt or "", dataset.prompt_template or ""]
    if dataset.kind == "countdown":  # its tasks ask for both, as TinyZero's prompts do
        texts.append("<think> <answer>")
    shown = "\n".join(texts)
    return [
        name
        for name, component in settings.reward.components.items()
        if component.kind in FORMS and not any(tag in shown for tag in _tags(component))
    ]


def _tags(component: Component) -> tuple[str, ...]:
    if component.kind == "tag_count":
        return component.tags
    tag = FORMS[component.kind]
    assert tag is not None
    return (tag,)
