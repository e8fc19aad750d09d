"""TensorBoard's own reader finds exactly the records, in 32-bit floats."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.tracking.tables import CompletionsTable
from grpo_exp.tracking.tensorboard_tracker import TensorboardRunTracker
from grpo_exp.tracking.tracker import RunInfo


def build(folder: Path) -> TensorboardRunTracker:
    return TensorboardRunTracker(folder / "tensorboard", shown=folder)


def info(folder: Path, **fields: Any) -> RunInfo:
    return RunInfo("demo", "abc-s0", {}, folder, tags={"group": "g"}, **fields)


def read(folder: Path) -> tuple[dict[str, list[tuple[int, float, float]]], dict[str, str]]:
    """Return (step, time, value) of every curve, and every text."""
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    runs = EventMultiplexer(size_guidance={"scalars": 0, "tensors": 0}).AddRunsFromDirectory(str(folder))
    runs.Reload()
    tags = runs.GetAccumulator("tensorboard").Tags()
    curves = {
        tag: [(e.step, e.wall_time, e.value) for e in runs.Scalars("tensorboard", tag)] for tag in tags["scalars"]
    }
    texts = {
        tag: runs.Tensors("tensorboard", tag)[-1].tensor_proto.string_val[0].decode()
        for tag in tags["tensors"]
    }  # fmt: skip
    return curves, texts


def as_float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def test_curves_settings_findings_and_status_are_there(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    (tmp_path / "curves.png").write_bytes(b"no text")
    tracker = build(tmp_path)
    tracker.start(info(tmp_path))
    tracker.add_file(tmp_path / "config.yaml")
    tracker.add_file(tmp_path / "curves.png")
    tracker.log([{"step": 1, "time": 10.5, "metrics": {"val/pass@1": 0.1}}])
    tracker.log([{"step": 2, "time": 11.5, "metrics": {"val/pass@1": 0.2, "train/kl": 1e-9}}])
    tracker.alert({"kind": "warning", "rule": "dead_groups", "step": 2, "text": "no gradient"})
    tracker.add_table(CompletionsTable("train_000010", "train", 10, ["prompt"], [["1+1"]]))
    tracker.finish("completed", 12.0)
    curves, texts = read(tmp_path)
    assert curves == {
        "val/pass@1": [(1, 10.5, as_float32(0.1)), (2, 11.5, as_float32(0.2))],
        "train/kl": [(2, 11.5, as_float32(1e-9))],
    }
    assert texts == {
        "run/tags": "demo/abc-s0\n\n- group: g",
        "run/config": "    seed: 0\n",
        "health/dead_groups": "**warning**: no gradient",
        "run/status": "completed",
    }


def test_the_next_attempt_goes_on_and_forgetting_starts_anew(tmp_path: Path) -> None:
    first = build(tmp_path)
    ids = first.start(info(tmp_path))
    first.log([{"step": 1, "time": 1.0, "metrics": {"a": 1.0}}])
    first.finish("killed", 9.0)
    second = build(tmp_path)
    assert second.start(info(tmp_path, previous_ids=ids)) == ids
    second.log([{"step": 2, "time": 2.0, "metrics": {"a": 2.0}}])
    second.finish("stopped", 9.0)
    assert read(tmp_path)[0] == {"a": [(1, 1.0, 1.0), (2, 2.0, 2.0)]}
    third = build(tmp_path)
    third.start(info(tmp_path, previous_ids=ids))
    assert third.forget()
    third.log([{"step": 1, "time": 3.0, "metrics": {"a": 5.0}}])
    third.finish(None, 9.0)
    assert read(tmp_path) == ({"a": [(1, 3.0, 5.0)]}, {"run/tags": "demo/abc-s0\n\n- group: g"})


def test_ids_of_files_that_are_gone_start_anew(tmp_path: Path) -> None:
    tracker = build(tmp_path)
    assert tracker.start(info(tmp_path, previous_ids={"begun": "1.0"})) != {"begun": "1.0"}
    tracker.finish(None, 9.0)


@pytest.mark.parametrize("status", [None, "failed"])
def test_finishing_a_run_that_never_started_does_nothing(status: Any, tmp_path: Path) -> None:
    build(tmp_path).finish(status, 9.0)
    assert list(tmp_path.iterdir()) == []
