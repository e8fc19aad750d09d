"""From a row of a table to a prompt: columns found, checked and read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grpo_exp.data.prompts import PromptRow, build_prompt
from grpo_exp.errors import DataError
from grpo_exp.rewards.extraction import find_box
from grpo_exp.settings.dataset_tables import HubDataset, TableDataset

_MISSING = object()
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
#: GSM8K's notes for a calculator: `3*4=<<3*4=12>>12`.
_CALCULATOR = re.compile(r"<<[^<>]*>>")


def check_columns(source: str, names: Iterable[str], row: Mapping[str, Any], settings: TableDataset) -> None:
    """Refuse settings that name a column which the table does not have.

    Args:
        source: What the table is called in a message.
        names: The columns that there are.
        row: The first row, for columns inside others.
        settings: Which columns are wanted.

    Raises:
        DataError: One message for each column that is missing.
    """
    shown = ", ".join(sorted(names))
    faults = [
        f"dataset.{key}={column}: {source} has no column {column!r}; its columns are {shown}; "
        f"name one of them with dataset.{key}=COLUMN"
        for key, column in _wanted(settings)
        if not has_column(row, column)
    ]
    if faults:
        raise DataError(faults)


def wanted_columns(settings: TableDataset) -> list[str]:
    """Return the columns of the table that are read, each once; of `a.b` the outer one."""
    return list(dict.fromkeys(column.partition(".")[0] for _, column in _wanted(settings)))


def _wanted(settings: TableDataset) -> list[tuple[str, str]]:
    several: list[tuple[str, Sequence[str]]] = [("extra_columns", settings.extra_columns)]
    if isinstance(settings, HubDataset):
        several.append(("tests_columns", settings.tests_columns))
    single = ("prompt_column", "target_column", "solution_column", "difficulty_column", "pass_rate_column")
    found = [(key, column) for key in single if (column := getattr(settings, key)) is not None]
    return found + [(key, column) for key, columns in several for column in columns]


def to_prompt_row(row: Mapping[str, Any], settings: TableDataset) -> PromptRow | str:
    """Return a row, or the reason why it cannot be used."""
    prompt = read_column(row, settings.prompt_column)
    if not is_prompt(prompt):
        return "without a prompt"
    columns = {name: read_column(row, name) for name in settings.extra_columns}
    if isinstance(settings, HubDataset) and settings.tests_columns:
        tests = _join_tests(row, settings)
        if not tests["inputs"]:
            return "without tests"
        columns |= {"tests": tests, "mode": "stdin"}
    target = read_target(row, settings.target_column, settings.target_format)
    if target is None:
        return "without a target"
    pass_rate = _read_number(row, settings.pass_rate_column)
    if pass_rate is not None and not 0 <= pass_rate <= 1:
        return f"whose {settings.pass_rate_column} is no rate from 0 to 1"
    solution = _read_solution(row, settings)
    if not is_unicode([prompt, target, solution, columns]):
        return "with text that is no Unicode"
    return PromptRow(
        prompt=build_prompt(prompt, settings.system_prompt, settings.prompt_template),
        target=target,
        columns=columns,
        solution=solution,
        pass_rate=pass_rate,
        difficulty=_read_number(row, settings.difficulty_column),
    )


def has_column(row: Mapping[str, Any], name: str) -> bool:
    """Say whether a row has a column, or one inside another."""
    return _find(row, name) is not _MISSING


def read_column(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a column, or of one inside another (`reward_model.ground_truth`), or None."""
    value = _find(row, name)
    return None if value is _MISSING else value


def _find(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    outer, dot, inner = name.partition(".")
    inside = row.get(outer)
    return _find(inside, inner) if dot and isinstance(inside, Mapping) else _MISSING


def is_prompt(value: Any) -> bool:
    """Say whether a value asks something: a text, or a conversation in which somebody but the system speaks."""
    if isinstance(value, str):
        return bool(value.strip())
    return (
        isinstance(value, list)
        and all(isinstance(m, dict) and isinstance(m.get("content"), str) and _is_role(m.get("role")) for m in value)
        and any(m["role"] != "system" and m["content"].strip() for m in value)
    )


def _is_role(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def is_unicode(value: Any) -> bool:
    r"""Say whether all text can be written: JSON may hold halves of a pair (`\ud83d`), as of an emoji that was cut."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def read_target(row: Mapping[str, Any], column: str | None, target_format: str) -> str | tuple[str, ...] | None:
    """Return the target, its spellings where the column holds a list, None where there is none, "" for no column."""
    if column is None:
        return ""
    target = read_column(row, column)
    spellings = target if isinstance(target, list) else [target]
    kept = tuple(text for value in spellings if (text := _target_text(value, target_format)))
    if not kept:
        return None
    return kept if isinstance(target, list) else kept[0]


def _target_text(value: Any, target_format: str) -> str | None:
    if value is None or isinstance(value, bool | dict | list):
        return None
    if isinstance(value, float) and not math.isfinite(value):  # pandas writes NaN for an empty cell
        return None
    # Some tables hold whole numbers as floats: 204.0 is meant to be 204.
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    if target_format == "gsm8k":
        _, marker, tail = text.rpartition("####")
        return tail.strip().replace(",", "") if marker else None
    if target_format == "boxed":
        return find_box(text)
    return text or None


def _read_solution(row: Mapping[str, Any], settings: TableDataset) -> str | None:
    """Return the worked solution; of GSM8K's without its last line and the calculator's notes."""
    value = None if settings.solution_column is None else read_column(row, settings.solution_column)
    if not isinstance(value, str):
        return None
    if settings.target_format == "gsm8k":
        value = _CALCULATOR.sub("", value.rpartition("####")[0])
    return value.strip() or None


def _read_number(row: Mapping[str, Any], column: str | None) -> float | None:
    """Return the number in a column, or the first one in its text."""
    value = None if column is None else read_column(row, column)
    if isinstance(value, str):
        found = _NUMBER.search(value)
        value = None if found is None else float(found[0])
    if value is None or isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _join_tests(row: Mapping[str, Any], settings: HubDataset) -> dict[str, list[str]]:
    inputs: list[str] = []
    outputs: list[str] = []
    for column in settings.tests_columns:
        tests = read_column(row, column)
        if isinstance(tests, Mapping):
            pairs = list(zip(tests.get("input") or [], tests.get("output") or [], strict=False))
            inputs += [given for given, _ in pairs]
            outputs += [wanted for _, wanted in pairs]
    return {"inputs": inputs[: settings.max_tests], "outputs": outputs[: settings.max_tests]}
