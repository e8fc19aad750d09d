"""The last table tells what training changed, how sure that is, and where things are."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grpo_exp.reporting.summary import accuracy_interval, print_summary

RESULT: dict[str, Any] = {
    "status": "completed",
    "reason": "all steps done",
    "steps": 100,
    "wall_seconds": 141.2,
    "eval": {
        "before": {
            "num_prompts": 256,
            "num_samples": 4,
            "accuracy": 0.38,
            "accuracy_interval": [0.35, 0.41],
            "greedy_accuracy": 0.5,
            "rewards": {"correctness": 0.38, "format": 0.6},
            "completion_length": 14.24,
        },
        "after": {
            "num_prompts": 256,
            "num_samples": 4,
            "accuracy": 0.9,
            "accuracy_interval": [0.88, 0.92],
            "greedy_accuracy": 0.75,
            "rewards": {"correctness": 0.9, "format": 0.99},
            "completion_length": 17.4,
        },
    },
}


def printed(result: dict[str, Any], width: int = 100, **places: Any) -> str:
    out = io.StringIO()
    print_summary(result, Console(file=out, width=width), run_directory=Path("/runs/demo/abc-s0"), **places)
    return out.getvalue()


def row(text: str, title: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.strip().startswith(title)]
    return line.replace(title, "").split()


@pytest.mark.parametrize("width", [80, 140])
def test_before_and_after_stand_side_by_side(width: int) -> None:
    text = printed(RESULT, width)
    assert row(text, "sampled accuracy") == [
        "0.380",
        "0.350",
        "to",
        "0.410",
        "0.900",
        "0.880",
        "to",
        "0.920",
        "+0.520",
    ]
    # Greedy has no interval of its own here, so it is Wilson's for 128 and 192 of 256 (z² = 3.841459):
    # 0.5 ± 1.959964·sqrt(0.25/256 + z²/(4·256²)) / (1 + z²/256) = 0.5 ± 0.060797;
    # (0.75 + z²/512) / (1 + z²/256) ± … = 0.746303 ± 0.052781.
    assert row(text, "greedy accuracy") == [
        "0.500",
        "0.439",
        "to",
        "0.561",
        "0.750",
        "0.694",
        "to",
        "0.799",
        "+0.250",
    ]
    assert row(text, "reward: format") == ["0.600", "0.990", "+0.390"]
    assert row(text, "length in tokens") == ["14.2", "17.4", "+3.2"]
    assert "256 prompts, 4 samples each; ranges are 95 % intervals" in text


def test_paths_and_commands_can_be_copied_from_a_narrow_terminal() -> None:
    command = "mlflow ui --backend-store-uri sqlite:////a/rather/long/path/to/the/outputs/mlflow.db"
    page = "python -m webbrowser https://wandb.example.org/team/grpo_exp/runs/0a1b2c3d-s0-11112222"
    picture = Path("/runs/demo/abc-s0/plots/curves.png")
    text = printed(RESULT, 80, plot_path=picture, open_commands=[command, page])
    lines = [line.strip() for line in text.splitlines()]
    assert "Completed after 100 steps in 2:21: all steps done" in lines
    assert "run     /runs/demo/abc-s0" in lines
    assert "curves  /runs/demo/abc-s0/plots/curves.png" in lines
    assert f"open    {command}" in lines
    assert f"open    {page}" in lines


def test_a_run_without_evaluation_has_no_table() -> None:
    failed = {"status": "failed", "reason": "worker died", "steps": 0, "wall_seconds": 3.0, "eval": {}}
    text = printed(failed)
    assert text.splitlines()[0] == "Failed after 0 steps in 0:03: worker died"
    assert "accuracy" not in text


def test_what_is_unknown_is_a_dash() -> None:
    result = {**RESULT, "eval": {"before": RESULT["eval"]["before"], "after": None}}
    assert row(printed(result), "sampled accuracy") == ["0.380", "0.350", "to", "0.410", "-", "-"]


def test_there_is_no_interval_without_counts_or_for_what_is_no_share() -> None:
    assert accuracy_interval({"accuracy": 0.5}, "accuracy") is None
    assert accuracy_interval({"accuracy": -0.5, "num_prompts": 10}, "accuracy") is None
    assert accuracy_interval({}, "greedy_accuracy") is None
