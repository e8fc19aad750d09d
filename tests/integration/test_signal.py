"""The predicted share of groups with a learning signal, held against what a run then logs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from grpo_exp.rundir import RunDirectory
from grpo_exp.tracking.metrics_log import read_metrics
from integration.command import only_run, run_command, run_train

STEPS = 4


@pytest.mark.long
@pytest.mark.parametrize("max_operand", [9, 29, 59])
def test_prediction_is_within_five_hundredths_of_the_run(max_operand: int, tmp_path: Path) -> None:
    """Sums to 9 + 9 are easy for the built-in policy, those to 59 + 59 mostly beyond it.

    512 prompts x 16 samples predict; 4 steps of 256 groups of 8 are logged, while the policy has hardly moved. The
    standard error of both together is about sqrt(0.25/1024 + 0.1/512) = 0.02.
    """
    words = ["reward=math_only", f"dataset.max_operand={max_operand}", "tracker=none", "algorithm.num_generations=8",
             "dataset.eval_size=4"]  # fmt: skip
    command = (
        sys.executable,
        "-m",
        "grpo_exp",
        "check",
        "--signal",
        "--prompts=512",
        "--samples=16",
        "--sizes=8",
        *words,
    )
    checked = run_command(*command, cwd=tmp_path, timeout=300)
    assert checked.code == 0, checked.output
    (predicted,) = re.findall(r"<- algorithm.num_generations\s+\d\.\d+ ± \d\.\d+\s+(\d\.\d+)", checked.output)
    run = run_train(
        *words, "trainer.prompts_per_step=256", f"trainer.max_steps={STEPS}", "trainer.learning_rate=1e-7",
        "trainer.eval_before=false", cwd=tmp_path, timeout=600,
    )  # fmt: skip
    assert run.code == 0, run.output
    records = read_metrics(RunDirectory(only_run(tmp_path / "outputs")).metrics)
    shares = [
        1 - m["train/frac_reward_zero_std"] for r in records if "train/frac_reward_zero_std" in (m := r["metrics"])
    ]
    assert len(shares) == STEPS
    assert float(predicted) == pytest.approx(sum(shares) / STEPS, abs=0.05)
