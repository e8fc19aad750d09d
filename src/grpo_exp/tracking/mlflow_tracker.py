"""Copy a run to MLflow: by default a SQLite file, which needs no server."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from grpo_exp.tracking.metrics_log import MetricsRecord, to_record
from grpo_exp.tracking.mlflow_params import flatten, is_same_param, to_param_text, without_password
from grpo_exp.tracking.names import to_backend_name
from grpo_exp.tracking.tables import CompletionsTable
from grpo_exp.tracking.tracker import RunInfo, RunStatus, subject_of

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking.client import MlflowClient

Item = TypeVar("Item")

#: Limits of the REST API for one log-batch request.
MAX_METRICS_PER_BATCH = 1000
MAX_PARAMS_PER_BATCH = 100
#: Characters of a tag that every server takes.
MAX_TAG_CHARACTERS = 500
#: MLflow knows three ends; the tag `grpo_exp.status` says which of ours it was.
_STATUS: Mapping[RunStatus, str] = {"completed": "FINISHED", "stopped": "KILLED", "ended_by_rule": "KILLED",
                                    "failed": "FAILED", "killed": "KILLED"}  # fmt: skip
#: Where MLflow's own pages look for tables, and how many of the newest fit into a tag of any server.
_TABLES_TAG, _NUM_LISTED_TABLES = "mlflow.loggedArtifacts", 50
_DATABASE_SCHEMES = ("postgresql", "mysql", "mssql", "oracle")
_ID, _EXPERIMENT_ID = "run_id", "experiment_id"
#: Between the values of a parameter that attempts have changed.
_CHANGE = " -> "


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

    title = "MLflow"
    confirms_at_finish = False
    alerts_leave_at_once = True

    def __init__(self, tracking_uri: str, *, experiment: str, artifact_directory: Path) -> None:
        self._database = _sqlite_path(tracking_uri)
        self._uri = tracking_uri if self._database is None else f"sqlite:///{self._database}"
        self._experiment = experiment
        self._artifact_directory = artifact_directory
        self._client: MlflowClient | None = None
        self._run_id: str | None = None
        self._tables: list[str] = []
        self.destination = f"{without_password(self._uri)} {experiment}"

    def start(self, info: RunInfo) -> dict[str, str]:
        """Open a new MLflow run or the one of an earlier attempt, and log the settings."""
        _prepare_client()
        from mlflow.tracking.client import MlflowClient

        with _one_at_a_time(self._database):
            # Without registry_uri the client would look at the global one.
            self._client = MlflowClient(tracking_uri=self._uri, registry_uri=self._uri)
            experiment = self._find_or_create_experiment()
        tags = {**info.tags, "grpo_exp.run_id": info.run_id, "grpo_exp.directory": str(info.directory)}
        tags = {to_backend_name(key, "mlflow"): value[:MAX_TAG_CHARACTERS] for key, value in tags.items()}
        run = self._reopen(info.previous_ids.get(_ID), experiment)
        if run is None:
            run = self._client.create_run(experiment, run_name=info.title, tags=tags)
        self._run_id = run.info.run_id
        for key, value in tags.items():
            if run.data.tags.get(key) != value:  # a label that is new since the last attempt
                self._client.set_tag(self._run_id, key, value)
        self._log_params(info.config, run.data.params, run.data.tags)
        return {_ID: self._run_id, _EXPERIMENT_ID: experiment}

    def forget(self) -> bool:
        """Keep all: MLflow deletes no points, and of one step the latest counts."""
        return False

    def log(self, records: Sequence[MetricsRecord]) -> None:
        """Copy records in batches.

        The time stamp is the record's: MLflow keeps a point once if key, step, time stamp and value agree, so
        a record may be sent twice.
        """
        from mlflow.entities import Metric

        client, run_id = self._opened()
        clean = [to_record(record["step"], record["metrics"], record["time"]) for record in records]
        points = [
            Metric(to_backend_name(name, "mlflow"), value, round(record["time"] * 1000), record["step"])
            for record in clean
            for name, value in record["metrics"].items()
        ]
        for batch in _batches(points, MAX_METRICS_PER_BATCH):
            client.log_batch(run_id, metrics=batch, synchronous=True)

    def alert(self, event: Mapping[str, Any]) -> None:
        """Copy a finding into the tag `health.<rule>`, or `health.<rule>.<subject>`."""
        client, run_id = self._opened()
        where = f" (step {event['step']})" if "step" in event else ""
        text = f"{event['kind']}{where}: {event['text']}"
        client.set_tag(
            run_id, to_backend_name(f"health.{'.'.join(subject_of(event))}", "mlflow"), text[:MAX_TAG_CHARACTERS]
        )

    def add_table(self, table: CompletionsTable) -> None:
        """Copy a table of completions as a JSON artifact of the form that MLflow's own tables have."""
        client, run_id = self._opened()
        path = f"completions/{table.name}.json"
        text = json.dumps({"columns": table.columns, "data": table.rows}, default=str, ensure_ascii=False)
        client.log_text(run_id, text, path)
        if not self._tables:
            listed = json.loads(client.get_run(run_id).data.tags.get(_TABLES_TAG, "[]"))
            self._tables = [entry["path"] for entry in listed]
        self._tables = [*(known for known in self._tables if known != path), path][-_NUM_LISTED_TABLES:]
        client.set_tag(run_id, _TABLES_TAG, json.dumps([{"path": path, "type": "table"} for path in self._tables]))

    def add_file(self, path: Path) -> None:
        """Copy a file as an artifact."""
        client, run_id = self._opened()
        client.log_artifact(run_id, str(path))

    def finish(self, status: RunStatus | None, ended: float) -> None:
        """Set the run to FINISHED, KILLED or FAILED."""
        if self._client is None or self._run_id is None or status is None:
            return
        self._client.set_tag(self._run_id, "grpo_exp.status", status)
        self._client.set_terminated(self._run_id, _STATUS[status], end_time=round(ended * 1000))

    def open_command(self, ids: Mapping[str, str]) -> str:
        """Return `python -m mlflow ui …` for a store, or a command that opens the page of a server."""
        if self._uri.startswith(("http://", "https://")):
            page = without_password(self._uri).rstrip("/")
            if _EXPERIMENT_ID in ids:
                page += f"/#/experiments/{ids[_EXPERIMENT_ID]}/runs/{ids[_ID]}"
            return shlex.join([sys.executable, "-m", "webbrowser", page])
        return shlex.join([sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", without_password(self._uri)])

    def _opened(self) -> tuple[MlflowClient, str]:
        assert self._client is not None
        assert self._run_id is not None
        return self._client, self._run_id

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

    def _reopen(self, run_id: str | None, experiment: str) -> Run | None:
        """Set an earlier run to RUNNING and return it; None if there is none in this experiment (any more)."""
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
        if run.info.lifecycle_stage != "active" or run.info.experiment_id != experiment:
            return None
        self._client.update_run(run_id, status="RUNNING")
        return run

    def _log_params(self, config: Mapping[str, Any], logged: Mapping[str, str], noted: Mapping[str, str]) -> None:
        """Log settings as parameters; one that changed since an earlier attempt becomes a tag.

        MLflow refuses to change a parameter, even from `1` to `1.0`.

        Args:
            config: The settings.
            logged: Parameters of the run.
            noted: Its tags: what has changed before, and changes back, is a change.
        """
        from mlflow.entities import Param, RunTag

        assert self._client is not None
        assert self._run_id is not None
        params, tags = [], []
        for setting, value in flatten(config).items():
            key = to_backend_name(setting, "mlflow")
            text, is_cut = to_param_text(value, f"params/{key}.txt")
            tag = to_backend_name(f"changed.{key}", "mlflow")
            before = noted.get(tag, logged.get(key))
            if before is None:
                params.append(Param(key, text))
            elif not _is_latest(before, text):
                tags.append(RunTag(tag, f"{before}{_CHANGE}{text}"[-MAX_TAG_CHARACTERS:]))
            else:
                continue
            if is_cut:
                # A changed value must not overwrite the one that the parameter points to.
                suffix = f".{round(time.time())}" if key in logged else ""
                self._client.log_text(self._run_id, str(value), f"params/{key}{suffix}.txt")
        for batch in _batches(params, MAX_PARAMS_PER_BATCH):
            self._client.log_batch(self._run_id, params=batch, synchronous=True)
        for batch in _batches(tags, MAX_PARAMS_PER_BATCH):
            self._client.log_batch(self._run_id, tags=batch, synchronous=True)


def _is_latest(values: str, text: str) -> bool:
    """Say whether a parameter, or the last of the values that attempts have given it, means what a text means."""
    latest = values.rpartition(_CHANGE)[2]
    return values == text or values.endswith(f"{_CHANGE}{text}") or is_same_param(latest, text)


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _sqlite_path(uri: str) -> Path | None:
    """Return the absolute file of a SQLite URI, None for other URIs and for a database in memory."""
    if not uri.startswith("sqlite:///") or uri == "sqlite:///:memory:" or "?" in uri:
        return None
    return Path(uri.removeprefix("sqlite:///")).absolute()


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


def _prepare_client() -> None:
    """Keep MLflow's own messages off the terminal, and let it fail soon: what tries again is the copy of the run.

    Its own 7 retries of 120 s would keep the end of a run waiting. Usage statistics are off unless the user set
    MLFLOW_DISABLE_TELEMETRY to false.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    for name in ("alembic", "mlflow.store", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.ERROR)
