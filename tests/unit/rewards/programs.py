"""What the tests of programs share."""

from __future__ import annotations

import os
from typing import Any

from grpo_exp.rewards.code.scorer import build_code_scorer
from grpo_exp.rewards.sandbox.build import sandbox_faults
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward_code import CodeComponent

from .reward_cases import descendants

ADD = [{"input": "2 3\n", "output": "5\n"}, {"input": "-4 4\n", "output": "0\n"}]


def component(**options: Any) -> CodeComponent:
    """Return the settings of a component."""
    return CodeComponent.model_validate({"kind": "code", **options})


def fenced(program: str) -> str:
    """Return a completion that ends with a program."""
    return f"Here it is.\n```python\n{program}\n```\n"


def score(program: str, tests: Any, mode: str, **options: Any) -> Score:
    """Score one program."""
    scorer = build_code_scorer(component(**options))
    return scorer("code", [fenced(program)], {"tests": [tests], "mode": [mode]})[0]


def open_descriptors() -> set[str]:
    """Return the descriptors of this process and what they are, without the one that lists them."""
    found = set()
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        try:
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")  # noqa: PTH115
        except FileNotFoundError:
            continue
    return found


class Leaks:
    """Notice processes and descriptors that stay."""

    def __init__(self) -> None:
        self._processes, self._descriptors = descendants(), open_descriptors()

    def assert_none(self) -> None:
        """Fail if there is more than at the beginning."""
        assert descendants() <= self._processes
        assert open_descriptors() <= self._descriptors


def require_bubblewrap() -> None:
    """Fail with the fix where the sandbox does not work: a skipped test would say that all is well."""
    faults = sandbox_faults("bubblewrap")
    assert not faults, "\n".join(faults)
