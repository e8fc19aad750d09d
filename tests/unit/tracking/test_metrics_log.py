"""metrics.jsonl holds what was measured, is always valid JSON, and survives a crash."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from grpo_exp.tracking.metrics_log import MetricsLog, last_per_step, read_metrics


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        written = log.append(3, {"train/reward": 0.25, "train/längen": 2}, 1700000000.5)
    expected = {"step": 3, "time": 1700000000.5, "metrics": {"train/reward": 0.25, "train/längen": 2.0}}
    assert written == expected
    assert read_metrics(path) == [expected]


def test_each_record_is_on_disk_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for step in range(3):
        log.append(step, {"a": step}, 0.0)
        assert len(read_metrics(path)) == step + 1
    log.close()


def test_values_that_json_does_not_have_are_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append(1, {"a": float("nan"), "b": float("inf"), "c": 1.0, "d": float("-inf")}, 0.0)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    record = json.loads(path.read_text(), parse_constant=refuse)
    assert record["metrics"] == {"c": 1.0}
    assert record["non_finite"] == ["a", "b", "d"]


def test_none_is_absent_and_other_things_are_named_instead_of_raising(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        values = {"none": None, "list": [1], "text": "5", "array": np.ones(2), "scalar": np.float32(0.5)}
        record = log.append(1, values, 0.0)
    assert record["metrics"] == {"scalar": 0.5}
    assert "non_finite" not in record
    assert record.get("not_numbers") == ["list", "text", "array"]


def test_a_line_that_a_crash_cut_is_left_out_and_the_next_attempt_starts_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append(1, {"a": 1.0}, 0.0)
        log.append(2, {"a": 2.0}, 0.0)
    path.write_bytes(path.read_bytes()[:-9])
    assert [record["step"] for record in read_metrics(path)] == [1]
    with MetricsLog(path) as log:
        log.append(2, {"a": 3.0}, 0.0)
    assert [record["metrics"] for record in read_metrics(path)] == [{"a": 1.0}, {"a": 3.0}]


def test_what_was_measured_last_counts_for_a_step(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        records = [
            log.append(1, {"a": 1.0, "b": 1.0}, 10.0),
            log.append(2, {"a": 2.0}, 11.0),
            log.append(1, {"a": 9.0}, 12.0),
        ]
    assert last_per_step(records) == [
        {"step": 1, "time": 12.0, "metrics": {"a": 9.0, "b": 1.0}},
        {"step": 2, "time": 11.0, "metrics": {"a": 2.0}},
    ]
