"""Ends that nobody planned: Ctrl-C, lost processes, broken updates. Each leaves a result and no process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.checkpoints.store import CheckpointStore
from integration.command import QUICK_MODEL, only_run, run_command, run_train, wait_for


def start_train(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "grpo_exp.train", *words],
        cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def children_of(run: Path) -> list[int]:
    """Return processes that name the run's folder in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(run).encode() in line:
                found.append(int(entry.name))
    return found


def wait_for_steps(folder: Path, count: int, *, below: str = "outputs") -> Path:
    def has_steps() -> bool:
        files = list(folder.glob(f"{below}/*/*/metrics.jsonl"))
        return bool(files) and files[0].read_bytes().count(b"train/loss") >= count

    wait_for(has_steps, seconds=120, what=f"{count} steps")
    return only_run(folder / below)


LONG_RUN = ("experiment=smoke", "trainer.max_steps=5000", "tracker=none", *QUICK_MODEL)


def test_ctrl_c_stops_after_the_step_and_leaves_no_process(tmp_path: Path) -> None:
    process = start_train(*LONG_RUN, cwd=tmp_path)
    run = wait_for_steps(tmp_path, 2)
    assert children_of(run)
    second = run_train(*LONG_RUN, cwd=tmp_path)
    assert second.code == 2
    assert "this run is going on" in second.output
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    result: dict[str, Any] = json.loads((run / "result.json").read_text())
    assert result["status"] == "stopped"
    assert 2 <= result["steps"] < 5000
    assert process.returncode == 85
    assert result["resumable"] is True
    assert f"the same command goes on from checkpoint-{result['steps']}" in output
    assert CheckpointStore(run / "checkpoints").read(result["steps"]).step == result["steps"]
    assert "stopping after this step" in output
    assert "Traceback" not in output
    assert not children_of(run)
    assert not (run / "lock.json").exists()
    assert not (run / "STOP").exists()


@pytest.mark.long
def test_ctrl_c_in_a_multirun_starts_no_further_run(tmp_path: Path) -> None:
    process = start_train("--multirun", "seed=0,1", *LONG_RUN, cwd=tmp_path)
    run = wait_for_steps(tmp_path, 2, below="outputs/sweeps")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 85
    assert json.loads((run / "result.json").read_text())["status"] == "stopped"
    assert "2 runs: 1 stopped, 1 missing" in output
    assert "Traceback" not in output
    assert not children_of(run)
    assert only_run(tmp_path / "outputs" / "sweeps") == run


@pytest.mark.long
def test_ctrl_c_under_accelerate_launch_stops_after_the_step(tmp_path: Path) -> None:
    """A terminal sends the signal to the launcher and to its workers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "-m", "grpo_exp.train",
         *LONG_RUN],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    run = wait_for_steps(tmp_path, 2)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    wait_for(lambda: (run / "result.json").exists(), seconds=60, what="a result")
    assert json.loads((run / "result.json").read_text())["status"] == "stopped"
    wait_for(lambda: not (run / "lock.json").exists(), seconds=10, what="the release of the run")


@pytest.mark.long
def test_a_worker_that_fails_is_reported_with_its_reason(tmp_path: Path) -> None:
    """Weights that are cut short are found by the worker; the front end hands its reason on, and the log."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen2"}')
    (tmp_path / "model" / "model.safetensors").write_bytes(b"cut")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    finished = run_train("model=local", "model.path=model", "experiment=smoke", "tracker=none", cwd=tmp_path)
    assert finished.code == 2, finished.output
    result = json.loads((only_run(tmp_path / "outputs") / "result.json").read_text())
    assert result["status"] == "failed"
    assert result["reason"].partition(":")[0] in finished.output
    assert "worker.log" in finished.output
    assert "Traceback" not in finished.output


@pytest.mark.long
def test_a_reward_that_raises_on_one_process_ends_all_of_them(tmp_path: Path) -> None:
    """The second process fails while the first one would wait for it; both end, and the reason is told."""
    (tmp_path / "mine.py").write_text(
        "import os\n"
        "def brevity(prompts, completions, **columns):\n"
        "    if os.environ['RANK'] == '1':\n"
        "        raise RuntimeError('no brevity here')\n"
        "    return [0.0] * len(completions)\n"
    )
    finished = run_train(
        "experiment=smoke", "tracker=none", "launch=ddp", "trainer.eval_before=false", *QUICK_MODEL,
        "+reward.components.mine={kind: python, function: 'mine:brevity'}", cwd=tmp_path,
    )  # fmt: skip
    assert finished.code == 1
    assert "no brevity here" in finished.output
    log = next(tmp_path.glob("outputs/*/*/logs/attempt-1/worker.log")).read_text()
    assert "in brevity" in log  # the traceback, with the user's line
    assert not children_of(only_run(tmp_path / "outputs"))


@pytest.mark.long
def test_a_lost_front_end_stops_the_workers_and_the_run_can_start_again(tmp_path: Path) -> None:
    process = start_train(*LONG_RUN, cwd=tmp_path)
    run = wait_for_steps(tmp_path, 1)
    process.kill()
    process.communicate()
    wait_for(lambda: not children_of(run), seconds=60, what="the end of the workers")
    assert (run / "lock.json").exists()  # nobody was left to remove it
    again = start_train(*LONG_RUN, cwd=tmp_path)
    wait_for(lambda: bool(children_of(run)), seconds=30, what="the second attempt")
    again.send_signal(signal.SIGINT)
    again.communicate(timeout=120)
    assert not children_of(run)
    # The workers of the first one have saved before they ended.
    assert "goes on from checkpoint-" in (run / "events.jsonl").read_text()


