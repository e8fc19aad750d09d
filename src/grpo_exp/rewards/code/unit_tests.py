"""Read the columns `tests` and `mode`.

| mode | tests |
|---|---|
| `stdin` | list of `{"input": text, "output": text}`, or `{"inputs": [text], "outputs": [text]}` |
| `call` | `{"fn_name": text, "inputs": [list of arguments], "outputs": [value]}` |
| `assert` | Python text with assertions, or a list of such texts |

Each may also be a JSON text of the same, as most public data sets store it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_exp.rewards.score import Score

NO_TESTS = Score(None, "no_tests")
UNREADABLE_TESTS = Score(None, "unreadable_tests")


@dataclass(frozen=True, slots=True)
class StdinTests:
    """Programs that read and write text."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallTests:
    """Functions, or methods of a class `Solution`, called with arguments."""

    function: str
    inputs: tuple[list[Any], ...]
    outputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AssertTests:
    """Python statements that hold for a right program."""

    source: str


Tests = StdinTests | CallTests | AssertTests


def read_tests(tests: Any, mode: Any) -> Tests | Score:
    """Return the tests of a row, or the score of a row whose tests cannot be used.

    Args:
        tests: The value of the column `tests`.
        mode: The value of the column `mode`.
    """
    if not isinstance(mode, str) or mode not in {"stdin", "call", "assert"}:
        return UNREADABLE_TESTS
    if isinstance(tests, str) and (mode != "assert" or tests.lstrip().startswith("[")):
        try:
            tests = json.loads(tests) if tests.strip() else None
        except (ValueError, RecursionError):
            return UNREADABLE_TESTS
    if tests is None or (isinstance(tests, str | Sequence | Mapping) and not tests):
        return NO_TESTS
    try:
        match mode:
            case "stdin":
                read = _read_stdin(tests)
            case "call":
                read = _read_call(tests)
            case _:
                read = _read_assert(tests)
    except (KeyError, TypeError, ValueError):
        return UNREADABLE_TESTS
    return read


def _read_stdin(tests: Any) -> StdinTests | Score:
    if isinstance(tests, Mapping):
        inputs, outputs = tests["inputs"], tests["outputs"]
    else:
        inputs, outputs = [test["input"] for test in tests], [test["output"] for test in tests]
    return StdinTests(*_pairs(inputs, outputs, kind=str)) if len(inputs) else NO_TESTS


def _read_call(tests: Any) -> CallTests | Score:
    if not isinstance(tests["fn_name"], str) or not tests["fn_name"]:
        return UNREADABLE_TESTS
    if not len(tests["inputs"]):
        return NO_TESTS
    inputs, _ = _pairs(tests["inputs"], tests["outputs"], kind=list | tuple)
    return CallTests(tests["fn_name"], tuple(map(list, inputs)), tuple(tests["outputs"]))


def _read_assert(tests: Any) -> AssertTests | Score:
    texts = [tests] if isinstance(tests, str) else tests
    if not all(isinstance(text, str) for text in texts):
        return UNREADABLE_TESTS
    source = "\n".join(texts)
    return AssertTests(source) if source.strip() else NO_TESTS


def _pairs(inputs: Any, outputs: Any, *, kind: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Check that inputs are of a kind (outputs too where it is text) and that each has an output.

    Raises:
        ValueError: They are not.
    """
    checked = [*inputs, *outputs] if kind is str else inputs
    if any(isinstance(values, str | Mapping) for values in (inputs, outputs)):
        raise ValueError("inputs and outputs are lists")
    if len(inputs) != len(outputs) or not all(isinstance(value, kind) for value in checked):
        raise ValueError("inputs and outputs do not belong together")
    return tuple(inputs), tuple(outputs)
