"""Requests to stop, and faults while saving, in whole runs in this process."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_exp import runner, worker
from grpo_exp.checkpoints import writing
from grpo_exp.checkpoints.continuation import store_of
from grpo_exp.observers import MainObserver
from grpo_exp.rundir import RunDirectory
from unit.resume.small_run import curves, request, result_of, run, weights
from unit.run_folder import a_console

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")
QUICK = ("algorithm=grpo", "trainer.max_steps=4", "trainer.eval_before=false", "trainer.checkpoint.every_steps=2")


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_draw", lambda *_: None)
    monkeypatch.delenv("RANK", raising=False)


class Acts(MainObserver):
    """Does something when a step has been measured."""

    def act(self, step: int) -> None:
        """Do nothing."""

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        super().on_metrics(step, metrics)
        if "train/loss" in metrics:
            self.act(step)


def run_with(observer: type[Acts], folder: Path, *words: str) -> tuple[int, str, RunDirectory]:
    """Run as the command does; return exit code, what was printed, and the run."""
    console, out = a_console()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "MainObserver", observer)
        code = runner.run(request(folder, *QUICK, *words), console)
    (config,) = folder.glob("*/*/config.json")
    return code, out.getvalue(), RunDirectory(config.parent)


def test_signal_saves_behind_the_step_and_ends_with_85(tmp_path: Path) -> None:
    class Signalled(Acts):
        def act(self, step: int) -> None:
            if step == 3:
                os.kill(os.getpid(), signal.SIGUSR2)

    code, text, directory = run_with(Signalled, tmp_path)
    assert code == 85
    assert store_of(directory).read(3).step == 3
    assert (result_of(directory)["status"], result_of(directory)["resumable"]) == ("stopped", True)
    assert "go on   the same command goes on from checkpoint-3" in text


def test_behind_a_checkpoint_it_is_training_again(tmp_path: Path) -> None:
    """For the watchdog, whose limit would be that of saving for the rest of the run, and for readers of the status."""
    seen: list[tuple[str, str]] = []

    class Looks(Acts):
        def act(self, step: int) -> None:
            status = self._directory.read_status()
            assert status is not None
            assert self._watchdog is not None
            seen.append((status["phase"], self._watchdog._phase))

    run_with(Looks, tmp_path, "trainer.max_steps=2", "trainer.checkpoint.every_steps=1")
    assert seen == [("training", "training")] * 2


def test_step_that_breaks_the_run_is_not_saved_unless_it_is_asked_for(tmp_path: Path) -> None:
    """A rule ends the run at step 2, where a checkpoint is due; nobody should go on behind a broken step."""

    class Broken(Acts):
        asks = False

        def act(self, step: int) -> None:
            if step == 2:
                self.stop_reason, self.health_stop = "health: broken", True

        def takes_checkpoint(self) -> bool:
            return self.asks

    code, _, directory = run_with(Broken, tmp_path / "broken")
    assert (code, store_of(directory).steps()) == (3, [])
    assert result_of(directory)["resumable"] is False
    code, _, directory = run_with(type("Asks", (Broken,), {"asks": True}), tmp_path / "asked")
    assert code == 3
    assert store_of(directory).steps()[0] == 2


@pytest.fixture
def file_limit() -> Iterator[int]:
    """Put the limit on the size of files back, which a test has lowered to 40 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield 40_000
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_files_that_cannot_be_written_leave_the_checkpoint_before(
    file_limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimizer's file has 73 kB: from step 3 on it fails half way, as on a disk that is full."""

    class Full(Acts):
        def act(self, step: int) -> None:
            if step == 3:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    code, text, directory = run_with(Full, tmp_path)
    assert code == 1
    result = result_of(directory)
    assert (result["status"], result["resumable"], result["steps"]) == ("failed", True, 4)
    assert "checkpoint-4 could not be written" in result["reason"]
    assert "checkpoint-2 is complete and stays; make room" in text
    assert [path.name for path in directory.checkpoints.iterdir()] == ["checkpoint-2"]
    assert store_of(directory).read(2).step == 2


@pytest.mark.long
def test_disk_without_room_is_found_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has room; the second would need a thousand disks."""

    class Full(Acts):
        def act(self, step: int) -> None:
            if step == 3:
                monkeypatch.setattr(writing, "_SPARE", 1e12)

    code, _, directory = run_with(Full, tmp_path)
    assert code == 1
    assert "are free and a checkpoint takes about" in result_of(directory)["reason"]
    assert store_of(directory).steps() == [2]


@pytest.mark.long
def test_run_that_is_made_longer_is_the_longer_run(tmp_path: Path) -> None:
    """2 steps, then 4; the curve of the whole lacks only the KL that the short one measured at its end."""
    words = (*QUICK[:1], *QUICK[2:], "health.kl_probe.enabled=false", "trainer.lr_scheduler_type=constant")
    whole = run(tmp_path / "whole", *words, "trainer.max_steps=4")
    run(tmp_path / "longer", *words, "trainer.max_steps=2")
    longer = run(tmp_path / "longer", *words, "trainer.max_steps=4")

    def steps(directory: RunDirectory) -> list[Any]:
        return [record for record in curves(directory) if "train/loss" in record[1]]

    assert steps(longer) == steps(whole)
    assert weights(longer) == weights(whole)
    assert result_of(longer)["eval"] == result_of(whole)["eval"]


def test_checkpoint_is_a_model_that_transformers_reads(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    directory = run(tmp_path, *QUICK, "trainer.max_steps=1")
    folder = directory.checkpoints / "checkpoint-1"
    saved, model = (AutoModelForCausalLM.from_pretrained(path) for path in (folder, directory.model))
    for one, other in zip(saved.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert AutoTokenizer.from_pretrained(folder).chat_template is not None
    assert not (directory.path / "README.md").exists()


def test_checkpoints_that_are_off_leave_a_stopped_run_at_its_beginning(tmp_path: Path) -> None:
    directory = run(tmp_path, *QUICK, "trainer.checkpoint.enabled=false", stop_after=2)
    assert (result_of(directory)["exit_code"], result_of(directory)["resumable"]) == (1, False)
    assert not directory.checkpoints.exists()
