"""The whole way of `--multirun` through the real command, with runs of a stub."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra
from rich.console import Console

from grpo_exp import train
from grpo_exp.errors import RunError
from grpo_exp.rundir import write_json
from grpo_exp.sweeps.local import pool
from grpo_exp.sweeps.manifest import SweepDirectory
from grpo_exp.sweeps.operations import start
from grpo_exp.sweeps.plan_text import _rate_notes, estimate
from grpo_exp.sweeps.rules import SweepRules
from grpo_exp.sweeps.states import TO_RESUME, read_statuses
from unit.sweeps.sweep_folder import STUB, a_sweep, finish

SMALL = ("tracker=none", "launch=inline", "dataset.train_size=64", "dataset.eval_size=8", "trainer.max_steps=1")


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "")
    monkeypatch.setattr(pool, "COMMAND", STUB)
    monkeypatch.setattr(pool, "POLL_SECONDS", 0.02)
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    yield
    GlobalHydra.instance().clear()


def multirun(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int | str | None, str]:
    with pytest.raises(SystemExit) as caught:
        train.main(["--multirun", *SMALL, *words])
    printed = capsys.readouterr()
    return caught.value.code, printed.out + printed.err


def test_a_sweep_is_planned_run_found_again_and_extended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = SweepDirectory(tmp_path / "outputs" / "sweeps" / "mine")
    write_json(sweep.path / "stub.json", {"steps": 1, "step_seconds": 0.0, "fails": [1]})

    code, told = multirun(capsys, "name=mine", "seed=0,1")
    assert code == 1
    assert f"sweep      {sweep.path}" in told
    assert "points     2 runs: 1 point, seeds 0, 1" in told
    assert "cost       2 runs; how long they take is known once one of them is done" in told
    assert [status.state for status in read_statuses(sweep)] == ["completed", "failed"]
    assert sweep.read_about()["launcher"] == {"kind": "local", "settings": {"slots": 1, "gpus_per_run": None}}

    # The same command again: nothing is missing, and the failed one is left to retry.
    code, told = multirun(capsys, "name=mine", "seed=0,1")
    assert code == 1
    assert "states     1 completed, 1 failed" in told
    assert "nothing to start" in told

    # Another call with the same name extends the sweep, and says what lies there, too.
    code, told = multirun(capsys, "name=mine", "seed=2")
    assert code == 0
    assert "others     2 runs of other calls lie in this sweep, too" in told
    assert [entry.seed for entry in sweep.read_entries()] == [0, 1, 2]
    lines = (sweep.path / "stub.log").read_text().splitlines()
    assert [json.loads(line)["index"] for line in lines] == [0, 1, 2]


def test_a_sweep_that_is_made_longer_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a single run does: trainer.max_steps is no part of a run's hash while the rate is constant."""
    sweep = SweepDirectory(tmp_path / "outputs" / "sweeps" / "mine")
    write_json(sweep.path / "stub.json", {"steps": 1, "step_seconds": 0.0})
    assert multirun(capsys, "name=mine", "seed=0,1")[0] == 0
    write_json(sweep.path / "stub.json", {"steps": 3, "step_seconds": 0.0})
    code, told = multirun(capsys, "name=mine", "seed=0,1", "trainer.max_steps=3")
    assert code == 0
    assert "states     2 stopped" in told
    assert [(status.state, status.steps) for status in read_statuses(sweep)] == [("completed", 3)] * 2
    # Asked for fewer again: what is done stays done.
    assert "nothing to start" in multirun(capsys, "name=mine", "seed=0,1", "trainer.max_steps=2")[1]


def test_what_slurm_refuses_is_told_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no sbatch
    code, told = multirun(capsys, "seed=0,1", "hydra/launcher=slurm")
    assert code == 1
    assert "sbatch: is not on this machine" in told


