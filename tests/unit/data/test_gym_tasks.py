"""Tasks of reasoning_gym, where the package is installed: made by a seed, judged by their own scorers."""

from __future__ import annotations

import pytest

from grpo_exp.data import gym_tasks
from grpo_exp.data.load import load_rows
from grpo_exp.errors import ConfigError, DataError
from grpo_exp.rewards.components import build_components
from grpo_exp.settings import load
from grpo_exp.settings.dataset import ReasoningGymDataset
from grpo_exp.settings.run import RunSettings

needs_package = pytest.mark.skipif(
    not gym_tasks.is_installed(), reason="needs reasoning_gym: pip install 'grpo-exp[reasoning_gym]'"
)


def settings(*words: str) -> RunSettings:
    sizes = ["dataset.train_size=20", "dataset.eval_size=6", "reward.engine.num_workers=1"]
    return load.to_settings(
        load.compose(["tracker=none", "dataset=reasoning_gym", "reward=reasoning_gym", *sizes, *words])
    )


@pytest.mark.long
@needs_package
def test_tasks_are_a_function_of_the_seed_and_train_shares_none_with_the_held_out_ones() -> None:
    made = [gym_tasks.load_gym_tasks(settings().dataset, seed) for seed in (0, 0, 1)]  # type: ignore[arg-type]
    assert made[0].fingerprint() == made[1].fingerprint() != made[2].fingerprint()
    train, held_out = ({row.question_key for row in rows} for rows in (made[0].train, made[0].evaluation))
    assert len(train) == len(made[0].train) <= 20
    assert len(made[0].evaluation) == 6
    assert not train & held_out
    assert made[0].train[0].prompt[0]["content"].startswith("Your task is to count how many legs")
    assert "between <answer> and </answer>" in made[0].train[0].prompt[0]["content"]


@pytest.mark.long
@needs_package
@pytest.mark.parametrize("task", ["leg_counting", "countdown", "basic_arithmetic"])
def test_own_answers_pass_the_check_and_are_paid_in_full(task: str) -> None:
    """A scorer gets the task as JSON brings it back; for these three the answer is worth 1 and `none` less."""
    run = settings(f"dataset.task={task}")
    data = load_rows(run.dataset, seed=0, reward=run.reward, model=None)
    assert not any("cannot judge" in reason for reason in data.dropped)
    component = build_components(run.reward)[0]
    rows = data.train[:3]
    columns = {"entry": [row.columns["entry"] for row in rows]}
    right = [f"<think>x</think><answer>{row.target}</answer>" for row in rows]
    assert [(s.value, s.reason) for s in component.score(right, columns)] == [(1.0, "match")] * 3
    wrong = component.score(["<answer>none</answer>", "<answer></answer>", "1"], columns)
    assert all(score.value is not None and score.value < 0.1 for score in wrong)
    assert [score.reason for score in wrong[1:]] == ["empty_answer", "no_answer_tag"]


@pytest.mark.long
@needs_package
def test_unknown_task_and_wrong_options_are_refused() -> None:
    with pytest.raises(DataError, match=r"dataset.task=leg_count: reasoning_gym has no such task; .*leg_counting"):
        load_rows(settings("dataset.task=leg_count").dataset, seed=0)
    with pytest.raises(DataError, match=r"cannot be made with dataset.options=\{'legs': 3\}"):
        load_rows(settings("+dataset.options.legs=3").dataset, seed=0)


def test_missing_package_is_told_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym_tasks, "is_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install 'grpo-exp\[reasoning_gym\]'"):
        gym_tasks.load_gym_tasks(ReasoningGymDataset(kind="reasoning_gym"), 0)


def test_seed_and_size_are_the_run_s() -> None:
    with pytest.raises(ConfigError, match=r"dataset.options: seed is decided by the run"):
        settings("+dataset.options.seed=3")
