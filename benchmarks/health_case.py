"""Keep the curves of a run as a case for the tests of the health rules: python benchmarks/health_case.py RUN FILE.

The first line says which settings the run had besides the default, and its steps; every other line is a curve over
these steps, with null where a step did not have it. Values are rounded to five digits.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

#: Settings that no rule looks at.
_LEFT_OUT = (
    "name=",
    "output_dir=",
    "tracker=",
    "health",
    "launch.",
    "trainer.eval",
    "trainer.save",
    "dataset.eval_size",
)
#: Curves that no rule looks at.
_NOT_KEPT = ("train/learning_rate", "train/epoch", "eval/")


def main() -> None:
    """Write the case of the run in the first argument to the file in the second one."""
    run, target = Path(sys.argv[1]), Path(sys.argv[2])
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if _is_training_step(record)]
    words = [word for word in (run / "overrides.txt").read_text().splitlines() if not word.startswith(_LEFT_OUT)]
    names = sorted({name for record in steps for name in record["metrics"] if not name.startswith(_NOT_KEPT)})
    head = {
        "words": words,
        "steps": [record["step"] for record in steps],
        "non_finite": {record["step"]: record["non_finite"] for record in steps if "non_finite" in record},
    }
    lines = [head, *({name: [_rounded(record["metrics"].get(name)) for record in steps]} for name in names)]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def _is_training_step(record: dict[str, Any]) -> bool:
    return "train/loss" in record["metrics"] or "train/loss" in record.get("non_finite", [])


def _rounded(value: float | None) -> float | int | None:
    if value is None:
        return None
    short = float(f"{value:.5g}")
    return int(short) if short == int(short) else short


if __name__ == "__main__":
    main()
