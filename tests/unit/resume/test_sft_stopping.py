"""Fine-tuning that is stopped goes on from its checkpoint, by itself and in front of GRPO, and ends with 85."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from grpo_exp import sft_run, worker
from grpo_exp.adoption import Adopted, adopt
from grpo_exp.backends.trl.whole_saving import WholeSavingTrainer
from grpo_exp.checkpoints.choice import Choice
from grpo_exp.checkpoints.continuation import begin, resumed_from, store_of
from grpo_exp.composition import RunRequest, build_request
from grpo_exp.errors import ExitCode, RunError
from grpo_exp.rundir import RunDirectory, read_events, write_json
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings
from unit.resume.folder import add
from unit.resume.small_run import StopsItself, curves, result_of, weights
from unit.run_folder import a_console

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

SMALL = (
    "tracker=none", "launch=inline", "dataset.eval_size=2", "dataset.train_size=10", "launch.threads_per_process=1",
    "model.architecture.num_hidden_layers=2", "model.architecture.hidden_size=16",
    "model.architecture.intermediate_size=32", "model.architecture.num_attention_heads=2",
    "model.architecture.num_key_value_heads=1", "model.priming.steps=2", "model.priming.batch_size=4",
    "reward.engine.num_workers=1",
)  # fmt: skip
#: 4 examples a step in 2 micro-steps; 10 examples, so that the second epoch begins behind step 3.
SFT = (
    "trainer.max_steps=6", "trainer.prompts_per_step=4", "trainer.per_device_train_batch_size=2",
    "trainer.eval_samples=1", "trainer.max_completion_length=12", "trainer.learning_rate=1e-2",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_draw", lambda *_: None)
    monkeypatch.delenv("RANK", raising=False)


def sft(folder: Path, *words: str, stop_after: int | None = None) -> RunDirectory:
    """Fine-tune until the end, or until a step."""
    words = (*SMALL, *SFT, f"output_dir={folder}", *words)
    adopted = adopt(sft_run.build_sft_request(words, ["grpo-exp", "sft", *words]), Console(quiet=True))
    assert isinstance(adopted, Adopted), adopted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "MainObserver", type("StopsItself", (StopsItself,), {"after": stop_after}))
        with adopted.owned():
            worker.run_worker(adopted.directory)
    return adopted.directory


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[] if step == 4 else [pytest.mark.long]) for step in range(1, 7)]
)
def test_stopped_and_gone_on_with_is_the_run_that_would_have_been(step: int, tmp_path: Path) -> None:
    """Stopped behind step 4 of 6, in the second epoch; behind 6 only the last evaluation is missing."""
    whole = sft(tmp_path / "whole")
    stopped = sft(tmp_path / "stopped", stop_after=step)
    result = result_of(stopped)
    assert (result["status"], result["exit_code"], result["resumable"]) == ("stopped", 85, True)
    assert result["steps"] == step
    again = sft(tmp_path / "stopped")
    found = resumed_from(again)
    assert found is not None
    assert found.step == step
    assert result_of(again)["exit_code"] == 0
    assert curves(again) == curves(whole)
    assert weights(again) == weights(whole)
    assert result_of(again)["eval"] == result_of(whole)["eval"]
    assert not [event for event in read_events(again) if event["kind"] == "warning"]


def test_weights_that_are_shared_out_and_have_all_steps_behind_them_say_what_to_do(tmp_path: Path) -> None:
    """Starting again has moved model/ into the log folder of the attempt before."""
    directory = RunDirectory(tmp_path)
    begin(directory, Choice(None))
    directory.model.mkdir()
    directory.metrics.touch()
    add(store_of(directory), 6)
    begin(directory, Choice(store_of(directory).read(6)))
    assert (directory.log_root / "attempt-1" / "model").is_dir()
    trainer: Any = SimpleNamespace(is_deepspeed_enabled=True)
    with pytest.raises(RunError, match=r"is in model/ of the attempt that made them, in logs/ of the run; with "):
        WholeSavingTrainer.train_behind(trainer, store_of(directory).read(6), max_steps=6)


# ------------------------------------------------------------------------------------------ in front of GRPO

GRPO = ("trainer.max_steps=1", "trainer.eval_before=false", "trainer.eval_samples=1", "trainer.prompts_per_step=2",
        "trainer.max_completion_length=12", "algorithm.num_generations=4", "model.prime_from=sft")  # fmt: skip


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the fine-tuning stage that of the tests above: words of the trainer do not reach it."""
    compose = load.compose

    def shorter(given: Sequence[str], *, primary: str = "train") -> Any:
        return compose([*given, *(SFT if primary == "sft" else [])], primary=primary)

    monkeypatch.setattr(load, "compose", shorter)


def run_both(folder: Path, *words: str, stop_after: int | None = None, how: str = "file") -> tuple[int, str]:
    """Run as the command does, and ask the fine-tuning to stop behind a step; return exit code and what was printed."""

    class Stops(StopsItself):
        after = stop_after if how == "file" else None

        def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
            super().on_metrics(step, metrics)
            if how != "file" and step == stop_after and self._settings.sft is not None:
                os.kill(os.getpid(), signal.Signals[how])

    words = (*SMALL, *GRPO, f"output_dir={folder}", *words)
    console, out = a_console()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "MainObserver", Stops)
        code = sft_run.run_primed(build_request(load.compose(words), words), words, console)
    return code, out.getvalue()


