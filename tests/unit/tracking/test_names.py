"""Names are cleaned per backend, by their text alone, and never fall together."""

from __future__ import annotations

import json
import posixpath
import re
from itertools import combinations
from pathlib import Path

import pytest

from grpo_exp.tracking.names import Backend, to_backend_name

CASES = [json.loads(line) for line in (Path(__file__).parents[2] / "cases" / "tracker.jsonl").read_text().splitlines()]
MLFLOW_NAMES = [case["input"]["metric_name"] for case in CASES if "metric_name" in case["input"]]
OURS = [
    "train/reward",
    "train/rewards/correctness/mean",
    "train/clip_ratio/low_mean",
    "train/completion_length/truncated_fraction",
    "eval/greedy_accuracy",
    "time/step",
]
AWKWARD = [
    *MLFLOW_NAMES,
    "pass@1",
    "pass#1",
    "pass_at_1",
    "pass_1",
    "",
    ".",
    "a/",
    "a /b",
    "x" * 300,
    "a\n",
    "_step",
]


def mlflow_accepts(name: str) -> bool:
    """MLflow's rule, from its documentation: the characters, and a path that names itself."""
    is_path = posixpath.normpath(name) == name and not name.startswith(("/", ".."))
    return re.fullmatch(r"[/\w.\- :]+", name) is not None and is_path and name != "." and len(name) <= 250


@pytest.mark.parametrize("backend", ["mlflow", "wandb", "tensorboard"])
@pytest.mark.parametrize("name", OURS)
def test_our_own_names_stay(name: str, backend: Backend) -> None:
    assert to_backend_name(name, backend) == name


@pytest.mark.parametrize("name", AWKWARD)
def test_mlflow_accepts_every_cleaned_name(name: str) -> None:
    assert mlflow_accepts(to_backend_name(name, "mlflow"))


def test_cases_with_expected_ok_stay() -> None:
    for case in CASES:
        if case["expected"] == "logged as is":
            assert to_backend_name(case["input"]["metric_name"], "mlflow") == case["input"]["metric_name"]


@pytest.mark.parametrize("backend", ["mlflow", "wandb", "tensorboard"])
def test_no_two_names_fall_together(backend: Backend) -> None:
    names = [*OURS, *AWKWARD]
    names += [to_backend_name(name, backend) for name in AWKWARD]
    for left, right in combinations(dict.fromkeys(names), 2):
        assert to_backend_name(left, backend) != to_backend_name(right, backend), (left, right)


def test_a_cleaned_name_is_readable() -> None:
    assert re.fullmatch(r"val/pass_at_8-[0-9a-f]{6}", to_backend_name("val/pass@8", "mlflow"))
    assert re.fullmatch(r"a/b-[0-9a-f]{6}", to_backend_name("/a//b", "mlflow"))


def test_tensorboard_takes_any_text_but_control_characters() -> None:
    assert to_backend_name("val/pass@8 (%)", "tensorboard") == "val/pass@8 (%)"
    assert re.fullmatch(r"a_b-[0-9a-f]{6}", to_backend_name("a\nb", "tensorboard"))


def test_wandb_keeps_what_it_takes_and_not_its_own_names() -> None:
    assert to_backend_name("val/pass@8", "wandb") == "val/pass@8"
    assert re.fullmatch(r"step-[0-9a-f]{6}", to_backend_name("_step", "wandb"))
