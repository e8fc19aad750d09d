"""Prompts that must not be trained on: benchmarks that a run will be judged by."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from grpo_exp.data.json_lines import read_objects
from grpo_exp.data.prompts import PromptData, build_prompt, text_key
from grpo_exp.errors import DataError

#: Columns that may hold the prompt, the first that is there.
_COLUMNS = ("prompt", "question", "problem")


def leave_out_excluded(data: PromptData, paths: Sequence[str], template: str | None) -> PromptData:
    """Return data without the training rows whose prompt stands in one of the files.

    Only equal texts are found, apart from case and blanks: a problem in other words is not.

    Args:
        data: Rows.
        paths: JSON lines.
        template: The template around the rows' prompts; the files' get it, too.

    Raises:
        DataError: A file cannot be read, or a line has no prompt.
    """
    keys = {key for path in paths for key in _read_keys(Path(path), template)}
    kept = tuple(row for row in data.train if row.question_key not in keys)
    if len(kept) == len(data.train):
        return data
    dropped = Counter(data.dropped)
    dropped["that stand in dataset.exclude"] += len(data.train) - len(kept)
    return dataclasses.replace(data, train=kept, dropped=dropped)


def _read_keys(path: Path, template: str | None) -> set[str]:
    keys = set()
    for number, row in read_objects("dataset.exclude", path):
        prompt = next((row[name] for name in _COLUMNS if name in row), None)
        if not isinstance(prompt, str | list) or not prompt:
            raise DataError(
                f"dataset.exclude={path}: line {number} has no text in any of {', '.join(_COLUMNS)}; name the column "
                "with the prompt so"
            )
        messages = build_prompt(prompt, None, template)
        keys.add(text_key("\n".join(message["content"] for message in messages if message["role"] != "system")))
    return keys
