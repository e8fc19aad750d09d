"""Results of evaluations are read whole, and a damaged one is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_exp.errors import DataError
from grpo_exp.evaluation.results import folder_of, measured_differently, read_results

METRICS = {"pass@1": {"value": 0.5, "interval": [0.4, 0.6]}}


def test_curves_are_in_order_of_steps_and_other_files_are_none(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "gsm8k")
    folder.path.mkdir(parents=True)
    for step in (10, 2):
        folder.result(step).write_text(json.dumps({"metrics": METRICS}))
    folder.curve.write_text("step,pass@1\n")
    (folder.path / "notes.json").write_text("mine")
    assert list(read_results(tmp_path)["gsm8k"]) == [2, 10]
    assert read_results(tmp_path / "nothing") == {}


@pytest.mark.parametrize("content", ["", '{"metrics": {"pass@1": {"val', "[]", '{"metrics": null}', "{}"])
def test_damaged_file_is_named_with_the_way_out(tmp_path: Path, content: str) -> None:
    folder = folder_of(tmp_path, "gsm8k")
    folder.path.mkdir(parents=True)
    folder.result(2).write_text(content)
    with pytest.raises(DataError, match=r"gsm8k/step_000002.json: .*damaged; take it away, or measure"):
        read_results(tmp_path)


def test_settings_that_the_steps_do_not_share_are_told() -> None:
    """Where and how it ran says nothing about what was measured."""
    first = {"num_samples": 4, "reward": {"primary": "correctness"}, "model": {"path": "a"}, "batch_size": 8}
    same = {**first, "model": {"path": "b"}, "batch_size": 16}
    assert measured_differently({0: {"settings": first}, 5: {"settings": same}}) == []
    other = {**same, "num_samples": 8, "reward": {"primary": "format"}}
    found = measured_differently({0: {"settings": first}, 5: {"settings": same}, 10: {"settings": other}})
    assert found == ["num_samples", "reward.primary"]
