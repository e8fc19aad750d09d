"""The main command's own decisions: exit codes, where faults are told, being started by a launcher."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from grpo_exp import paths, train


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a command leaves behind in its process."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    for name in ("HYDRA_FULL_ERROR", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "ACCELERATE_MIXED_PRECISION"):
        monkeypatch.delenv(name, raising=False)
    yield
    GlobalHydra.instance().clear()


def outcome(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int | str | None, str]:
    with pytest.raises(SystemExit) as caught:
        train.main(words)
    printed = capsys.readouterr()
    return caught.value.code, printed.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["algorithm=dpao"], "algorithm=dpao: there is no such option; did you mean algorithm=dapo?"),
        (["trainer.max_step=5"], "trainer.max_step: there is no such setting; did you mean trainer.max_steps"),
        (["+foo=1"], "foo: there is no such setting"),
        (["algorithm.temperature=-1"], "algorithm.temperature=-1: must be above 0"),
        (["reward=math,math_only"], "add --multirun for a run of each"),
        (
            ["reward.components={h: {kind: math}}"],
            "reward.components={h: {kind: math}}: a group is merged with what it is given, and a key in there is new; "
            "write each new key by itself, with a plus: '+reward.components.KEY=VALUE'",
        ),
    ],
)
def test_one_fault_ends_with_2_and_one_sentence(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = outcome(capsys, *words)
    assert code == 2
    head, fault = told.strip().split("\n")
    assert head == "one fault, nothing was started:"
    assert message in fault
    assert "Traceback" not in told


def test_a_sweep_file_is_not_taken_for_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its axes stand where only a multirun looks."""
    (tmp_path / "sweeps").mkdir()
    text = "# @package _global_\nname: mine\nhydra:\n  sweeper:\n    params:\n      seed: 0,1\n"
    (tmp_path / "sweeps" / "mine.yaml").write_text(text)
    monkeypatch.setattr(paths, "sweeps_parent", lambda: tmp_path)
    code, told = outcome(capsys, "+sweeps=mine")
    assert code == 2
    assert "hydra.sweeper.params: seed would be left out of a single run; add --multirun" in told


def test_two_faults_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = outcome(capsys, "seed=-1", "trainer.learning_rate=fast")
    assert code == 2
    head, *faults = told.strip().split("\n")
    assert head == "2 faults, nothing was started:"
    assert len(faults) == 2


@pytest.mark.parametrize(
    ("environment", "started"),
    [
        ({}, False),
        ({"WORLD_SIZE": "2"}, False),
        ({"WORLD_SIZE": "2", "RANK": "1"}, False),  # left over from a job's wrapper
        ({"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, True),
        ({"WORLD_SIZE": "", "RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, False),
        ({"ACCELERATE_MIXED_PRECISION": "no"}, False),
    ],
)
def test_launcher_is_known_by_its_variables(
    environment: dict[str, str], started: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert train._started_by_a_launcher() is started


@pytest.mark.parametrize("words", [["--multirun", "seed=0,1"], ["-m", "seed=0,1"], ["+sweeps=quick_cpu"]])
def test_several_runs_inside_a_launcher_are_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    code, told = outcome(capsys, *words)
    assert code == 2
    assert "--multirun: cannot run inside accelerate launch" in told


@pytest.mark.parametrize("switch", [["--help"], ["--cfg", "job"]])
def test_looking_works_inside_a_launcher(switch: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    seen: list[list[str]] = []
    monkeypatch.setattr(train, "_run", lambda words: seen.append(words) or 0)
    with pytest.raises(SystemExit) as caught:
        train.main(switch)
    assert (caught.value.code, seen) == (0, [switch])


@pytest.mark.parametrize("words", [[], ["hydra.verbose=false"]], ids=["alone", "with a setting of Hydra's own"])
def test_one_run_is_composed_once_and_handed_over(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[object, list[str]]] = []
    monkeypatch.setattr(train, "_run_one", lambda config, overrides: seen.append((config.seed, overrides)) or 85)
    with pytest.raises(SystemExit) as caught:
        train.main(["seed=3", *words])
    assert caught.value.code == 85
    assert seen == [(3, ["seed=3"])]
