"""Build the trackers that the settings ask for. No backend is imported until it starts."""

from __future__ import annotations

from pathlib import Path

from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.tracker import MlflowTracker, TensorboardTracker, TrackerSettings, WandbTracker
from grpo_exp.tracking.copy_state import StateFile
from grpo_exp.tracking.mlflow_tracker import MlflowRunTracker, default_tracking_uri
from grpo_exp.tracking.tensorboard_tracker import TensorboardRunTracker
from grpo_exp.tracking.tracker import Tracker
from grpo_exp.tracking.wandb_tracker import WandbRunTracker, resolve_mode


def active_trackers(settings: TrackerSettings) -> list[str]:
    """Return the names of the trackers that get a copy: the chosen ones without a W&B that is disabled."""
    names = settings.chosen()
    if settings.wandb is not None and resolve_mode(settings.wandb.mode) == "disabled":
        names.remove("wandb")
    return names


def build_tracker(name: str, settings: RunSettings, directory: RunDirectory) -> Tracker:
    """Build a tracker without starting it.

    Args:
        name: Which one, as it is called in the settings, where it is chosen.
        settings: The settings of the run.
        directory: The run; W&B's files live in it.
    """
    output_dir = Path(settings.output_dir)
    tracker = settings.tracker
    match {"mlflow": tracker.mlflow, "wandb": tracker.wandb, "tensorboard": tracker.tensorboard}[name]:
        case MlflowTracker() as mlflow:
            uri = default_tracking_uri(output_dir) if mlflow.tracking_uri is None else mlflow.tracking_uri
            return MlflowRunTracker(uri, experiment=mlflow.experiment, artifact_directory=output_dir / "mlartifacts")
        case WandbTracker() as wandb:
            mode = resolve_mode(wandb.mode)
            assert mode != "disabled"
            return WandbRunTracker(
                wandb.project,
                entity=wandb.entity,
                mode=mode,
                directory=directory.path,
                finish_timeout_seconds=settings.tracker.finish_timeout_seconds,
            )
        case TensorboardTracker() as tensorboard:
            if tensorboard.directory is None:
                return TensorboardRunTracker(directory.path / "tensorboard", shown=output_dir, moves_with_run=True)
            root = Path(tensorboard.directory)
            return TensorboardRunTracker(root / settings.name / directory.run_id, shown=root)
    raise AssertionError(f"{name} is not chosen")


def open_commands(settings: RunSettings, directory: RunDirectory) -> list[str]:
    """Return a shell command for each tracker that has a copy of the run."""
    found = []
    for name in active_trackers(settings.tracker):
        tracker = build_tracker(name, settings, directory)
        state = StateFile(directory, name).load(tracker.destination)
        if state.ids and not state.is_fresh:
            found.append(tracker.open_command(state.ids))
    return found
