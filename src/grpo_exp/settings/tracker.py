"""Settings of the trackers, which are copies of `metrics.jsonl`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grpo_exp.settings.base import FilledText, OptionalText, Settings


class NoTracker(Settings):
    """Only `metrics.jsonl`."""

    kind: Literal["none"]


class MlflowTracker(Settings):
    """MLflow, by default in a SQLite file, which needs no server."""

    kind: Literal["mlflow"]
    tracking_uri: OptionalText = None
    """Any MLflow tracking URI; null is `sqlite:///<output_dir>/mlflow.db`."""
    experiment: FilledText = "grpo_exp"
    """Name of the MLflow experiment."""


class WandbTracker(Settings):
    """Weights & Biases; offline unless logged in."""

    kind: Literal["wandb"]
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"
    """`auto` is online where an API key is known (WANDB_API_KEY or ~/.netrc), else offline."""
    project: FilledText = "grpo_exp"
    """Name of the W&B project."""
    entity: OptionalText = None
    """User or team; null is the default of the account."""


TrackerSettings = Annotated[NoTracker | MlflowTracker | WandbTracker, Field(discriminator="kind")]
