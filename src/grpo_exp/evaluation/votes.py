"""What a completion votes for: its answer in one spelling, taken from where the primary component looks for it."""

from __future__ import annotations

from grpo_exp.rewards.answer_sources import extract_gsm8k, read_answer
from grpo_exp.rewards.completion import Completion, read_completion
from grpo_exp.rewards.latex_text import uniform_latex
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward import (
    Component,
    ExactComponent,
    Gsm8kComponent,
    LetterComponent,
    MathComponent,
    NumericComponent,
    RegexComponent,
)

_WITH_SOURCE = (ExactComponent, LetterComponent, NumericComponent, RegexComponent)


def can_vote(component: Component) -> bool:
    """Say whether completions that this component judges have an answer that can be counted: programs have none."""
    return isinstance(component, (MathComponent, Gsm8kComponent, *_WITH_SOURCE))


def vote_of(completion: Completion, component: Component, *, prefilled: bool = False) -> str | None:
    """Return the answer of a completion, or None where it gives none.

    Two spellings that `uniform_latex` does not make one are two answers: wrong ones are not compared with each other.

    Args:
        completion: Text, or messages.
        component: The one that is judged.
        prefilled: The prompt ended with the opening tag of the reasoning.
    """
    if isinstance(component, Gsm8kComponent):
        read = read_completion(completion)
        found = extract_gsm8k(read.text, reasoning_open=prefilled and read.reasoning is None).content
    else:
        source = component.source if isinstance(component, _WITH_SOURCE) else "box"
        answer = read_answer(completion, source, prefilled=prefilled)
        found = None if isinstance(answer, Score) else answer
    if found is None:
        return None
    spelled = uniform_latex(found).replace(" ", "").replace(",", "")
    return spelled.casefold() if isinstance(component, LetterComponent) else spelled
