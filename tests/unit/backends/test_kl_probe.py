"""KL from the initial policy: the estimate by hand, when it is logged, and that training does not notice it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from grpo_exp.backends.trl.kl_probe import KlProbe
from parity import real_trainer
from parity.one_step import LENGTHS, TRUNCATED, N, Policies, build, inputs, move, policies
from unit.backends.test_training_run import Recorder, train

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

Build = Callable[..., Any]


@pytest.fixture(scope="module")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("policy")
    real_trainer.save_policy(folder)
    return folder


@pytest.fixture(scope="module")
def found(policy_folder: Path) -> Policies:
    return policies(policy_folder)


@pytest.fixture
def probed(policy_folder: Path, tmp_path: Path) -> Build:
    """Return `probed(completions, preset)`: a trainer whose probe has seen the 12 completions of `one_step`."""

    def make(completions: int = N, preset: str = "grpo") -> Any:
        trainer = build(policy_folder, tmp_path, preset, micro_batch=4)
        trainer.kl_probe = KlProbe(trainer, completions=completions, every_steps=1)
        trainer._generate_and_score_completions(inputs())
        return trainer

    return make


def by_hand(found: Policies, rows: list[int]) -> float:
    """Mean over the tokens of these rows of r - 1 - log r, r = policy after the move / initial policy."""
    tokens = [(row, t) for row in rows for t in range(LENGTHS[row])]
    log_r = np.array([(found.policy[1] - found.old)[row, t].item() for row, t in tokens])
    return float(np.mean(np.exp(log_r) - 1 - log_r))


def test_policy_that_has_not_moved_is_at_exactly_0(probed: Build) -> None:
    assert probed().kl_probe.measure() == 0.0


@pytest.mark.parametrize(
    ("completions", "rows"),
    [(12, list(range(12))), (100, list(range(12))), (3, [0, 4, 8]), (5, [0, 2, 4, 7, 9]), (1, [0])],
)
def test_estimate_is_k3_over_the_tokens_of_rows_from_all_groups(
    completions: int, rows: list[int], probed: Build, found: Policies
) -> None:
    """Of 12 rows in groups of 4, 3 are one of each group; k of them are floor(12 i / k)."""
    trainer = probed(completions)
    move(trainer.model, 1)
    assert trainer.kl_probe.measure() == pytest.approx(by_hand(found, rows), rel=1e-5)
    assert by_hand(found, rows) > 0.01


def test_completions_that_the_loss_leaves_out_are_measured(probed: Build, found: Policies) -> None:
    """DAPO filters rows 2, 5 and 10 out; they are the initial policy's words like all others."""
    trainer = probed(12, "dapo")
    batch = trainer._generate_and_score_completions(inputs())
    assert batch["completion_mask"].sum(1)[list(TRUNCATED)].tolist() == [0, 0, 0]
    move(trainer.model, 1)
    assert trainer.kl_probe.measure() == pytest.approx(by_hand(found, list(range(12))), rel=1e-5)


def test_only_the_first_batch_is_kept(probed: Build, found: Policies) -> None:
    """Otherwise the start would move along, and the KL be 0 for ever."""
    trainer = probed()
    move(trainer.model, 1)
    trainer._generate_and_score_completions(inputs())
    assert trainer.kl_probe.measure() > 0.01


def test_batch_of_a_policy_that_has_moved_is_no_start(policy_folder: Path, tmp_path: Path) -> None:
    """After a resume without the probe's state there is no start: the value is absent, not a small number."""
    trainer = build(policy_folder, tmp_path, "grpo", micro_batch=12)
    trainer.kl_probe = KlProbe(trainer, completions=4, every_steps=1)
    trainer.state.global_step = 5
    trainer._generate_and_score_completions(inputs())
    assert trainer.kl_probe.measure() is None
    assert trainer.kl_probe.state_dict() == {}
    trainer.state.max_steps = 6
    trainer._metrics["train"].clear()
    trainer.kl_probe.on_step_end(trainer.args, trainer.state, trainer.control)
    assert "kl_from_start" not in trainer._metrics["train"]


def test_neither_dropout_nor_random_numbers(probed: Build) -> None:
    """With dropout two measurements would differ, and a draw would change all rollouts after it."""
    trainer = probed()
    for layer in trainer.model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    before = torch.get_rng_state()
    assert trainer.kl_probe.measure() == trainer.kl_probe.measure() == 0.0
    assert torch.equal(torch.get_rng_state(), before)
    assert trainer.model.training


def test_state_survives_a_file(probed: Build, policy_folder: Path, tmp_path: Path) -> None:
    """What was kept by one process is taken over by the next one, whatever batches it sees."""
    trainer = probed(5)
    move(trainer.model, 1)
    torch.save(trainer.kl_probe.state_dict(), tmp_path / "probe.pt")

    other = build(policy_folder, tmp_path, "grpo", micro_batch=4)
    move(other.model, 1)
    other.kl_probe = KlProbe(other, completions=12, every_steps=1)
    other.kl_probe.load_state_dict(torch.load(tmp_path / "probe.pt"))
    other._generate_and_score_completions(inputs())
    assert other.kl_probe.measure() == trainer.kl_probe.measure() > 0.01


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def curve(cache: Path, folder: Path, *words: str) -> dict[int, dict[str, float]]:
    """Return the metrics of 5 steps, without times."""
    words = ("trainer.max_steps=5", "trainer.eval_before=false", "trainer.save_model=false", *words)
    recorder, _ = train(cache, folder, *words, recorder=Recorder())
    steps = {step: metrics for step, metrics in recorder.metrics if "train/loss" in metrics}
    return {
        step: {name: value for name, value in metrics.items() if not name.startswith("time/")}
        for step, metrics in steps.items()
    }


@pytest.mark.parametrize("preset", ["dapo", "grpo"], ids=["beta 0", "beta 0.04"])
def test_logged_every_few_steps_and_at_the_last_one_and_nothing_else_changes(
    preset: str, cache: Path, tmp_path: Path
) -> None:
    """No reward varies here, so weight decay moves the policy: each step takes 1e-2 of every weight."""
    words = (f"algorithm={preset}", "trainer.learning_rate=1e-2", "trainer.weight_decay=1")
    with_probe = curve(cache, tmp_path, *words, "health.kl_probe.every_steps=2", "health.kl_probe.completions=3")
    without = curve(cache, tmp_path, *words, "health.kl_probe.enabled=false")
    values = {step: metrics.pop("train/kl_from_start", None) for step, metrics in with_probe.items()}
    assert [step for step, value in values.items() if value is not None] == [2, 4, 5]
    assert all(value > 0 for value in values.values() if value is not None)
    assert with_probe == without
