"""The main claim, at full length: the default command makes the built-in policy better at sums it never saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration.command import only_run, run_train


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("algorithm", "target"), [("dapo", 0.85), ("grpo", 0.80), ("dr_grpo", 0.80)])
def test_held_out_accuracy_rises(algorithm: str, target: float, seed: int, tmp_path: Path) -> None:
    """From below 0.5 to the target, over 200 unseen problems x 4 samples at the training temperature."""
    threads = {"OMP_NUM_THREADS": "2"}  # a test that is alone may use the cores of a small machine
    done = run_train(
        f"algorithm={algorithm}", "reward=math", f"seed={seed}", "tracker=none", cwd=tmp_path, env=threads, timeout=900
    )
    assert done.code == 0, done.output
    evaluation = json.loads((only_run(tmp_path / "outputs") / "result.json").read_text())["eval"]
    assert (evaluation["after"]["num_prompts"], evaluation["after"]["num_samples"]) == (200, 4)
    assert evaluation["before"]["accuracy"] < 0.5
    assert evaluation["after"]["accuracy"] >= target
