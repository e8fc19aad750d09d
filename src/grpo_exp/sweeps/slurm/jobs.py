"""What was submitted for a sweep: `slurm/jobs.jsonl`, one line per array job."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from grpo_exp.sweeps.files import parse_object
from grpo_exp.sweeps.slurm.directives import Chunk


@dataclass(frozen=True, slots=True)
class Job:
    """One array job."""

    job_id: str
    """As sbatch tells it."""
    offset: int
    """Index of a point less that of its array task."""
    indices: tuple[int, ...]
    """Points that were submitted with it."""
    script: str
    """Its file, below the sweep's folder."""
    time: float
    """Of the submission, in seconds since 1970."""


def slurm_folder(sweep: Path) -> Path:
    """Return where scripts, logs and job numbers of a sweep lie."""
    return sweep / "slurm"


def add_job(sweep: Path, job_id: str, chunk: Chunk, script: Path) -> None:
    """Append one job; a line is written as a whole, so that two submissions do not mix."""
    job = Job(job_id, chunk.offset, chunk.indices, str(script.relative_to(sweep)), time.time())
    with (slurm_folder(sweep) / "jobs.jsonl").open("a+b") as stream:
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, end - 1))
        # A line that a crash or a full disk cut is ended, so that this one does not run into it.
        start = "\n" if stream.read(1) not in {b"", b"\n"} else ""
        stream.write(f"{start}{json.dumps(asdict(job))}\n".encode())


def read_jobs(sweep: Path) -> list[Job]:
    """Return all jobs, oldest first; none where nothing was submitted. A line that was cut is left out."""
    path = slurm_folder(sweep) / "jobs.jsonl"
    if not path.is_file():
        return []
    records = [parse_object(line) for line in path.read_text().splitlines()]
    return [Job(**{**record, "indices": tuple(record["indices"])}) for record in records if record is not None]


def newest_job_of(jobs: Sequence[Job]) -> dict[int, Job]:
    """Return the job in which each point was submitted last."""
    return {index: job for job in jobs for index in job.indices}
