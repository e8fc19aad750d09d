"""Prepared rows kept on the disk under a fingerprint, by the means of the library `datasets`.

The key says all that the rows are made of: tables, settings, reward, tokenizer, code. Another key is another folder, so
nothing stale is ever read; old folders may be deleted at any time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from grpo_exp import paths
from grpo_exp.data.prompts import PromptData, PromptRow

_PARTS = ("train", "evaluation", "dropped")


def cached_data(key: Mapping[str, Any], build: Callable[[], PromptData]) -> PromptData:
    """Return what the cache holds for this key, or build it and keep it; several processes build it once.

    Args:
        key: JSON data that say all that the rows depend on.
        build: Makes them.

    Raises:
        Exception: What `build` raised.
    """
    from datasets import Dataset, Features, Value
    from datasets.exceptions import DatasetGenerationError
    from datasets.fingerprint import Hasher

    fingerprint = Hasher.hash(json.dumps({**key, "code": code_hash()}, sort_keys=True))
    features = Features({"part": Value("string"), "content": Value("string")})
    try:
        rows = Dataset.from_generator(
            lambda: _to_records(build()), features=features, cache_dir=str(cache_folder()), fingerprint=fingerprint
        )
    except DatasetGenerationError as error:
        raise error.__cause__ or error from None  # what `build` raised says more
    return _from_records(rows)


def cache_folder() -> Path:
    """Return where prepared rows are kept, and what `datasets` made of local files."""
    return paths.cache_dir() / "datasets"


def code_hash() -> str:
    """Return a hash of the code that prepares rows."""
    from datasets.fingerprint import Hasher

    folder = Path(__file__).parent
    return Hasher.hash([path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))])


def _to_records(data: PromptData) -> Iterator[dict[str, str]]:
    for part, rows in (("train", data.train), ("evaluation", data.evaluation)):
        for row in rows:
            yield {"part": part, "content": json.dumps(_to_plain(row))}
    for reason, count in data.dropped.items():
        targets = data.dropped_targets.get(reason)
        content = {"reason": reason, "count": count, "targets": None if targets is None else list(targets)}
        yield {"part": "dropped", "content": json.dumps(content)}


def _to_plain(row: PromptRow) -> dict[str, Any]:
    fields = ("prompt", "target", "columns", "solution", "pass_rate", "difficulty")
    return {name: getattr(row, name) for name in fields}


def _from_records(rows: Any) -> PromptData:
    found: dict[str, list[Any]] = {part: [] for part in _PARTS}
    for record in rows:
        found[record["part"]].append(json.loads(record["content"]))
    return PromptData(
        train=tuple(map(_to_row, found["train"])),
        evaluation=tuple(map(_to_row, found["evaluation"])),
        dropped=Counter({entry["reason"]: entry["count"] for entry in found["dropped"]}),
        dropped_targets={
            entry["reason"]: tuple(entry["targets"]) for entry in found["dropped"] if entry["targets"] is not None
        },
    )


def _to_row(content: dict[str, Any]) -> PromptRow:
    target = content["target"]
    spellings = {"target": tuple(target) if isinstance(target, list) else target, "prompt": tuple(content["prompt"])}
    return PromptRow(**{**content, **spellings})