def test_a_script_that_was_only_written_is_submitted_by_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no sbatch
    words = ("name=mine", "seed=0,1", "hydra/launcher=slurm", "hydra.launcher.dry_run=true")
    code, told = multirun(capsys, *words)
    assert (code, "nothing was submitted" in told) == (0, True)
    sweep = SweepDirectory(tmp_path / "outputs" / "sweeps" / "mine")
    with pytest.raises(RunError, match="sbatch: is not on this machine"):
        start(sweep, TO_RESUME, Console(quiet=True))


def test_wrong_points_are_told_together_and_nothing_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = multirun(capsys, "seed=0,1", "algorithm.beta=0.0,-1", "algorithm.temperature=-2")
    assert code == 2
    assert "2 faults, nothing was started:" in told
    assert "algorithm.beta=-1: must be at least 0; use 0 or more (2 of 4 points" in told
    assert "algorithm.temperature=-2: must be above 0" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hydra.launcher.slots=0"], "hydra.launcher.slots=0: must be at least 1"),
        (["hydra.launcher.slot=2"], "hydra.launcher.slot: Hydra has no such setting"),
        (["hydra/launcher=basic"], "choose hydra/launcher=local"),
        (["hydra.sweep.dir=my sweep"], "its last part is the sweep's name, and 'my sweep' is not plain"),
        (["hydra.sweeper.hold=prompts"], "hydra.sweeper.hold=prompts: must be one of"),
        (["hydra.sweeper.skip_if=[{seed: '>=0'}]"], "none of the 2 points is left"),
        (["+sweeps=quick_cpu,loss_types"], "+sweeps=quick_cpu,loss_types: cannot be swept"),
        (
            ["hydra/launcher=slurm", "hydra.launcher.environment={A: b}"],
            "hydra.launcher.environment: is empty, so a variable is added to it; write +hydra.launcher.",
        ),
    ],
)
def test_wrong_words_about_the_sweep_are_told(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = multirun(capsys, "seed=0,1", *words)
    assert code == 2
    assert message in told
    assert list(tmp_path.iterdir()) == []


def test_the_plan_alone_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """81 = 3 x 3 x 3 x 3 seeds; 32 prompts x G; the rates are those of a larger model."""
    code, told = multirun(capsys, "+sweeps=g_beta_lr", "hydra.sweeper.dry_run=true")
    assert code == 0
    assert "81 runs: 27 points, seeds 0, 1, 2" in told
    assert "held       trainer.prompts_per_step=32; completions a step: 128 at G 4, 256 at G 8, 512 at G 16" in told
    (note,) = [line for line in told.splitlines() if line.startswith("note")]
    assert "does not suit model=tiny, whose own is 0.0001; use +sweeps=quick_cpu" in note
    assert list(tmp_path.iterdir()) == []


def test_options_by_a_pattern_are_an_axis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = multirun(capsys, "algorithm=glob(d*)", "hydra.sweeper.dry_run=true")
    assert code == 0
    assert "2 runs: 2 points" in told  # dapo, dr_grpo


def settings_with(rate: float) -> dict[str, object]:
    return {"model": {"kind": "tiny", "learning_rate": 1e-4}, "trainer": {"learning_rate": rate}}


def test_rates_within_ten_times_of_the_models_own_are_no_matter() -> None:
    assert _rate_notes([settings_with(2e-5), settings_with(1e-6)], SweepRules()) == []
    (note,) = _rate_notes([settings_with(1e-5), settings_with(1e-6)], SweepRules())
    assert note.startswith("trainer.learning_rate=1e-06 to 1e-05 does not suit model=tiny, whose own is 0.0001")


def test_cost_is_the_mean_of_the_runs_that_are_done_times_those_left(tmp_path: Path) -> None:
    """(60 + 120) / 2 = 90 s; 3 left x 90 = 270 s."""
    sweep = a_sweep(tmp_path / "s", seeds=5)
    entries = sweep.read_entries()
    finish(sweep.run(entries[0]), wall_seconds=60.0)
    finish(sweep.run(entries[1]), wall_seconds=120.0)
    assert estimate(read_statuses(sweep)).startswith("3 runs x 1:30 (mean of 2 that are done) = 4:30")
