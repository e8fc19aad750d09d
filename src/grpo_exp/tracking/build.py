"""Build the tracker that the settings ask for. No backend is imported until it starts."""

from __future__ import annotations

from pathlib import Path

from grpo_exp.settings.tracker import MlflowTracker, NoTracker, TrackerSettings
from grpo_exp.tracking.mlflow_tracker import MlflowRunTracker, default_tracking_uri
from grpo_exp.tracking.tracker import Tracker
from grpo_exp.tracking.wandb_tracker import WandbRunTracker, resolve_mode


def build_tracker(settings: TrackerSettings, output_dir: Path, run_directory: Path) -> Tracker | None:
    """Build a tracker without starting it.

    Args:
        settings: The `tracker` group.
        output_dir: Folder of all runs; MLflow's default database and its artifacts live here.
        run_directory: Folder of this run; W&B's files live here.

    Returns:
        The tracker, or None where nothing is to be tracked (`tracker=none`, `tracker.mode=disabled`).
    """
    if isinstance(settings, NoTracker):
        return None
    if isinstance(settings, MlflowTracker):
        uri = settings.tracking_uri if settings.tracking_uri is not None else default_tracking_uri(output_dir)
        return MlflowRunTracker(uri, experiment=settings.experiment, artifact_directory=output_dir / "mlartifacts")
    mode = resolve_mode(settings.mode)
    if mode == "disabled":
        return None
    return WandbRunTracker(settings.project, entity=settings.entity, mode=mode, directory=run_directory)
