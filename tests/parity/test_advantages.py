"""Advantages of a real trainer equal (r - mean) / (std + 1e-4) of each group, worked out by hand or with numpy.

Rewards and completions are given; everything between them and the loss is the trainer's own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

CASES = {
    case["id"]: case
    for line in (Path(__file__).parents[1] / "cases" / "advantages.jsonl").read_text().splitlines()
    if (case := json.loads(line))["id"] < "d020"  # from d020 on they are about the batch: tests/unit/settings
}
#: Refused, see the tests of their own below.
REFUSED = {"d013", "d015"}

Score = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def score(build_trainer: Any, fixed_component: Any) -> Score:
    """Return `score(rewards_per_component, weights, G, scale)` -> the scored batch and the logged metrics."""

    def run(
        rewards: dict[str, Sequence[float | None]],
        weights: Sequence[float],
        num_generations: int,
        *overrides: str,
    ) -> dict[str, Any]:
        components = [
            fixed_component(name, values, weight)
            for (name, values), weight in zip(rewards.items(), weights, strict=True)
        ]
        count = len(components[0].scorer("", [None] * len(next(iter(rewards.values()))), {}))
        trainer = build_trainer(
            "algorithm=dapo",
            f"algorithm.num_generations={num_generations}",
            f"trainer.prompts_per_step={count // num_generations}",
            "trainer.max_completion_length=8",
            *overrides,
            components=components,
        )
        end = trainer.processing_class.eos_token_id
        trainer._generate_single_turn = lambda prompt_ids, *rest: ([[10, 11, end]] * len(prompt_ids), None)
        prompts = [[{"role": "user", "content": f"{row // num_generations}+1?"}] for row in range(count)]
        inputs = [{"prompt": prompt, "target": "1"} for prompt in prompts]
        batch = trainer._generate_and_score_completions(inputs)
        return {
            "advantages": batch["advantages"].tolist(),
            "metrics": {name: values[-1] for name, values in trainer._metrics["train"].items()},
            "batch": batch,
            "trainer": trainer,
        }

    return run


@pytest.mark.parametrize("case_id", sorted(set(CASES) - REFUSED))
def test_case(case_id: str, score: Score) -> None:
    """Values of the case file, which are rounded to 3 or 4 decimals."""
    given, expected = CASES[case_id]["input"], CASES[case_id]["expected"]
    rewards = given.get("rewards_per_func") or {"correctness": given["rewards"]}
    scale = given.get("scale_rewards", "group")
    found = score(rewards, given.get("weights", [1.0]), given["num_generations"], f"algorithm.scale_rewards={scale}")
    np.testing.assert_allclose(found["advantages"], expected, atol=6e-4 if case_id == "d016" else 6e-5)


def test_one_right_of_four(score: Score) -> None:
    """Mean 1/4; std with ddof 1: sqrt((9/16 + 3/16) / 3) = 1/2; (3/4) / (1/2 + 1e-4) = 1.49970."""
    found = score({"correctness": [1, 0, 0, 0]}, [1.0], 4)
    assert found["advantages"] == pytest.approx([0.75 / 0.5001] + [-0.25 / 0.5001] * 3, rel=1e-5)
    # The population's std (ddof 0) is sqrt(3)/4 = 0.433: a quarter more than what is expected here.
    assert found["advantages"][0] != pytest.approx(0.75 / (math.sqrt(3) / 4 + 1e-4), rel=1e-2)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
def test_dead_group_has_advantage_zero_and_is_counted(value: float, score: Score) -> None:
    """Two groups, the second all equal: (r - mean) is 0 whatever the std; frac_reward_zero_std = 4/8."""
    found = score({"correctness": [1, 0, 1, 1, value, value, value, value]}, [1.0], 4)
    assert found["advantages"][4:] == pytest.approx([0.0] * 4, abs=1e-3)
    assert found["metrics"]["frac_reward_zero_std"] == 0.5


def test_row_that_cannot_be_judged_is_left_out_though_its_form_was_paid(score: Score) -> None:
    """Correctness None, format 1: judged alone the row would be paid 0.1 and pull the mean of the others.

    The other three: 1 + 0.1, 0 + 0.1, 0 + 0 = 1.1, 0.1, 0; mean 0.4, std with ddof 1.
    """
    found = score({"correctness": [1, None, 0, 0], "format": [1, 1, 1, 0]}, [1.0, 0.1], 4)
    judged = np.array([1.1, 0.1, 0.0])
    scaled = (judged - 0.4) / (judged.std(ddof=1) + 1e-4)
    assert found["advantages"] == pytest.approx([scaled[0], 0.0, scaled[1], scaled[2]], rel=1e-4)
    assert found["metrics"]["reward"] == pytest.approx(0.4, rel=1e-5)
    assert found["metrics"]["rewards/correctness/mean"] == pytest.approx(1 / 3, rel=1e-5)
    assert found["metrics"]["rewards/format/mean"] == pytest.approx(2 / 3, rel=1e-5)


def test_group_with_nothing_to_judge_moves_nothing(score: Score) -> None:
    """All four None: advantages 0, no NaN; the other group is as if it were alone (d001)."""
    found = score({"correctness": [None] * 4 + [1, 0, 0, 0]}, [1.0], 4)
    assert found["advantages"] == pytest.approx([0.0] * 4 + [0.75 / 0.5001] + [-0.25 / 0.5001] * 3, rel=1e-5)


def test_weighted_components_are_summed_before_normalising(score: Score) -> None:
    """1 x math + 0.5 x format: 1.5, 0.5, 0, 0; mean 0.5; std sqrt((1 + 0 + .25 + .25) / 3) = sqrt(1/2)."""
    found = score({"math": [1, 0, 0, 0], "format": [1, 1, 0, 0]}, [1.0, 0.5], 4)
    std = math.sqrt(0.5)
    expected = [1.0 / (std + 1e-4), 0.0, -0.5 / (std + 1e-4), -0.5 / (std + 1e-4)]
    assert found["advantages"] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert found["metrics"]["reward"] == pytest.approx(0.5)
    assert found["metrics"]["rewards/math/mean"] == 0.25
    assert found["metrics"]["rewards/format/mean"] == 0.5


def test_dr_grpo_preset_divides_by_nothing(score: Score) -> None:
    """A = r - mean = 3/4, -1/4, -1/4, -1/4."""
    found = score({"correctness": [1, 0, 0, 0]}, [1.0], 4, "algorithm=dr_grpo")
    assert found["advantages"] == pytest.approx([0.75, -0.25, -0.25, -0.25])


def test_scale_by_batch_uses_the_mean_of_the_group_and_the_std_of_all(score: Score) -> None:
    """Groups 1,0 and 1,1: means 1/2 and 1; std of 1,0,1,1 with ddof 1 is 1/2."""
    found = score({"correctness": [1, 0, 1, 1]}, [1.0], 2, "algorithm.scale_rewards=batch")
    assert found["advantages"] == pytest.approx([0.5 / 0.5001, -0.5 / 0.5001, 0.0, 0.0], rel=1e-5)


def test_orz_preset_divides_by_the_std_of_the_batch(score: Score) -> None:
    """The same groups under the preset; there is no KL, so no reference is asked for anything."""
    found = score({"correctness": [1, 0, 1, 1]}, [1.0], 2, "algorithm=orz")
    assert found["advantages"] == pytest.approx([0.5 / 0.5001, -0.5 / 0.5001, 0.0, 0.0], rel=1e-5)
    assert "ref_per_token_logps" not in found["batch"]


def test_gdpo_normalises_each_component_before_the_sum(score: Score) -> None:
    """Groups of 2: a pair that differs by 1 has std 1/sqrt(2), so it becomes +-s, s = 0.5 / (1/sqrt(2) + 1e-4).

    Math 1,0 | 1,1 -> s,-s | 0,0; format 0,1 | 1,0 at weight 0.5 -> -s/2,s/2 | s/2,-s/2. The sums are s/2,-s/2 twice,
    their mean is 0 and their std (ddof 1) s/2 x sqrt(4/3).
    """
    rewards = {"math": [1, 0, 1, 1], "format": [0, 1, 1, 0]}
    half = 0.5 * 0.5 / (math.sqrt(0.5) + 1e-4)
    advantage = half / (half * math.sqrt(4 / 3) + 1e-4)
    found = score(rewards, [1.0, 0.5], 2, "algorithm=gdpo")["advantages"]
    assert found == pytest.approx([advantage, -advantage] * 2, rel=1e-5)
    # Summed first, each group is 1,0.5 or 1.5,1: the weaker component is drowned in the first one.
    summed = score(rewards, [1.0, 0.5], 2, "algorithm=grpo")["advantages"]
    assert summed == pytest.approx([0.25 / (0.5 * math.sqrt(0.5) + 1e-4) * sign for sign in (1, -1, 1, -1)], rel=1e-4)


def test_gdpo_component_that_does_not_vary_counts_for_nothing(score: Score) -> None:
    """Format is 1 everywhere: 0 / (0 + 1e-4). Math alone is left: 0.75 and -0.25 over std 0.5, then over the batch."""
    found = score({"math": [1, 0, 0, 0], "format": [1, 1, 1, 1]}, [1.0, 1.0], 4, "algorithm=gdpo")["advantages"]
    group = np.array([0.75, -0.25, -0.25, -0.25]) / 0.5001
    assert found == pytest.approx(group / (group.std(ddof=1) + 1e-4), rel=1e-4)


def test_on_policy_presets_need_no_old_log_probabilities(score: Score) -> None:
    """One update a batch: the ratio is exactly 1, so no forward pass is spent on it, and two updates need it."""
    rewards = {"correctness": [1, 0, 0, 0]}
    assert "old_per_token_logps" not in score(rewards, [1.0], 4)["batch"]
    twice = score(
        {"correctness": [1, 0, 0, 0] * 2}, [1.0], 4, "trainer.prompts_per_step=1", "algorithm.updates_per_batch=2"
    )
    assert "old_per_token_logps" in twice["batch"]


def test_reference_stays_where_the_policy_started(score: Score) -> None:
    """GRPO preset: at the start policy and reference agree, so the KL is 0; after the policy moved it is not."""
    found = score({"correctness": [1, 0, 0, 0]}, [1.0], 4, "algorithm=grpo")
    trainer, batch = found["trainer"], found["batch"]

    def kl() -> float:
        trainer._metrics["train"].clear()
        trainer._compute_loss(trainer.model, batch)
        return trainer._metrics["train"]["kl"][0]

    assert kl() == pytest.approx(0.0, abs=1e-9)
    trainer.model.model.norm.weight.data.mul_(1.5)
    assert kl() > 1e-6


def test_d013_group_is_never_cut() -> None:
    """3 completions a step and G = 2: refused, with the nearest totals 2 and 4."""
    settings = load.to_settings(
        load.compose(["algorithm.num_generations=2", "trainer.prompts_per_step=null", "trainer.completions_per_step=3"])
    )
    with pytest.raises(ConfigError, match=r"completions_per_step=2 or 4"):
        solve_batch(settings)


@pytest.mark.parametrize("scale", ["group", "none"])
def test_d015_infinite_reward_is_refused_before_it_reaches_the_loss(scale: str, score: Score) -> None:
    """Inf - mean is inf - inf; without a refusal the advantages are NaN or the largest float."""
    with pytest.raises(ValueError, match=r"'correctness' returned inf"):
        score({"correctness": [math.inf, 0, 0, 0]}, [1.0], 4, f"algorithm.scale_rewards={scale}")


@pytest.mark.parametrize("num_generations", [4, 6, 8, 11, 13])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_groups_without_variance_have_advantage_zero_whatever_their_reward_is(
    num_generations: int, scale: str, score: Score
) -> None:
    """Totals 1.1, 0.1 and 0.03 have no exact binary form: in 32 bits the mean of eleven of them is another number.

    The fourth group has one right completion: r is 1.1 once and 0.1 otherwise.
    """
    G = num_generations
    one_right = [1.0] + [0.0] * (G - 1)
    rewards = {"correctness": [1.0] * G + [0.0] * 2 * G + one_right, "form": [1.0] * 2 * G + [0.3] * G + [1.0] * G}
    found = score(rewards, [1.0, 0.1], G, f"algorithm.scale_rewards={scale}")
    assert found["advantages"][: 3 * G] == [0.0] * 3 * G
    totals = np.array([1.1] * G + [0.1] * G + [0.03] * G + [1.1] + [0.1] * (G - 1))
    last = totals[3 * G :]
    std = {"group": last.std(ddof=1), "batch": totals.std(ddof=1), "none": None}[scale]
    expected = (last - last.mean()) / (1.0 if std is None else std + 1e-4)
    np.testing.assert_allclose(found["advantages"][3 * G :], expected, rtol=1e-5)
    if scale != "batch":  # there TRL asks for the variance of the whole batch
        assert found["metrics"]["frac_reward_zero_std"] == 0.75


@pytest.mark.parametrize("num_generations", [4, 6, 8])
def test_normalising_twice_does_not_blow_rounding_up(num_generations: int, score: Score) -> None:
    """The sum of normalised components is divided once more: where no group varies there is nothing to divide."""
    G = num_generations
    values = {
        "a": [v for v in (0.1, 0.7, 0.3, 0.9) for _ in range(G)],
        "b": [v for v in (0.7, 0.1, 0.6, 0.2) for _ in range(G)],
    }
    found = score(values, [1.0, 0.3], G, "algorithm=gdpo", "algorithm.dynamic_sampling.enabled=false")
    assert found["advantages"] == [0.0] * 4 * G
    assert found["metrics"]["frac_reward_zero_std"] == 1.0


def test_component_that_is_constant_in_a_group_adds_nothing_to_it(score: Score) -> None:
    """With gdpo and G 6: `a` varies in the first of two groups, `b` is 0.7 and 0.1, so only `a` counts.

    a: mean 1/2, std sqrt(6/5 * 1/4) = 0.5477, so +-0.5/(0.5477 + 1e-4); over the 12 rows the mean is 0, and the std is
    that value times sqrt(6/11).
    """
    values = {"a": [1.0, 0.0] * 3 + [0.3] * 6, "b": [0.7] * 6 + [0.1] * 6}
    found = score(values, [1.0, 1.0], 6, "algorithm=gdpo", "algorithm.dynamic_sampling.enabled=false")
    normalised = 0.5 / (math.sqrt(0.3) + 1e-4)
    expected = normalised / (normalised * math.sqrt(6 / 11) + 1e-4)
    np.testing.assert_allclose(found["advantages"][:6], [expected, -expected] * 3, rtol=1e-6)
    assert found["advantages"][6:] == [0.0] * 6