@pytest.mark.usefixtures("short")
def test_stop_in_the_first_stage_ends_with_85_and_the_next_start_does_both(tmp_path: Path) -> None:
    code, text = run_both(tmp_path, stop_after=3, how="SIGUSR2")
    (tuned,) = [RunDirectory(path) for path in tmp_path.glob("sft-arithmetic/*")]
    assert code == ExitCode.RESUMABLE
    assert (result_of(tuned)["status"], result_of(tuned)["steps"]) == ("stopped", 3)
    assert "go on   the same command goes on from checkpoint-3" in text
    assert "fine-tuning that model.prime_from=sft asks for" in text
    assert not list(tmp_path.glob("grpo-arithmetic/*"))
    code, _ = run_both(tmp_path)
    assert code == ExitCode.COMPLETED
    assert (result_of(tuned)["status"], result_of(tuned)["steps"]) == ("completed", 6)
    assert [event["step"] for event in read_events(tuned) if event["kind"] == "resume"] == [3]
    (trained,) = [RunDirectory(path) for path in tmp_path.glob("grpo-arithmetic/*")]
    assert result_of(trained)["status"] == "completed"


@pytest.mark.usefixtures("short")
def test_minutes_are_those_of_both_stages_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were over before the first stage began: it stops before its first step, the second is not begun."""
    code, _ = run_both(tmp_path, "trainer.max_wall_minutes=1e-9")
    (tuned,) = [RunDirectory(path) for path in tmp_path.glob("sft-arithmetic/*")]
    assert code == ExitCode.RESUMABLE
    assert "trainer.max_wall_minutes=1e-09 are over" in result_of(tuned)["reason"]
    began: list[str | None] = []
    monkeypatch.setattr(sft_run, "run", lambda *_, **__: began.append(os.environ.get(sft_run.BEGAN_VARIABLE)) or 0)
    run_both(tmp_path)
    first, second = began
    assert first is not None
    assert first == second
    assert sft_run.BEGAN_VARIABLE not in os.environ


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR2"])
def test_signal_between_the_stages_is_a_stop(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker runs just then that could heed it; SIGTERM and SIGUSR2 would end the process without a word."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)}

    def done(request: RunRequest, console: Console, **_: Any) -> int:
        assert request.settings.sft is not None, "the second stage was begun"
        signal.raise_signal(signal.Signals[name])
        return 0

    monkeypatch.setattr(sft_run, "run", done)
    code, text = run_both(tmp_path)
    assert code == ExitCode.RESUMABLE
    assert "stopped on request while no worker was running; the same command goes on" in text
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "STOP"])
def test_request_that_finds_the_first_stage_just_done_is_a_stop_of_both(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curves are drawn behind the last look for a STOP file; the worker ends as completed, and took it away."""

    def ask(directory: RunDirectory, *_: Any) -> None:
        if name == "STOP":
            directory.stop_file.touch()
        else:
            signal.raise_signal(signal.Signals[name])

    monkeypatch.setattr(worker, "_draw", ask)
    code, text = run_both(tmp_path)
    (tuned,) = [RunDirectory(path) for path in tmp_path.glob("sft-arithmetic/*")]
    assert result_of(tuned)["status"] == "completed"
    assert code == ExitCode.RESUMABLE
    assert "the same command goes on to training" in text
    assert not list(tmp_path.glob("grpo-arithmetic/*"))
    monkeypatch.setattr(worker, "_draw", lambda *_: None)
    code, _ = run_both(tmp_path)
    assert code == ExitCode.COMPLETED
    assert len(list(tmp_path.glob("grpo-arithmetic/*"))) == 1


def test_both_stages_are_made_of_the_same_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that moved in between would bring rows that were learned into the held-out ones of the second stage."""
    words = (*(word for word in SMALL if not word.startswith("dataset")), *GRPO, f"output_dir={tmp_path}",
             "dataset=hub", "dataset.path=org/sums", "dataset.prompt_column=question", "dataset.target_column=answer",
             )  # fmt: skip
    commits = {"dataset.revision": "a" * 40}
    tuned = RunDirectory(sft_run.primed_folder(words))
    tuned.path.mkdir(parents=True)
    write_json(tuned.provenance, {"hub_commits": commits})
    looked_at: list[RunSettings] = []
    ran: list[RunRequest] = []
    monkeypatch.setattr(sft_run, "prepare", looked_at.append)
    monkeypatch.setattr(sft_run, "run", lambda request, console, **_: ran.append(request) or 0)
    sft_run.run_primed(build_request(load.compose(words), words), words, Console(quiet=True))
    (settings,), (_, second) = looked_at, ran
    assert settings.dataset.model_dump()["revision"] == "a" * 40
    assert second.commits == commits
    assert second.settings.dataset.model_dump()["revision"] is None  # the id of the run is that of its words


def test_words_about_time_and_checkpoints_reach_both_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[RunRequest] = []
    monkeypatch.setattr(sft_run, "run", lambda request, console, **_: found.append(request) or 0)
    words = [*SMALL, *GRPO, "trainer.max_wall_minutes=7", "++trainer.checkpoint.every_steps=3",
             "trainer.slurm_margin_minutes=2"]  # fmt: skip
    sft_run.prime_first(words, Console(quiet=True))
    trainer = found[0].settings.trainer
    assert (trainer.max_wall_minutes, trainer.slurm_margin_minutes) == (7, 2)
    assert (trainer.checkpoint.enabled, trainer.checkpoint.every_steps) == (True, 3)
    assert trainer.max_steps == 50  # that of sft.yaml


def test_a_stage_that_saves_nothing_says_so(tmp_path: Path) -> None:
    """With checkpoints off a stop loses what was done: 1 and not 85, as in a run of GRPO."""
    stopped = sft(tmp_path, "trainer.checkpoint.enabled=false", stop_after=2)
    assert (result_of(stopped)["exit_code"], result_of(stopped)["resumable"]) == (1, False)
    assert store_of(stopped).steps() == []
