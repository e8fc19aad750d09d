"""Submission and reconciliation with stubs of SLURM's commands on the path."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grpo_exp.errors import ConfigError, RunError
from grpo_exp.run_lock import Lock
from grpo_exp.settings import load
from grpo_exp.sweeps.manifest import Entry, SweepDirectory, set_cancelled
from grpo_exp.sweeps.slurm import launcher, point
from grpo_exp.sweeps.slurm.directives import Chunk
from grpo_exp.sweeps.slurm.jobs import add_job, read_jobs, slurm_folder
from grpo_exp.sweeps.states import read_statuses

SCRIPT = "#!/bin/sh\nprintf '%s\\0' \"$@\" >>{record}\nprintf '\\n' >>{record}\n{body}\n"


class Stubs:
    """A folder of commands that is all of the path."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.mkdir()
        monkeypatch.setenv("PATH", str(folder))

    def add(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(SCRIPT.format(record=self.folder / f"{name}.calls", body=body))
        path.chmod(0o755)

    def calls(self, name: str) -> list[list[str]]:
        path = self.folder / f"{name}.calls"
        return [line.split("\0")[:-1] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stubs:
    return Stubs(tmp_path / "bin", monkeypatch)


@pytest.fixture(scope="module")
def planned() -> dict[str, Any]:
    return load.to_settings(load.compose(["launch=ddp", "launch.num_processes=4"])).model_dump(mode="json")


def sweep_of(folder: Path, count: int, planned: Mapping[str, Any]) -> SweepDirectory:
    folder.mkdir()
    sweep = SweepDirectory(folder)
    entries = [Entry(i, (f"seed={i}",), {"seed": i}, "aaaaaaaa", i, f"aaaaaaaa-s{i}") for i in range(count)]
    sweep.manifest.write_text("".join(f"{json.dumps(asdict(entry))}\n" for entry in entries))
    sweep.settings.write_text("".join(f"{json.dumps({**planned, 'seed': e.seed})}\n" for e in entries))
    return sweep


def start(sweep: SweepDirectory, indices: Sequence[int] | None = None, **values: Any) -> str:
    statuses = [s for s in read_statuses(sweep) if indices is None or s.entry.index in indices]
    out = io.StringIO()
    assert launcher.start(sweep, statuses, values, Console(file=out, width=200)) == 0
    return out.getvalue()


def test_dry_run_writes_the_script_and_needs_no_slurm(stubs: Stubs, tmp_path: Path, planned: dict[str, Any]) -> None:
    sweep = sweep_of(tmp_path / "s", 6, planned)
    told = start(sweep, [0, 1, 2, 5], dry_run=True, throttle=2)
    script = sweep.path / "slurm" / "array-001.sbatch"
    assert "#SBATCH --array=0-2,5%2\n" in script.read_text()
    assert "nothing was submitted" in told
    assert read_jobs(sweep.path) == []


def test_submission_is_remembered_and_said(
    stubs: Stubs, tmp_path: Path, planned: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs.add("sbatch", 'echo "71;cluster"; echo "$SBATCH_PARTITION/$SLURM_JOB_ID/$SLURM_CONF" >>"$0.env"')
    monkeypatch.setenv("SBATCH_PARTITION", "debug")  # a script's own lines lose against these
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    sweep = sweep_of(tmp_path / "s", 5, planned)
    told = start(sweep, max_array_size=2)
    scripts = [sweep.path / "slurm" / f"array-00{number}.sbatch" for number in (1, 2, 3)]
    assert stubs.calls("sbatch") == [["--parsable", str(script)] for script in scripts]
    assert [(job.job_id, job.offset, job.indices) for job in read_jobs(sweep.path)] == [
        ("71", 0, (0, 1)), ("71", 2, (2, 3)), ("71", 4, (4,)),
    ]  # fmt: skip
    assert (stubs.folder / "sbatch.env").read_text().splitlines() == ["//" + "/etc/slurm.conf"] * 3
    assert "index=$((SLURM_ARRAY_TASK_ID + 4))" in scripts[2].read_text()
    assert "grpo-exp sweep status" in told


def test_refusal_of_sbatch_names_the_settings(stubs: Stubs, tmp_path: Path, planned: dict[str, Any]) -> None:
    stubs.add("sbatch", 'echo "sbatch: error: invalid partition specified: gpuu" >&2; exit 1')
    sweep = sweep_of(tmp_path / "s", 1, planned)
    with pytest.raises(RunError, match=r"gpuu; correct the setting of hydra\.launcher"):
        start(sweep, partition="gpuu")
    assert read_jobs(sweep.path) == []


def test_without_sbatch_the_script_is_written_and_the_way_out_is_told(
    stubs: Stubs, tmp_path: Path, planned: dict[str, Any]
) -> None:
    sweep = sweep_of(tmp_path / "s", 1, planned)
    with pytest.raises(RunError, match="hydra/launcher=local"):
        start(sweep)
    assert (sweep.path / "slurm" / "array-001.sbatch").is_file()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"nodes": 2}, "use launch.num_processes=2"),  # planned are 4
        ({"nodes": 2, "gpus_per_node": 8}, "use launch.num_processes=16"),
        ({"server_nodes": 1}, "add vllm=server"),
    ],
)
def test_runs_that_do_not_fit_the_nodes_are_refused(
    stubs: Stubs, tmp_path: Path, planned: dict[str, Any], values: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        start(sweep_of(tmp_path / "s", 1, planned), dry_run=True, **values)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "model=local"),  # the built-in policy has no files
        (("model=local", "model.path=/m", "vllm.num_gpus=1"), "vllm.num_gpus=1: names another server"),
        (("model=local", "model.path=/m", "vllm.server_base_url=http://x"), "vllm.server_base_url=http://x: names"),
    ],
)
def test_run_that_cannot_use_the_server_of_its_nodes_is_refused(
    stubs: Stubs, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    values = load.to_settings(load.compose(["vllm=server", *words])).model_dump(mode="json")
    with pytest.raises(ConfigError) as caught:
        start(sweep_of(tmp_path / "s", 1, values), dry_run=True, server_nodes=1)
    assert told in str(caught.value)


def submitted(folder: Path, planned: Mapping[str, Any]) -> SweepDirectory:
    """Return a sweep of six points: 0 to 3 in job 10, 2 and 3 again in job 12, 4 and 5 in job 11 with an offset."""
    sweep = sweep_of(folder, 6, planned)
    slurm_folder(sweep.path).mkdir()
    for job_id, chunk in (("10", Chunk(0, (0, 1, 2, 3))), ("11", Chunk(4, (4, 5))), ("12", Chunk(0, (2, 3)))):
        add_job(sweep.path, job_id, chunk, sweep.path / "slurm" / "a.sbatch")
    return sweep


SQUEUE = "printf '10_0|RUNNING\\n10_2|CANCELLED\\n12_2|PENDING\\n12_3|REQUEUED\\n11_0|RUNNING\\n'"
SACCT = (
    "printf '10_0|COMPLETED\\n10_1|TIMEOUT\\n10_2|FAILED\\n12_[3-4%%2]|PENDING\\n11_1|CANCELLED by 1000\\n"
    "10_0.batch|COMPLETED\\n'"
)


def test_states_come_from_the_newest_job_and_from_squeue_first(
    stubs: Stubs, tmp_path: Path, planned: dict[str, Any]
) -> None:
    stubs.add("squeue", SQUEUE)
    stubs.add("sacct", SACCT)
    sweep = submitted(tmp_path / "s", planned)
    # 0: both know it and squeue is newer. 2, 3: what became of them in job 10 does not matter. 5: task 1 of job 11.
    expected = {0: "RUNNING", 1: "TIMEOUT", 2: "PENDING", 3: "REQUEUED", 4: "RUNNING", 5: "CANCELLED"}
    assert launcher.view(sweep) == expected


def test_states_without_accounting_are_those_of_squeue(stubs: Stubs, tmp_path: Path, planned: dict[str, Any]) -> None:
    stubs.add("squeue", SQUEUE)
    stubs.add("sacct", 'echo "Slurm accounting storage is disabled" >&2; exit 1')
    sweep = submitted(tmp_path / "s", planned)
    assert launcher.view(sweep) == {0: "RUNNING", 2: "PENDING", 3: "REQUEUED", 4: "RUNNING"}


def test_states_are_empty_without_slurm_and_without_jobs(stubs: Stubs, tmp_path: Path, planned: dict[str, Any]) -> None:
    assert launcher.view(submitted(tmp_path / "s", planned)) == {}
    stubs.add("squeue", "exit 1")
    assert launcher.view(sweep_of(tmp_path / "t", 1, planned)) == {}  # nothing to ask for


def test_controller_that_does_not_answer_is_no_answer(stubs: Stubs, tmp_path: Path, planned: dict[str, Any]) -> None:
    """Taken for `nothing is queued`, it would submit every waiting point again."""
    stubs.add("squeue", 'echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1')
    with pytest.raises(RunError, match="started twice"):
        launcher.view(submitted(tmp_path / "s", planned))


def test_line_of_a_job_that_a_full_disk_cut_is_passed_over(tmp_path: Path, planned: dict[str, Any]) -> None:
    sweep = sweep_of(tmp_path / "s", 2, planned)
    folder = slurm_folder(sweep.path)
    folder.mkdir()
    add_job(sweep.path, "7", Chunk(0, (0, 1)), folder / "a")
    with (folder / "jobs.jsonl").open("a") as stream:
        stream.write('{"job_id": "8", "off')
    add_job(sweep.path, "9", Chunk(0, (1,)), folder / "b")
    assert [job.job_id for job in read_jobs(sweep.path)] == ["7", "9"]


def test_job_that_squeue_has_forgotten_is_no_error(stubs: Stubs, tmp_path: Path, planned: dict[str, Any]) -> None:
    stubs.add("squeue", 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1')
    assert launcher.view(submitted(tmp_path / "s", planned)) == {}


def test_cancel_takes_back_what_has_not_begun(stubs: Stubs, tmp_path: Path, planned: dict[str, Any]) -> None:
    stubs.add("scancel", "true")
    sweep = submitted(tmp_path / "s", planned)
    entries = sweep.read_entries()
    sweep.run(entries[4]).path.mkdir()
    running = Lock(sweep.run(entries[4]).lock)
    running.acquire()
    try:
        launcher.cancel(sweep, [entries[1], entries[3], entries[4], entries[5]])
    finally:
        running.release()
    assert stubs.calls("scancel") == [["10_1", "12_3", "11_1"]]  # 4 runs: it gets a STOP file, and is not requeued


def test_batch_script_is_told_about_its_run(
    tmp_path: Path, planned: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(tmp_path / "s", 2, planned)
    words = [str(sweep.path), "1"]
    assert point.main([*words, "run-directory"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{sweep.path}/aaaaaaaa-s1"]
    assert point.main([*words, "cancelled"]) == 1
    set_cancelled(sweep, add=["aaaaaaaa-s1"])
    assert point.main([*words, "cancelled"]) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [(["7", "cancelled"], "holds 0 to 1"), (["x", "cancelled"], "INDEX a number"), (["1", "age"], "age: is no")],
)
def test_wrong_question_has_the_code_of_wrong_settings(
    tmp_path: Path, planned: dict[str, Any], capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    sweep = sweep_of(tmp_path / "s", 2, planned)
    assert point.main([str(sweep.path), *words]) == 2
    assert told in capsys.readouterr().err


def test_stubs_are_all_of_the_path(stubs: Stubs) -> None:
    """Guards the others against the SLURM of the machine that they run on."""
    assert shutil.which("squeue") is None
    assert os.environ["PATH"] == str(stubs.folder)
