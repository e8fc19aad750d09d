"""The array script on a real SLURM, with runs that sleep: ended, killed, requeued, and taken back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from grpo_exp.sweeps.operations import cancel
from grpo_exp.sweeps.slurm import launcher
from grpo_exp.sweeps.slurm.scheduler import SACCT_OPTIONS
from slurm.cluster import SlurmCluster
from slurm.stub_sweep import StubSweep

pytestmark = pytest.mark.slurm


def test_array_of_eight_survives_a_signal_a_kill_a_requeue_and_a_lost_node(slurm: SlurmCluster, tmp_path: Path) -> None:
    stub = StubSweep(tmp_path / "eight", 8)
    stub.behave(steps=24, seconds=0.25)
    (job,) = stub.start()
    slurm.wait_for(lambda: all(len(stub.steps(index)) >= 2 for index in range(8)), seconds=60, what="two steps of each")
    assert set(launcher.view(stub.sweep).values()) == {"RUNNING"}

    slurm.run("scancel", "--signal=USR2", "--batch", f"{job}_1")  # what SLURM does before the limit
    lost = slurm.node_of(job, 7)
    on_lost = [index for index in range(8) if slurm.node_of(job, index) == lost]
    killed, requeued = (index for index in (2, 3, 4) if index not in on_lost and index in {2, 3})
    slurm.run("scancel", "--signal=KILL", "--full", f"{job}_{killed}")
    slurm.run("scontrol", "requeue", f"{job}_{requeued}")
    slurm.run("scontrol", "update", f"NodeName={lost}", "State=DOWN", "Reason=test")
    # The node's daemon lives, so it ends what runs there: before that, nothing may start there again.
    slurm.wait_for(lambda: not slurm.has_steps(lost), seconds=60, what="the end of all processes on the lost node")
    assert {slurm.task_states(job)[index] for index in on_lost} == {"PENDING"}
    slurm.run("scontrol", "update", f"NodeName={lost}", "State=RESUME")
    stub.finish(slurm, [job], seconds=120)

    states = slurm.task_states(job)
    assert states == {index: "CANCELLED" if index == killed else "COMPLETED" for index in range(8)}
    again = {1, requeued, *on_lost}
    assert {index: slurm.restarts(job, index) for index in range(8)} == {
        index: int(index in again) for index in range(8)
    }
    assert len(stub.steps(killed)) < 24

    (second,) = stub.start()  # as `sweep resume` does
    stub.finish(slurm, [second], seconds=60)
    assert slurm.task_states(second) == {killed: "COMPLETED"}  # only that point was submitted again
    # 24 steps, each once and in order, however often the run was started.
    assert [stub.steps(index) for index in range(8)] == [list(range(1, 25))] * 8
    starts = {index: 2 if index in again | {killed} else 1 for index in range(8)}
    assert {index: len(stub.starts(index)) for index in range(8)} == starts
    # After a requeue the heartbeat of a lost node may still be fresh.
    assert stub.starts(1)[1]["words"] == [str(stub.sweep.path), "1", "--wait=150"]


def test_crash_loop_stops_at_the_cap_and_a_failed_run_is_not_requeued(slurm: SlurmCluster, tmp_path: Path) -> None:
    stub = StubSweep(tmp_path / "loop", 4)
    stub.behave(steps=2, seconds=0.1, ends_with={"0": 85, "1": 1, "2": 3})
    (job,) = stub.start(max_requeues=2)
    stub.finish(slurm, [job], seconds=120)
    assert [len(stub.starts(index)) for index in range(4)] == [3, 1, 1, 1]  # 1 start and 2 requeues
    assert slurm.task_states(job) == {0: "FAILED", 1: "FAILED", 2: "FAILED", 3: "COMPLETED"}
    assert "requeued 2 times and the cap is 2" in stub.log(job, 0)
    assert "exit code 1" in stub.log(job, 1)
    assert launcher.view(stub.sweep) == {0: "FAILED", 1: "FAILED", 2: "FAILED", 3: "COMPLETED"}
    # This SLURM keeps no accounts; what is asked is understood all the same.
    asked = subprocess.run(["sacct", *SACCT_OPTIONS, f"--jobs={job}"], capture_output=True, text=True, check=False)
    assert "storage is disabled" in asked.stderr


def test_cancel_leaves_nothing_running_and_nothing_waiting(slurm: SlurmCluster, tmp_path: Path) -> None:
    stub = StubSweep(tmp_path / "many", 8)
    stub.behave(steps=1000, seconds=0.2)
    jobs = stub.start(throttle=2, max_array_size=4)  # two jobs of four points, two at a time in each
    assert len(jobs) == 2
    slurm.wait_for(lambda: sum(bool(stub.steps(i)) for i in range(8)) == 4, seconds=60, what="four runs at work")
    view = launcher.view(stub.sweep)
    assert sorted(view.values()) == ["PENDING"] * 4 + ["RUNNING"] * 4

    done = cancel(stub.sweep, wait_seconds=30)

    assert (done.num_marked, done.num_running) == (8, 0)
    slurm.wait_until_idle(seconds=30)
    begun = [index for index in range(8) if stub.steps(index)]
    assert len(begun) == 4
    assert all(len(stub.starts(index)) == 1 for index in begun)  # saved with 85, and not requeued
    assert all(slurm.restarts(jobs[index // 4], index % 4) == 0 for index in begun)
    slurm.wait_until_clean()


def test_scancel_by_hand_is_not_undone_by_a_requeue(slurm: SlurmCluster, tmp_path: Path) -> None:
    stub = StubSweep(tmp_path / "byhand", 2)
    stub.behave(steps=40, seconds=0.2)
    (job,) = stub.start()
    slurm.wait_for(lambda: all(stub.steps(index) for index in range(2)), seconds=60, what="both at work")
    slurm.run("scancel", f"{job}_0")
    stub.finish(slurm, [job], seconds=60)
    assert slurm.task_states(job) == {0: "CANCELLED", 1: "COMPLETED"}
    assert "not requeued, since SLURM says" in stub.log(job, 0)


def test_names_arrive_at_slurm_as_they_were_typed(slurm: SlurmCluster, tmp_path: Path) -> None:
    name = 'it\'s $(touch x) "ünï" #1; `id`'
    stub = StubSweep(tmp_path / name / "sweep", 1)
    stub.behave(steps=1, seconds=0.1)
    (job,) = stub.start(job_name=name, time="0-1", sbatch_options=(f"--comment={name}",))
    stub.finish(slurm, [job], seconds=60)
    told = slurm.run("scontrol", "show", "job", job)
    assert f"JobName={name}\n" in told
    assert f"Comment={name} \n" in told or f"Comment={name}\n" in told
    assert "TimeLimit=01:00:00" in told
    assert "ended with exit code 0" in stub.log(job, 0)
    assert not [path for path in tmp_path.rglob("*") if path.name == "x"]


@pytest.mark.long  # SLURM's shortest limit is a minute
def test_run_that_is_longer_than_its_limit_is_saved_requeued_and_finished(slurm: SlurmCluster, tmp_path: Path) -> None:
    stub = StubSweep(tmp_path / "longer", 2)
    stub.behave(steps=320, seconds=0.25)  # 80 s
    (job,) = stub.start(time="00:01:00", signal_seconds=30)
    stub.finish(slurm, [job], seconds=300)
    assert slurm.task_states(job) == {0: "COMPLETED", 1: "COMPLETED"}
    for index in range(2):
        assert stub.steps(index) == list(range(1, 321))
        # SLURM may send its signal up to a minute early (sbatch(1)), so that a start may be short.
        assert slurm.restarts(job, index) == len(stub.starts(index)) - 1 >= 1
        assert "USR2: the run is asked to save and stop" in stub.log(job, index)
