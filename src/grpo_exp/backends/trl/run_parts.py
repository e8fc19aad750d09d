"""What the parts of a training run share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from grpo_exp.backends.trl.whole_saving import CheckpointPlan
from grpo_exp.data.prompts import PromptData
from grpo_exp.evaluation.completion_rows import CompletionRow, TableInfo
from grpo_exp.rewards.components import RewardComponent
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.run import RunSettings


class TrainingObserver(Protocol):
    """What a run tells while it goes on. Only the main process is asked to write."""

    def on_phase(self, name: str, done: int = 0, total: int = 0) -> None:
        """A phase began or went on: priming, evaluation, training, saving."""

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Metrics of an optimizer step, or of an evaluation."""

    def on_completions(self, info: TableInfo, rows: list[CompletionRow]) -> None:
        """Completions of a batch or of a held-out evaluation, with their scores; only the main process is told."""

    def on_note(self, text: str) -> None:
        """Something that only the loaded model told, in one line."""

    def wants_stop(self) -> bool:
        """Whether this process has been asked to stop."""
        ...


@dataclass(frozen=True, slots=True)
class RunParts:
    """The run, and what has been measured on held-out prompts."""

    settings: RunSettings
    plan: BatchPlan
    data: PromptData
    components: Sequence[RewardComponent]
    observer: TrainingObserver
    checkpoints: CheckpointPlan | None
    evaluation: dict[str, dict[str, Any]]
    """Held-out results so far, by when."""
