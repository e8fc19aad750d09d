"""Results of evaluations as they lie in `evaluations/BENCHMARK/` of a run's folder, one file per checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_exp.errors import DataError
from grpo_exp.provenance import changed_settings

#: Settings of an evaluation that are about where and how it ran; the rest says what was measured.
NOT_MEASURED = frozenset(
    {"model", "dataset", "checkpoints", "engine", "batch_size", "vllm", "device", "output_dir", "track"}
)
_NAME = re.compile(r"step_(\d+)\.json")


@dataclass(frozen=True, slots=True)
class EvaluationFolder:
    """The files of one benchmark's evaluations."""

    path: Path

    def result(self, step: int) -> Path:
        """What was measured at a step."""
        return self.path / f"step_{step:06}.json"

    def samples(self, step: int) -> Path:
        """The completions of a step with their scores; `grpo-exp score input=FILE` scores them again."""
        return self.path / f"step_{step:06}.parquet"

    @property
    def curve(self) -> Path:
        """All steps as a table."""
        return self.path / "curve.csv"

    def read_all(self) -> dict[int, dict[str, Any]]:
        """Return the results by step.

        Raises:
            DataError: A file is damaged.
        """
        found = {int(match[1]): path for path in self.path.glob("*.json") if (match := _NAME.fullmatch(path.name))}
        return {step: _read(found[step]) for step in sorted(found)}


def _read(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text())
    except ValueError:
        result = None
    if not isinstance(result, dict) or not isinstance(result.get("metrics"), dict):
        raise DataError(
            f"{path}: is no result of an evaluation, or is damaged; take it away, or measure this step again with "
            "grpo-exp evaluate"
        )
    return result


def folder_of(root: Path, benchmark: str) -> EvaluationFolder:
    """Return where the evaluations of a run on a benchmark lie.

    Args:
        root: The run's folder, or the one that was named for a model that belongs to no run.
        benchmark: Its name.
    """
    return EvaluationFolder(root / "evaluations" / benchmark)


def read_results(root: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """Return benchmark -> optimizer step -> all that was found."""
    found = {path.name: EvaluationFolder(path).read_all() for path in sorted((root / "evaluations").glob("*"))}
    return {name: results for name, results in found.items() if results}


def measured_differently(results: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Return the settings, dotted, that the steps of one benchmark do not all share, so that they are no curve."""
    told = [
        {key: value for key, value in result.get("settings", {}).items() if key not in NOT_MEASURED}
        for result in results.values()
    ]
    return sorted({path for settings in told[1:] for path in changed_settings(told[0], settings)})
