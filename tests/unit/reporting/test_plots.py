"""The PNG of the curves exists, has content, and shows only what was measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from grpo_exp.reporting.plots import panels_of, plot_curves, smooth, to_curves
from grpo_exp.tracking.metrics_log import MetricsRecord

EVALUATION = {
    "before": {"accuracy": 0.4, "accuracy_interval": [0.35, 0.45], "greedy_accuracy": 0.5},
    "after": {"accuracy": 0.9, "accuracy_interval": [0.86, 0.93], "greedy_accuracy": 0.9},
}


def run_records(num_steps: int, *, with_kl: bool) -> list[MetricsRecord]:
    generator = np.random.default_rng(0)
    records: list[MetricsRecord] = [
        {"step": 0, "time": 0.0, "metrics": {"eval/accuracy": 0.4, "eval/greedy_accuracy": 0.5}}
    ]
    for step in range(1, num_steps + 1):
        share = step / num_steps
        noise = generator.normal(0, 0.02)
        metrics = {
            "train/reward": share + noise,
            "train/rewards/correctness/mean": share + noise,
            "train/rewards/format/mean": 0.9 + noise,
            "train/completion_length/mean": 12 + 3 * share,
            "train/completion_length/min": 5.0,
            "train/completion_length/max": 30.0,
            "train/entropy": 1 - share,
            "train/clip_ratio/low_mean": 0.01 * share,
            "train/clip_ratio/high_mean": 0.02 * share,
            "train/frac_reward_zero_std": 0.5 * share,
            "time/generate": 0.3,
            "time/reward": 0.02,
            "time/train": 0.2,
            "time/step": 0.53,
        }
        if with_kl:
            metrics["train/kl"] = 0.01 * share
        records.append({"step": step, "time": float(step), "metrics": metrics})
    records.append({"step": num_steps, "time": 0.0, "metrics": {"eval/accuracy": 0.9, "eval/greedy_accuracy": 0.9}})
    return records


@pytest.mark.parametrize("with_kl", [True, False])
def test_a_run_gives_a_picture_with_content(tmp_path: Path, *, with_kl: bool) -> None:
    path = tmp_path / "curves.png"
    plot_curves(run_records(60, with_kl=with_kl), path, "demo abc-s0", evaluation=EVALUATION)
    pixels = imread(path)
    height, width, _ = pixels.shape
    assert width > 1200
    assert height > 800
    # Not an empty sheet: many pixels are not white, and there are many colours.
    assert np.mean(pixels[..., :3].min(axis=-1) < 0.95) > 0.03
    assert len(np.unique(np.round(pixels[::4, ::4, :3] * 15).reshape(-1, 3), axis=0)) > 20


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    records: list[MetricsRecord] = [
        {"step": step, "time": 0.0, "metrics": {"train/reward": step / 7}} for step in range(9)
    ]
    for name in ("a.png", "b.png"):
        plot_curves(records, tmp_path / name, "demo")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize("num_records", [1, 2])
def test_a_run_that_has_just_begun_can_be_drawn(tmp_path: Path, num_records: int) -> None:
    path = tmp_path / "curves.png"
    plot_curves(run_records(60, with_kl=False)[:num_records], path, "demo")
    assert path.stat().st_size > 5000


def test_a_step_without_a_metric_is_left_out_of_its_curve() -> None:
    curves = to_curves(
        [
            {"step": 1, "time": 0.0, "metrics": {"a": 1.0, "b": 5.0}},
            {"step": 2, "time": 0.0, "metrics": {"b": 6.0}},
            {"step": 3, "time": 0.0, "metrics": {"a": 3.0}},
        ]
    )
    assert curves["a"][0].tolist() == [1, 3]
    assert curves["b"][1].tolist() == [5.0, 6.0]


def test_smoothing_is_a_centred_mean() -> None:
    # 45 values make a window of 1 + 2·int(45/15/2) = 3 values, at the ends 2.
    values = np.arange(45.0) ** 2
    smoothed = smooth(values)
    assert smoothed[10] == pytest.approx((81 + 100 + 121) / 3)
    assert smoothed[0] == pytest.approx((0 + 1) / 2)
    assert smoothed[44] == pytest.approx((43**2 + 44**2) / 2)
    assert smooth(np.array([3.0])).tolist() == [3.0]


def test_plots_need_neither_pyplot_nor_torch() -> None:
    code = "import sys, grpo_exp.reporting.plots;sys.exit(bool({'matplotlib.pyplot', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reward_panels_show_the_prompts_that_nobody_chose() -> None:
    """With dynamic sampling the kept groups are chosen because their rewards differ."""
    records = run_records(3, with_kl=False)
    for record in records[1:-1]:
        record["metrics"] |= {
            "train/dynamic_sampling/reward": 0.9,
            "train/dynamic_sampling/rewards/correctness/mean": 0.8,
            "train/dynamic_sampling/acceptance_rate": 0.5,
        }
    panels = {panel.title: panel for panel in panels_of(to_curves(records))}
    assert list(panels["Reward"].metrics) == ["train/dynamic_sampling/reward"]
    assert panels["Reward components"].metrics == {"train/dynamic_sampling/rewards/correctness/mean": "correctness"}
    assert "train/dynamic_sampling/acceptance_rate" in panels["Groups"].metrics
