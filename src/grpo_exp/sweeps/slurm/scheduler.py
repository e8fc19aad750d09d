"""Ask SLURM how array tasks stand, and take them back. squeue knows those that live, sacct those that ended, too.

Neither need be there: what nobody knows is absent.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from grpo_exp.errors import RunError
from grpo_exp.sweeps.slurm.jobs import newest_job_of, read_jobs

_SECONDS = 60.0
#: A command line may hold some megabytes; this many ids are far below.
_IDS_PER_CALL = 500
_DEFAULT_MAX_ARRAY_SIZE = 1001
SACCT_OPTIONS = ("--noheader", "--allocations", "--parsable2", "--format=JobID,State")
#: Otherwise the indices of pending tasks are cut after 64 bytes.
_WHOLE_INDICES = {"SLURM_BITSTR_LEN": "0"}


def read_states(sweep: Path) -> dict[int, str]:
    """Return what SLURM says of each point in its newest job, in its own words: PENDING, RUNNING, FAILED ..."""
    newest = newest_job_of(read_jobs(sweep))
    job_ids = sorted({job.job_id for job in newest.values()})
    by_task = {**_ask_sacct(job_ids), **_ask_squeue(job_ids)}  # of those that live squeue knows more
    states = {index: by_task.get((job.job_id, index - job.offset)) for index, job in newest.items()}
    return {index: state for index, state in states.items() if state is not None}


def cancel_points(sweep: Path, indices: Iterable[int]) -> None:
    """Cancel the array tasks of points; those that have ended are left as they are.

    Raises:
        RunError: SLURM refused.
    """
    newest = newest_job_of(read_jobs(sweep))
    tasks = [f"{newest[i].job_id}_{i - newest[i].offset}" for i in sorted(indices) if i in newest]
    if not tasks or shutil.which("scancel") is None:
        return
    for first in range(0, len(tasks), _IDS_PER_CALL):
        done = _run(["scancel", *tasks[first : first + _IDS_PER_CALL]])
        told = [line for line in done.stderr.splitlines() if "Invalid job id" not in line]
        if done.returncode != 0 and told:
            raise RunError(f"scancel: {told[0]}; look at the tasks with squeue --me and cancel them by hand")


def _ask_squeue(job_ids: Sequence[str]) -> dict[tuple[str, int], str]:
    return _parse(_ask("squeue", job_ids, "--noheader", "--array", "--states=all", "--format=%F_%K|%T"))


def _ask_sacct(job_ids: Sequence[str]) -> dict[tuple[str, int], str]:
    return _parse(_ask("sacct", job_ids, *SACCT_OPTIONS))


def _ask(program: str, job_ids: Sequence[str], *options: str) -> str:
    """Return what a command printed about jobs; nothing where it is missing, or there is no accounting to ask."""
    if not job_ids or shutil.which(program) is None:
        return ""
    printed = []
    for first in range(0, len(job_ids), _IDS_PER_CALL):
        done = _run([program, *options, f"--jobs={','.join(job_ids[first : first + _IDS_PER_CALL])}"])
        if done.returncode == 0:
            printed.append(done.stdout)
        elif program == "squeue" and "Invalid job id" in done.stderr:  # one job, which was forgotten
            continue
        elif program == "squeue":
            raise RunError(
                f"squeue: {done.stderr.strip() or done.returncode}; SLURM must answer, or a point might be started "
                "twice; try again when it does"
            )
    return "".join(printed)


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        environ = {**os.environ, **_WHOLE_INDICES}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{command[0]}: SLURM did not answer within {_SECONDS:.0f} s; try again when it does") from error


def _parse(text: str) -> dict[tuple[str, int], str]:
    """Read lines `JOB_TASK|STATE`; `CANCELLED by 1000` is CANCELLED, and tasks told as a range are split up."""
    found: dict[tuple[str, int], str] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(\d+)_\[?([\d,-]+)(?:%\d+)?\]?\|([A-Z_]+).*", line.strip())
        if match is None:
            continue
        job_id, tasks, state = match.groups()
        for task in _expand(tasks):
            found[job_id, task] = state
    return found


def _expand(text: str) -> list[int]:
    """Read `0-2,5` as 0, 1, 2, 5."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def read_max_array_size() -> int:
    """Return the cluster's MaxArraySize, or SLURM's default where it cannot be asked."""
    if shutil.which("scontrol") is None:
        return _DEFAULT_MAX_ARRAY_SIZE
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", _run(["scontrol", "show", "config"]).stdout, re.MULTILINE)
    return int(match[1]) if match else _DEFAULT_MAX_ARRAY_SIZE


def submit(script: Path, environ: Mapping[str, str]) -> str:
    """Submit a batch script and return the number of its job.

    Raises:
        RunError: sbatch is not here, or refused.
    """
    if shutil.which("sbatch") is None:
        raise RunError(
            f"sbatch: is not on this machine, so {script} was written and not submitted; submit it on a login node, "
            "or use hydra/launcher=local"
        )
    done = subprocess.run(
        ["sbatch", "--parsable", str(script)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RunError(f"sbatch: {done.stderr.strip()}; correct the setting of hydra.launcher that it names ({script})")
    return done.stdout.strip().partition(";")[0]
