"""Copy a run to Weights & Biases, offline unless logged in."""

from __future__ import annotations

import netrc
import os
import secrets
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from grpo_exp.tracking.metrics_log import MetricsRecord, to_record
from grpo_exp.tracking.names import to_backend_name
from grpo_exp.tracking.tables import CompletionsTable
from grpo_exp.tracking.tracker import RunInfo, RunStatus, subject_of
from grpo_exp.tracking.wandb_file import is_whole

if TYPE_CHECKING:
    import wandb

Mode = Literal["online", "offline", "disabled"]

#: The x axis, under the name that the Hugging Face trainers use. W&B's own step only counts calls and drops
#: what goes back, so after a resume from an older checkpoint it would lose the repeated steps.
STEP_METRIC = "train/global_step"
#: How long W&B looks for its server before it is tried again (its own default is 90 s).
INIT_TIMEOUT_SECONDS = 30.0
#: How long the file of an offline run may take to be whole after its end.
WRITE_TIMEOUT_SECONDS = 5.0
MAX_TAG_CHARACTERS = 64
#: W&B tells finished from failed by the exit code, and has 255 for what was interrupted. A stopped run goes on later,
#: so it has not failed; `status` in the summary says which it was.
_EXIT_CODE: Mapping[RunStatus, int] = {"completed": 0, "stopped": 0, "ended_by_rule": 3, "failed": 1, "killed": 255}
_ALERT_LEVEL = {"critical": "ERROR", "warning": "WARN"}
MAX_TITLE_CHARACTERS = 63
_ID, _URL = "id", "url"


def server_address() -> str:
    """Return the address of the server that W&B would talk to."""
    import wandb

    return str(wandb.Settings().base_url)


def resolve_mode(mode: Literal["auto", "online", "offline", "disabled"]) -> Mode:
    """Turn `auto` into WANDB_MODE if that is set, else online where an API key is known, else offline.

    A key is looked for in WANDB_API_KEY and in the netrc file, as W&B does.
    """
    if mode != "auto":
        return mode
    match os.environ.get("WANDB_MODE", "").strip().lower():
        case "online" | "run":
            return "online"
        case "offline" | "dryrun":
            return "offline"
        case "disabled":
            return "disabled"
        case _:
            return "online" if _knows_api_key() else "offline"


