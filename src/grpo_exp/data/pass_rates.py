"""Files of pass rates: how often some policy solved each prompt.

JSON lines with `pass_rate` (0 to 1) and what says which prompt is meant: `id`, 16 hex digits over the prompt as the
model gets it (`PromptRow.id`); or `prompt`, the conversation as a list of messages, or the text of its last message.
Other keys are for readers.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from grpo_exp.data.json_lines import read_objects
from grpo_exp.data.prompts import PromptData, PromptRow, prompt_id, text_key
from grpo_exp.errors import DataError
from grpo_exp.settings.dataset_preparation import PassRates

_SETTING = "dataset.pass_rates.path"


def read_pass_rates(path: Path) -> dict[str, float]:
    """Return the rate of each prompt, by its id and by the key of its text; of several the mean.

    Raises:
        DataError: The file cannot be read, or a line has no rate or no prompt.
    """
    found: dict[str, list[float]] = {}
    for number, row in read_objects(_SETTING, path):
        rate = row.get("pass_rate")
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise DataError(
                f"{_SETTING}={path}: line {number} has pass_rate {rate!r}, and a number from 0 to 1 is wanted; correct "
                "it"
            )
        found.setdefault(_key(path, number, row), []).append(float(rate))
    return {key: sum(rates) / len(rates) for key, rates in found.items()}


def write_pass_rates(path: Path, rates: Iterable[tuple[PromptRow, float]]) -> None:
    """Write a file that `read_pass_rates` reads: id, rate, and the prompt's last message for readers."""
    lines = [
        json.dumps({"id": row.id, "pass_rate": rate, "text": row.prompt[-1]["content"]}, ensure_ascii=False)
        for row, rate in rates
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def filter_by_pass_rate(data: PromptData, settings: PassRates) -> PromptData:
    """Return data whose training rows lie within the bounds; held-out rows stay as they are.

    Rates come from the file where one is named, else from the rows themselves.

    Raises:
        DataError: The file cannot be used, or fits none of the rows.
    """
    train: Sequence[PromptRow] = data.train
    if settings.path is not None:
        rates = read_pass_rates(Path(settings.path))
        train = [dataclasses.replace(row, pass_rate=_rate_of(row, rates)) for row in train]
        if all(row.pass_rate is None for row in train):
            raise DataError(
                f"{_SETTING}={settings.path}: none of its {len(rates)} prompts is one of the {len(train)} training "
                "prompts; their ids depend on dataset.system_prompt and dataset.prompt_template, so write the file anew"
            )
    kept: list[PromptRow] = []
    dropped: Counter[str] = Counter()
    for row in train:
        reason = _reason(row, settings)
        if reason is None:
            kept.append(row)
        else:
            dropped[reason] += 1
    return dataclasses.replace(data, train=tuple(kept), dropped=Counter(data.dropped) + dropped)


def _reason(row: PromptRow, settings: PassRates) -> str | None:
    """Return why a row is left out, or None."""
    if row.pass_rate is None:
        return "without a pass rate" if settings.unknown == "drop" else None
    if row.pass_rate < settings.min_rate:
        return f"with a pass rate below {settings.min_rate:g}"
    return f"with a pass rate above {settings.max_rate:g}" if row.pass_rate > settings.max_rate else None


def _rate_of(row: PromptRow, rates: dict[str, float]) -> float | None:
    text = _text_key(row.prompt[-1]["content"])
    return rates.get(row.id, rates.get(text, row.pass_rate))


def _key(path: Path, number: int, row: dict[str, Any]) -> str:
    identity, prompt = row.get("id"), row.get("prompt")
    if isinstance(identity, str) and identity:
        return identity
    if isinstance(prompt, str) and prompt.strip():
        return _text_key(prompt)
    if isinstance(prompt, list) and all(isinstance(m, dict) and {"role", "content"} <= m.keys() for m in prompt):
        return prompt_id([{"role": str(m["role"]), "content": str(m["content"])} for m in prompt])
    raise DataError(
        f"{_SETTING}={path}: line {number} says neither `id` nor `prompt` (a text, or messages with role and content), "
        "so nobody knows whose rate it is; add one"
    )


def _text_key(text: str) -> str:
    return f"text:{text_key(text)}"
