"""Copy a run to MLflow: by default a SQLite file, which needs no server."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import math
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from grpo_exp.tracking.metrics_log import MetricsRecord, to_record
from grpo_exp.tracking.names import to_backend_name
from grpo_exp.tracking.tracker import TRACKER_THREAD_NAME, RunInfo, RunStatus

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.tracking.client import MlflowClient

Item = TypeVar("Item")

#: What every MLflow server takes; newer ones take 6000 characters and cut the rest without a word.
MAX_PARAM_CHARACTERS = 250
#: Limits of the REST API for one log-batch request.
MAX_METRICS_PER_BATCH = 1000
MAX_PARAMS_PER_BATCH = 100
#: Records of this time go together: with steps of half a second that halves what MLflow costs.
FLUSH_SECONDS = 2.0
_STATUS: Mapping[RunStatus, str] = {"completed": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
_DATABASE_SCHEMES = ("postgresql", "mysql", "mssql", "oracle")
_ID = "mlflow_run_id"


def default_tracking_uri(output_dir: Path) -> str:
    """Return the URI of the SQLite file that all runs below one output folder share."""
    return f"sqlite:///{output_dir.absolute() / 'mlflow.db'}"


class MlflowRunTracker:
    """One MLflow run, addressed by its id: no active run, no global tracking URI.

    Args:
        tracking_uri: Any MLflow tracking URI.
        experiment: Name of the experiment; it is created if it is missing.
        artifact_directory: Where a database without a server keeps artifacts. SQLite keeps them beside its
            file instead, and a server knows its own place. (MLflow's own default is the current directory.)
    """

    name = "MLflow"

    def __init__(self, tracking_uri: str, *, experiment: str, artifact_directory: Path) -> None:
        self._database = _sqlite_path(tracking_uri)
        self._uri = tracking_uri if self._database is None else f"sqlite:///{self._database}"
        self._experiment = experiment
        self._artifact_directory = artifact_directory
        self._client: MlflowClient | None = None
        self._run_id: str | None = None
        self._experiment_id: str | None = None
        self._waiting: list[Metric] = []
        self._flushed_at = -math.inf

    def start(self, info: RunInfo) -> dict[str, str]:
        """Open a new MLflow run or the one of an earlier attempt, and log the settings."""
        _quieten()
        from mlflow.tracking.client import MlflowClient

        with _one_at_a_time(self._database):
            # Without registry_uri the client would look at the global one.
            self._client = MlflowClient(tracking_uri=self._uri, registry_uri=self._uri)
            self._experiment_id = self._find_or_create_experiment()
        logged = self._reopen(info.previous_ids.get(_ID))
        if logged is None:
            tags = {**info.tags, "grpo_exp.run_id": info.run_id, "grpo_exp.directory": str(info.directory)}
            tags = {to_backend_name(key, "mlflow"): value for key, value in tags.items()}
            run = self._client.create_run(self._experiment_id, run_name=info.title, tags=tags)
            self._run_id, logged = run.info.run_id, {}
            self._client.log_text(self._run_id, json.dumps(info.config, indent=2, default=str), "config.json")
        self._log_params(info.config, logged)
        assert self._run_id is not None
        return {_ID: self._run_id}

    def log(self, record: MetricsRecord) -> None:
        """Copy one record; it waits for the next one or for `finish` if another was sent just before.

        The time stamp is the record's: MLflow keeps a point once if key, step, time stamp and value agree, so
        a record may be sent twice.
        """
        from mlflow.entities import Metric

        record = to_record(record["step"], record["metrics"], record["time"])
        milliseconds = round(record["time"] * 1000)
        self._waiting += [
            Metric(to_backend_name(name, "mlflow"), value, milliseconds, record["step"])
            for name, value in record["metrics"].items()
        ]
        if time.monotonic() - self._flushed_at >= FLUSH_SECONDS:
            self._flush()

    def finish(self, status: RunStatus) -> None:
        """Set the run to FINISHED, KILLED (stopped) or FAILED."""
        if self._client is None or self._run_id is None:
            return
        try:
            self._flush()
        finally:
            self._client.set_terminated(self._run_id, _STATUS[status])

    def open_command(self) -> str:
        """Return `python -m mlflow ui …` for a store, or a command that opens the page of a server."""
        if self._uri.startswith(("http://", "https://")):
            page = _without_password(self._uri).rstrip("/")
            if self._run_id is not None:
                page += f"/#/experiments/{self._experiment_id}/runs/{self._run_id}"
            return shlex.join([sys.executable, "-m", "webbrowser", page])
        return shlex.join([sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", _without_password(self._uri)])

    def _flush(self) -> None:
        assert self._client is not None
        assert self._run_id is not None
        points, self._waiting = self._waiting, []
        for batch in _batches(points, MAX_METRICS_PER_BATCH):
            self._client.log_batch(self._run_id, metrics=batch)
        self._flushed_at = time.monotonic()

    def _find_or_create_experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        assert self._client is not None
        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment is not None:
            return experiment.experiment_id
        location = None
        if self._database is not None:
            location = (self._database.parent / "mlartifacts").as_uri()
        elif urlsplit(self._uri).scheme.startswith(_DATABASE_SCHEMES):
            location = self._artifact_directory.absolute().as_uri()
        try:
            return self._client.create_experiment(self._experiment, artifact_location=location)
        except MlflowException as error:
            # Another run of the same sweep was faster.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            experiment = self._client.get_experiment_by_name(self._experiment)
            if experiment is None:
                raise
            return experiment.experiment_id

    def _reopen(self, run_id: str | None) -> dict[str, str] | None:
        """Set an earlier run to RUNNING and return its parameters; None if there is none (any more)."""
        from mlflow.exceptions import MlflowException

        if run_id is None:
            return None
        assert self._client is not None
        try:
            run = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        if run.info.lifecycle_stage != "active":
            return None
        self._client.update_run(run_id, status="RUNNING")
        self._run_id = run_id
        return run.data.params

    def _log_params(self, config: Mapping[str, Any], logged: Mapping[str, str]) -> None:
        """Log settings as parameters; one that changed since an earlier attempt becomes a tag.

        MLflow refuses to change a parameter, even from `1` to `1.0`.
        """
        from mlflow.entities import Param, RunTag

        assert self._client is not None
        assert self._run_id is not None
        params, tags = [], []
        for setting, value in flatten(config).items():
            key = to_backend_name(setting, "mlflow")
            text, is_cut = to_param_text(value, f"params/{key}.txt")
            if key not in logged:
                params.append(Param(key, text))
            elif not is_same_param(logged[key], text):
                tags.append(RunTag(f"changed.{key}", f"{logged[key]} -> {text}"))
            else:
                continue
            if is_cut:
                # A changed value must not overwrite the one that the parameter points to.
                suffix = f".{round(time.time())}" if key in logged else ""
                self._client.log_text(self._run_id, str(value), f"params/{key}{suffix}.txt")
        for batch in _batches(params, MAX_PARAMS_PER_BATCH):
            self._client.log_batch(self._run_id, params=batch)
        for batch in _batches(tags, MAX_PARAMS_PER_BATCH):
            self._client.log_batch(self._run_id, tags=batch)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested settings into `{"trainer.learning_rate": 1e-6}`; lists and empty groups are values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def to_param_text(value: Any, artifact: str) -> tuple[str, bool]:
    """Write a setting as MLflow parameter.

    Args:
        value: The setting; what is no text is written as JSON.
        artifact: Where the whole value is kept if it is too long.

    Returns:
        At most MAX_PARAM_CHARACTERS characters, and whether the value had to be cut.
    """
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    if len(text) <= MAX_PARAM_CHARACTERS:
        return text, False
    mark = f" [cut, {len(text)} characters: {artifact[-120:]}]"
    return text[: MAX_PARAM_CHARACTERS - len(mark)] + mark, True


def is_same_param(left: str, right: str) -> bool:
    """Tell whether two parameter texts mean one value: `1` and `1.0` do."""
    if left == right:
        return True
    try:
        return float(left) == float(right)
    except ValueError:
        return False


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _sqlite_path(uri: str) -> Path | None:
    """Return the absolute file of a SQLite URI, None for other URIs and for a database in memory."""
    if not uri.startswith("sqlite:///") or uri == "sqlite:///:memory:" or "?" in uri:
        return None
    return Path(uri.removeprefix("sqlite:///")).absolute()


def _without_password(uri: str) -> str:
    password = urlsplit(uri).password
    return uri if password is None else uri.replace(f":{password}@", ":***@", 1)


@contextlib.contextmanager
def _one_at_a_time(database: Path | None) -> Iterator[None]:
    """Let one process of a sweep at a time create the tables: two at once break each other's migration."""
    if database is None:
        yield
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    with database.with_name(f"{database.name}.lock").open("a") as lock:
        # Some network file systems have no locks; a collision is then unlikely, not impossible.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _NotFromTrackerThreads(logging.Filter):
    """Drop the messages of tracker threads, and let all other pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.threadName != TRACKER_THREAD_NAME


#: One instance: a logger takes the same filter once, however many runs a process has.
_TRACKER_THREADS = _NotFromTrackerThreads()


def _quieten() -> None:
    """Keep MLflow's own messages off the terminal: table creation, migrations, retries of the HTTP client.

    A fault reaches the user as one warning, through the exception. Usage statistics are off unless the user
    set MLFLOW_DISABLE_TELEMETRY to false.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store").setLevel(logging.WARNING)
    logging.getLogger("urllib3.connectionpool").addFilter(_TRACKER_THREADS)