class WandbRunTracker:
    """One W&B run, held as an object: `wandb.run` and other runs of the process are left alone.

    Args:
        project: Name of the project.
        entity: User or team; None is the default of the account.
        mode: Where the data go; `offline` only writes below the directory.
        directory: Folder in which W&B creates its folder `wandb`.
        finish_timeout_seconds: How long the end waits for an upload; what is missing then is sent again.
    """

    title = "W&B"
    confirms_at_finish = True

    def __init__(
        self,
        project: str,
        *,
        entity: str | None,
        mode: Literal["online", "offline"],
        directory: Path,
        finish_timeout_seconds: float,
    ) -> None:
        self._project = project
        self._entity = entity
        self._mode: Literal["online", "offline"] = mode
        #: Offline it only stands in a file, which a kill may cut off.
        self.alerts_leave_at_once = mode == "online"
        self._directory = directory
        self._finish_timeout_seconds = finish_timeout_seconds
        self._run: wandb.Run | None = None
        host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai") if mode == "online" else "offline"
        self.destination = f"{host} {entity or ''}/{project}"

    def start(self, info: RunInfo) -> dict[str, str]:
        """Open a new W&B run, or go on in that of an earlier attempt (offline: one more folder, one id)."""
        # Without it, W&B's service logs to the terminal wherever the home directory cannot be written to (a
        # container, a compute node).
        os.environ.setdefault("WANDB_CACHE_DIR", str(self._directory / "wandb" / "cache"))
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        run_id = info.previous_ids.get(_ID, f"{info.run_id}-{secrets.token_hex(4)}")
        # silent also has to hold outside of a run, where W&B reports on the login.
        wandb.setup(wandb.Settings(silent=True))
        self._run = wandb.init(
            id=run_id,
            name=info.title,
            group=info.tags.get("group"),
            tags=[f"{key}:{value}"[:MAX_TAG_CHARACTERS] for key, value in info.tags.items()],
            project=self._project,
            entity=self._entity,
            mode=self._mode,
            resume="allow",
            settings=self._settings(),
        )
        self._run.config.update(dict(info.config), allow_val_change=True)
        self._run.define_metric(STEP_METRIC)
        self._run.define_metric("*", step_metric=STEP_METRIC, step_sync=True)
        url = self._run.url if self._mode == "online" else None
        return {_ID: run_id} if url is None else {_ID: run_id, _URL: url}

    def forget(self) -> bool:
        """Keep all: of one step the latest counts."""
        return False

    def log(self, records: Sequence[MetricsRecord]) -> None:
        """Copy records, with the optimizer step as a metric of its own."""
        run = self._opened()
        for given in records:
            record = to_record(given["step"], given["metrics"], given["time"])
            values = {to_backend_name(name, "wandb"): value for name, value in record["metrics"].items()}
            run.log({**values, STEP_METRIC: record["step"]})

    def alert(self, event: Mapping[str, Any]) -> None:
        """Alert of a warning or critical finding; others stay in the events."""
        if event["kind"] in _ALERT_LEVEL:
            where = f"step {event['step']}: " if "step" in event else ""
            title = f"{event['kind']}: {' '.join(subject_of(event))}"[:MAX_TITLE_CHARACTERS]
            self._opened().alert(title, where + event["text"], level=_ALERT_LEVEL[event["kind"]], wait_duration=0)

    def add_table(self, table: CompletionsTable) -> None:
        """Copy a table of completions as `completions/train` or `completions/eval`."""
        import wandb

        rows: list[Any] = list(table.rows)
        shown = wandb.Table(columns=list(table.columns), data=rows, allow_mixed_types=True)
        self._opened().log({f"completions/{table.part}": shown, STEP_METRIC: table.step})

    def add_file(self, path: Path) -> None:
        """Copy a file, into a folder named like the run: W&B has a `config.yaml` of its own."""
        self._opened().save(str(path), base_path=str(self._directory.parent), policy="now")

    def finish(self, status: RunStatus | None, ended: float) -> None:
        """End the run; `status` in the summary keeps completed, stopped and failed apart.

        Raises:
            OSError: The files of an offline run are not whole, as on a full disk. W&B itself says nothing of it.
            TimeoutError: The upload was not done in time.
        """
        if self._run is None:
            return
        run, self._run = self._run, None
        log = Path(run.settings.sync_file)
        try:
            if status is not None:
                run.summary["status"] = status
        finally:
            run.finish(exit_code=_EXIT_CODE["killed" if status is None else status])
        if self._mode == "offline" and not _is_whole_soon(log):
            raise OSError(f"{log}: W&B could not write it to its end; make room on the disk")

    def open_command(self, ids: Mapping[str, str]) -> str:
        """Return a command that opens the run's page, or offline the one that uploads it."""
        if _URL in ids:
            return shlex.join([sys.executable, "-m", "webbrowser", ids[_URL]])
        # Every attempt has its own folder; given together they are uploaded in order into one run.
        folder = shlex.quote(str(self._directory.absolute() / "wandb"))
        sync = f"{shlex.quote(sys.executable)} -m wandb sync"
        if self._mode == "offline":
            return f"{sync} {folder}/offline-run-*"
        return f"{sync} --include-online {folder}/run-*"

    def _opened(self) -> wandb.Run:
        assert self._run is not None
        return self._run

    def _settings(self) -> wandb.Settings:
        import wandb

        return wandb.Settings(
            root_dir=str(self._directory.absolute()),
            use_dot_wandb=False,
            reinit="create_new",
            silent=True,
            # The run directory has logs; capturing would also take the terminal from the progress view.
            console="off",
            disable_git=True,
            disable_code=True,
            x_save_requirements=False,
            init_timeout=INIT_TIMEOUT_SECONDS,
            finish_timeout=self._finish_timeout_seconds,
            finish_timeout_raises=True,
        )


def _is_whole_soon(log: Path) -> bool:
    """Wait for the file of a run that has ended: on a busy machine W&B's service still writes for a moment."""
    deadline = time.monotonic() + WRITE_TIMEOUT_SECONDS
    while not is_whole(log):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _knows_api_key() -> bool:
    if os.environ.get("WANDB_API_KEY", "").strip():
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).netloc
    path = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        return netrc.netrc(path).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
