"""Settings of the trackers, which are copies of `metrics.jsonl`."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from grpo_exp.settings.base import FilledText, Float, OptionalPath, OptionalText, Settings, Text

#: Tags that every run has by itself.
OWN_TAGS = ("name", "seed", "algorithm", "group")


class MlflowTracker(Settings):
    """MLflow, by default in a SQLite file, which needs no server."""

    tracking_uri: OptionalText = None
    """Any MLflow tracking URI; null is `sqlite:///<output_dir>/mlflow.db`."""
    experiment: FilledText = "grpo_exp"
    """Name of the MLflow experiment."""

    @field_validator("tracking_uri")
    @classmethod
    def _can_be_read(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                urlsplit(value)
            except ValueError as error:
                raise ValueError(f"is no URI ({error}); write http://HOST:PORT or sqlite:///FILE") from error
        return value


class WandbTracker(Settings):
    """Weights & Biases; offline unless logged in."""

    mode: Literal["auto", "online", "offline", "disabled"] = "auto"
    """`auto` is online where an API key is known (WANDB_API_KEY or ~/.netrc), else offline."""
    project: FilledText = "grpo_exp"
    """Name of the W&B project."""
    entity: OptionalText = None
    """User or team; null is the default of the account."""


class TensorboardTracker(Settings):
    """TensorBoard event files."""

    directory: OptionalPath = None
    """Folder of all runs' event files, each run in `<name>/<run id>` below it; null is `<run folder>/tensorboard`."""


class TrackerSettings(Settings):
    """Which trackers get a copy of the curves: `tracker=mlflow`, `tracker=[mlflow,wandb]`, `tracker=none`."""

    mlflow: MlflowTracker | None = None
    """Copy to MLflow; null does not."""
    wandb: WandbTracker | None = None
    """Copy to Weights & Biases; null does not."""
    tensorboard: TensorboardTracker | None = None
    """Copy to TensorBoard's event files; null does not."""
    group: OptionalText = None
    """Runs that belong together, such as those of a sweep: W&B's group, a tag elsewhere."""
    tags: dict[str, Text] = Field(default={})
    """Labels to filter by, name to text; a run's name, seed, algorithm and group are tags by themselves."""
    poll_seconds: Annotated[Float, Field(ge=0.1, le=600)] = 2.0
    """Time between two looks for new values; at steps of half a second four of them go together."""
    max_retry_seconds: Annotated[Float, Field(ge=1, le=3600)] = 60.0
    """Longest pause between two tries to reach a tracker that is down; the first is 1 s, each next twice as long."""
    finish_timeout_seconds: Annotated[Float, Field(ge=1, le=3600)] = 30.0
    """How long the end of a run waits for its trackers. `grpo-exp sync` sends what is missing then."""

    @field_validator("tags")
    @classmethod
    def _are_not_our_own(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if name in OWN_TAGS:
                raise ValueError(f"{name!r} is a tag that every run has by itself; choose another name")
        return value

    def chosen(self) -> list[str]:
        """Return the names of the trackers that get a copy, in a fixed order."""
        all_of_them = {"mlflow": self.mlflow, "wandb": self.wandb, "tensorboard": self.tensorboard}
        return [name for name, settings in all_of_them.items() if settings is not None]