@pytest.mark.long
def test_killed_workers_leave_a_result_and_no_traceback(tmp_path: Path) -> None:
    """As after an out-of-memory kill: the front end writes how far the run came, and that nobody said why."""
    process = start_train(*LONG_RUN, cwd=tmp_path)
    run = wait_for_steps(tmp_path, 2)
    for number in children_of(run):
        os.kill(number, signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in output
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["steps"] >= 2) == ("failed", True)
    assert "SIGKILL" in result["reason"] or "killed, or out of memory" in result["reason"]
    assert "subprocess." not in result["reason"]
    shown = run_command(sys.executable, "-m", "grpo_exp", "show", str(run), cwd=tmp_path)
    assert shown.code == 0
    assert "Traceback" not in shown.output


@pytest.mark.long
def test_ctrl_c_while_priming_stops(tmp_path: Path) -> None:
    """Priming for 5000 steps would take minutes; one Ctrl-C ends it after the current step, with a result."""
    words = (*LONG_RUN, "model.priming.steps=5000")
    process = start_train(*words, cwd=tmp_path)
    wait_for(
        lambda: any("priming" in p.read_text() for p in tmp_path.glob("outputs/*/*/status.json")),
        seconds=120,
        what="priming",
    )
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 85  # no step has been done, so nothing is lost
    assert "Traceback" not in output
    assert "the same command begins with the first step" in output
    assert json.loads((only_run(tmp_path / "outputs") / "result.json").read_text())["status"] == "stopped"


@pytest.mark.long
def test_a_broken_update_ends_the_run_with_exit_code_3(tmp_path: Path) -> None:
    """A weight of 1e38 on the format overflows the gradient's norm in 32 bits; the rule ends the run at that step."""
    done = run_train(
        "algorithm=dr_grpo", "experiment=smoke", "tracker=none", "launch=inline", *QUICK_MODEL,
        "reward.components.format.weight=1e38", "trainer.max_steps=3", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 3, done.output
    assert "not finite: the update is broken" in done.output
    assert "try: lower trainer.learning_rate" in done.output
    result = json.loads((only_run(tmp_path / "outputs") / "result.json").read_text())
    assert (result["exit_code"], result["resumable"]) == (3, False)
    assert result["reason"].startswith("health.rules.not_finite: ")


# ------------------------------------------------------------------------------------------ signals to others


def ranks_of(run: Path) -> list[int]:
    """Return the worker processes of a run, without the launcher that has their command line, too."""
    return [
        pid
        for pid in children_of(run)
        if b"accelerate.commands" not in (Path("/proc") / str(pid) / "cmdline").read_bytes()
    ]


def launcher_of(run: Path) -> int:
    (number,) = set(children_of(run)) - set(ranks_of(run))
    return number


def signalled(tmp_path: Path, whom: str, *words: str) -> tuple[int, dict[str, Any], Path]:
    """Send SIGTERM behind the second step; return exit code, result and the run's folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "grpo_exp.train", *LONG_RUN, *words],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    run = wait_for_steps(tmp_path, 2)
    if whom == "group":
        os.killpg(process.pid, signal.SIGTERM)
    else:
        one = {
            "front end": lambda: process.pid,
            "rank": lambda: ranks_of(run)[-1],
            "launcher": lambda: launcher_of(run),
        }
        os.kill(one[whom](), signal.SIGTERM)
    output, _ = process.communicate(timeout=90)
    assert "Traceback" not in output
    wait_for(lambda: not children_of(run), seconds=10, what="the end of all processes")
    return process.returncode, json.loads((run / "result.json").read_text()), run


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("launch=ddp", "launch.num_processes=2")], ids=["one", "two"])
@pytest.mark.parametrize("whom", ["front end", "group", "rank", "launcher"])
def test_sigterm_saves_and_ends_with_85_whoever_gets_it(whom: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """Even the launcher, which ends its workers 30 s later: a step and a save of this model take less than one."""
    code, result, run = signalled(tmp_path, whom, *words)
    assert (code, result["status"], result["resumable"]) == (85, "stopped", True)
    assert CheckpointStore(run / "checkpoints").read(result["steps"]).step == result["steps"]


@pytest.mark.long
def test_sigterm_in_the_fine_tuning_stage_goes_on_there(tmp_path: Path) -> None:
    """With real workers: 85, a checkpoint, and the same command ends both stages."""
    words = ("experiment=smoke", "tracker=none", "model.prime_from=sft", "trainer.checkpoint.every_steps=1",
             "dataset.eval_size=4", *QUICK_MODEL)  # fmt: skip
    process = start_train(*words, cwd=tmp_path)
    run = wait_for_steps(tmp_path, 2)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=90)
    result = json.loads((run / "result.json").read_text())
    assert (process.returncode, result["status"], result["resumable"]) == (85, "stopped", True), output
    assert CheckpointStore(run / "checkpoints").read(result["steps"]).step == result["steps"]
    assert not children_of(run)
    again = run_train(*words, cwd=tmp_path)
    assert again.code == 0, again.output
    assert f"attempt 2 goes on from checkpoint-{result['steps']}" in again.output
    assert json.loads((run / "result.json").read_text())["status"] == "completed"
    (trained,) = [path for path in tmp_path.glob("outputs/*/*/result.json") if path.parent != run]
    assert json.loads(trained.read_text())["status"] == "completed"


@pytest.mark.long
def test_minutes_that_are_over_end_a_run_as_a_signal_does(tmp_path: Path) -> None:
    """0.001 minutes are over before the first step has ended."""
    done = run_train(*LONG_RUN, "trainer.max_wall_minutes=0.001", "trainer.eval_before=false", cwd=tmp_path)
    result = json.loads((only_run(tmp_path / "outputs") / "result.json").read_text())
    assert done.code == 85, done.output
    assert result["reason"] == "trainer.max_wall_minutes=0.001 are over"
