"""Ports come from the ids of job and task, or from the run, and are probed."""

from __future__ import annotations

import itertools
import socket

import pytest

from grpo_exp import ports
from grpo_exp.errors import RunError
from grpo_exp.ports import COUNT, FIRST, candidates, find_ports, ids_of_job, is_free


def task(job: int, index: int) -> tuple[str, ...]:
    return ids_of_job({"SLURM_ARRAY_JOB_ID": str(job), "SLURM_ARRAY_TASK_ID": str(index)})


def test_tasks_of_one_job_look_in_different_places() -> None:
    firsts = [next(candidates("main", task(7, index))) for index in range(100)]
    # 100 of 12,000 at random: 99 * 100 / 2 / 12000 = 0.4 pairs are expected to meet.
    assert len(set(firsts)) >= 97
    assert all(FIRST <= port < FIRST + COUNT for port in firsts)


def test_same_task_looks_in_the_same_place_for_each_name() -> None:
    assert next(candidates("main", task(7, 1))) == next(candidates("main", task(7, 1)))
    assert next(candidates("main", task(7, 1))) != next(candidates("server", task(7, 1)))
    assert next(candidates("main", task(8, 1))) != next(candidates("main", task(7, 1)))


def test_port_in_use_is_passed_over() -> None:
    first, second = itertools.islice((port for port in candidates("main", task(7, 1)) if is_free(port)), 2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))  # on one interface only
        taken.listen()
        assert not is_free(first)
        assert find_ports(["main"], task(7, 1)) == [second]
    assert find_ports(["main"], task(7, 1)) == [first]


def test_ports_of_one_call_differ() -> None:
    found = find_ports(["main"] * 3, task(7, 1))
    assert len(set(found)) == 3


def test_no_free_port_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(RunError, match="20000 to 31999"):
        find_ports(["main"], [])
