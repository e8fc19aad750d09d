"""The loss of each preset equals its paper's equation, written here in numpy.

The equations take log-probabilities from a forward pass of their own: one completion at a time, no padding, softmax
in float64. What is compared is the real trainer with the arguments of the composed preset.

Shapes: N completions, T tokens of the longest completion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

G = 8
MAX_LENGTH = 8
#: Lengths differ, so that means over tokens, over sequences and over a constant all differ.
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8)
#: Both signs; they do not sum to zero, so that a relative tolerance means something.
ADVANTAGES_N = np.array([2.0, -1.0, 1.5, -0.5, 0.75, -0.25, 3.0, -2.0])
#: Below, inside and above every clip: 0.8, 1.2 (epsilon) and 1.28 (epsilon_high of DAPO); 1.24 lies between the two.
RATIOS = (0.5, 0.75, 0.85, 1.0, 1.15, 1.24, 1.35, 1.9)
#: log(reference / policy), of both signs: the k3 estimator is not symmetric.
REFERENCE = (-0.6, 0.3, 0.9, -0.2, 0.0)


@dataclass(frozen=True)
class Batch:
    """What TRL's `_compute_loss` takes, and the same numbers for the equations."""

    inputs: dict[str, torch.Tensor]
    policy_NT: np.ndarray
    ratios_NT: np.ndarray
    log_reference_NT: np.ndarray
    mask_NT: np.ndarray


def completion_logps(model: Any, prompt: list[int], completion: list[int]) -> np.ndarray:
    """Return the log-probability of each completion token, one sequence alone."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + completion])).logits[0].double().numpy()
    logits = logits[len(prompt) - 1 : -1]  # the logits at a position predict the next token
    normaliser = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    return logits[np.arange(len(completion)), completion] - normaliser


def build_batch(trainer: Any, *, masked_rows: tuple[int, ...] = ()) -> Batch:
    """Return N = G completions of unequal lengths with ratios and reference chosen by hand.

    Args:
        trainer: Its model gives the log-probabilities.
        masked_rows: Completions that are left out of the loss, as overlong filtering does.
    """
    generator = np.random.default_rng(0)
    prompts = [generator.integers(8, 60, size=3 + row % 3).tolist() for row in range(G)]
    completions = [generator.integers(8, 60, size=length).tolist() for length in LENGTHS]
    pad = trainer.processing_class.pad_token_id
    mask_NT, policy_NT, log_ratio_NT, log_reference_NT = (np.zeros((G, MAX_LENGTH)) for _ in range(4))
    completion_ids, prompt_ids = np.full((G, MAX_LENGTH), pad), np.full((G, 5), pad)
    prompt_mask = np.zeros((G, 5))
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        length = len(completion)
        prompt_ids[row, 5 - len(prompt) :], prompt_mask[row, 5 - len(prompt) :] = prompt, 1
        completion_ids[row, :length] = completion
        if row in masked_rows:
            continue
        mask_NT[row, :length] = 1
        policy_NT[row, :length] = completion_logps(trainer.model, prompt, completion)
        for t in range(length):
            log_ratio_NT[row, t] = np.log(RATIOS[(3 * row + t + 1) % len(RATIOS)])
            log_reference_NT[row, t] = REFERENCE[(row + t) % len(REFERENCE)]
    inputs = {
        "prompt_ids": torch.tensor(prompt_ids),
        "prompt_mask": torch.tensor(prompt_mask).long(),
        "completion_ids": torch.tensor(completion_ids),
        "completion_mask": torch.tensor(mask_NT).long(),
        "advantages": torch.tensor(ADVANTAGES_N).float(),
        "old_per_token_logps": torch.tensor(policy_NT - log_ratio_NT).float(),
        "ref_per_token_logps": torch.tensor(policy_NT + log_reference_NT).float(),
        "num_items_in_batch": torch.tensor(int(mask_NT.sum())),
    }
    return Batch(inputs, policy_NT, np.exp(log_ratio_NT), log_reference_NT, mask_NT)


# ------------------------------------------------------------------------------------------- the equations


def surrogate_NT(batch: Batch, *, low: float, high: float) -> np.ndarray:
    """min[r A, clip(r, 1 - low, 1 + high) A], per token."""
    advantages_N1 = ADVANTAGES_N[:, None]
    clipped_NT = np.clip(batch.ratios_NT, 1 - low, 1 + high)
    return np.minimum(batch.ratios_NT * advantages_N1, clipped_NT * advantages_N1)


def grpo_objective(batch: Batch) -> float:
    """DeepSeekMath, eq. 3 and 4: 1/G sum_i 1/|o_i| sum_t { min[...] - 0.04 (ref/pi - log(ref/pi) - 1) }."""
    kl_NT = np.exp(batch.log_reference_NT) - batch.log_reference_NT - 1
    token_NT = (surrogate_NT(batch, low=0.2, high=0.2) - 0.04 * kl_NT) * batch.mask_NT
    return float(np.mean(token_NT.sum(1) / batch.mask_NT.sum(1)))


def dapo_objective(batch: Batch) -> float:
    """DAPO, eq. 8: 1/sum_i |o_i| sum_i sum_t min[r A, clip(r, 0.8, 1.28) A]."""
    return float((surrogate_NT(batch, low=0.2, high=0.28) * batch.mask_NT).sum() / batch.mask_NT.sum())


def dr_grpo_objective(batch: Batch) -> float:
    """Dr. GRPO, section 3.2: 1/G sum_i 1/L sum_t min[...], L the longest completion allowed."""
    return float((surrogate_NT(batch, low=0.2, high=0.2) * batch.mask_NT).sum() / (G * MAX_LENGTH))


OBJECTIVES = {"grpo": grpo_objective, "dapo": dapo_objective, "dr_grpo": dr_grpo_objective}
PRESETS = sorted(OBJECTIVES)


def overrides(preset: str, micro_batch: int = G) -> list[str]:
    """One prompt x G = 8 completions; two micro-batches of 4, or the whole batch at once."""
    return [
        f"algorithm={preset}",
        "trainer.prompts_per_step=1",
        f"trainer.max_completion_length={MAX_LENGTH}",
        f"trainer.per_device_train_batch_size={micro_batch}",
    ]


def rows(inputs: dict[str, torch.Tensor], start: int, stop: int) -> dict[str, torch.Tensor]:
    """Return a micro-batch; the token count stays that of the whole batch, as TRL's splitting leaves it."""
    return {name: value if value.dim() == 0 else value[start:stop] for name, value in inputs.items()}


@pytest.fixture(scope="module", params=PRESETS)
def preset(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def trainer(preset: str, build_trainer: Any) -> Any:
    return build_trainer(*overrides(preset))


# ----------------------------------------------------------------------------------------------- the tests


def test_hand_made_batch_reaches_every_branch_of_the_clip() -> None:
    """A batch without clipped tokens of either sign, or without one between 1.2 and 1.28, would prove little."""
    signs = np.sign(ADVANTAGES_N)
    used = {
        (signs[row], RATIOS[(3 * row + t + 1) % len(RATIOS)])
        for row, length in enumerate(LENGTHS)
        for t in range(length)
    }
    assert {(sign, ratio) for sign in (-1.0, 1.0) for ratio in (0.5, 0.75, 1.24, 1.35, 1.9)} <= used


def test_loss_equals_the_equation_of_the_paper(preset: str, trainer: Any) -> None:
    batch = build_batch(trainer)
    loss = trainer._compute_loss(trainer.model, batch.inputs).item()
    assert loss == pytest.approx(-OBJECTIVES[preset](batch), rel=1e-5)


def test_the_three_equations_differ_on_this_batch(trainer: Any) -> None:
    """Otherwise one preset could pass with the loss of another."""
    batch = build_batch(trainer)
    values = [objective(batch) for objective in OBJECTIVES.values()]
    for i, first in enumerate(values):
        for second in values[i + 1 :]:
            assert abs(first - second) > 1e-2 * max(abs(first), abs(second))


def test_two_micro_batches_add_up_to_the_loss_of_the_whole_batch(preset: str, build_trainer: Any) -> None:
    """Accumulation 2: loss(rows 0-3) + loss(rows 4-7) is the equation over all 8, though their lengths differ."""
    trainer = build_trainer(*overrides(preset, micro_batch=4))
    assert trainer.args.gradient_accumulation_steps == 2
    batch = build_batch(trainer)
    losses = [trainer._compute_loss(trainer.model, rows(batch.inputs, start, start + 4)).item() for start in (0, 4)]
    assert sum(losses) == pytest.approx(-OBJECTIVES[preset](batch), rel=1e-5)


def test_gradient_is_the_slope_of_the_equation(preset: str, trainer: Any) -> None:
    """D loss / d theta along one direction equals the difference quotient of the numpy equation.

    Old and reference log-probabilities stay where they were, the policy moves: log r = (policy - old) changes with
    it, and so does the KL. A loss that is right in value and detached in part would fail here.
    """
    model = trainer.model
    batch = build_batch(trainer)
    direction = torch.linspace(-1.0, 1.0, model.model.norm.weight.numel())
    model.zero_grad()
    trainer._compute_loss(model, batch.inputs).backward()
    slope = float(model.model.norm.weight.grad @ direction)
    model.zero_grad()
    step = 1e-3

    def equation(sign: int) -> float:
        with torch.no_grad():
            model.model.norm.weight.add_(sign * step * direction)
        moved = build_batch(trainer)  # its policy_NT belongs to the moved weights
        with torch.no_grad():
            model.model.norm.weight.sub_(sign * step * direction)
        change_NT = moved.policy_NT - batch.policy_NT
        return OBJECTIVES[preset](
            Batch(
                {},
                moved.policy_NT,
                batch.ratios_NT * np.exp(change_NT),
                batch.log_reference_NT - change_NT,
                batch.mask_NT,
            )
        )

    quotient = -(equation(+1) - equation(-1)) / (2 * step)
    assert abs(quotient) > 1e-3
    assert slope == pytest.approx(quotient, rel=2e-3)


def test_clip_ratios_in_the_log_are_shares_of_tokens(preset: str, trainer: Any) -> None:
    """Low: r < 0.8 with A < 0; high: r > 1 + epsilon_high with A > 0; of all 36 tokens."""
    batch = build_batch(trainer)
    trainer._metrics["train"].clear()
    trainer._compute_loss(trainer.model, batch.inputs)
    high = 1.28 if preset == "dapo" else 1.2
    positive_N1 = (ADVANTAGES_N > 0)[:, None]
    low_share = ((batch.ratios_NT < 0.8) & ~positive_N1 & (batch.mask_NT > 0)).sum() / 36
    high_share = ((batch.ratios_NT > high) & positive_N1 & (batch.mask_NT > 0)).sum() / 36
    metrics = trainer._metrics["train"]
    assert metrics["clip_ratio/low_mean"] == [pytest.approx(low_share, rel=1e-5)]
    assert metrics["clip_ratio/high_mean"] == [pytest.approx(high_share, rel=1e-5)]


def test_kl_is_logged_with_a_reference_only(preset: str, trainer: Any) -> None:
    """k3, mean over the 36 tokens, for grpo (beta 0.04); absent, not 0, for the presets with beta 0."""
    batch = build_batch(trainer)
    trainer._metrics["train"].clear()
    trainer._compute_loss(trainer.model, batch.inputs)
    metrics = trainer._metrics["train"]
    if preset == "grpo":
        k3_NT = (np.exp(batch.log_reference_NT) - batch.log_reference_NT - 1) * batch.mask_NT
        assert metrics["kl"] == [pytest.approx(k3_NT.sum() / 36, rel=1e-4)]
    else:
        assert "kl" not in metrics


def test_dapo_leaves_a_masked_completion_out_of_sum_and_token_count(build_trainer: Any) -> None:
    """Overlong filtering (section 3.4): rows 5 and 7 (6 + 8 tokens) gone, the mean is over the other 22 tokens."""
    trainer = build_trainer(*overrides("dapo"))
    batch = build_batch(trainer, masked_rows=(5, 7))
    assert batch.mask_NT.sum() == 36 - 6 - 8
    loss = trainer._compute_loss(trainer.model, batch.inputs).item()
    assert loss == pytest.approx(-dapo_objective(batch), rel=1e-5)


def test_log_probabilities_are_those_of_the_sampling_temperature(build_trainer: Any) -> None:
    """Rollouts at temperature 0.5 come from softmax(logits / 0.5); the ratio must use the same distribution."""
    trainer = build_trainer(*overrides("dapo"), "algorithm.temperature=0.5")
    inputs = build_batch(trainer).inputs
    logps, _, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model,
        torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
        torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
        MAX_LENGTH,
    )
    prompt = inputs["prompt_ids"][7][inputs["prompt_mask"][7] == 1].tolist()
    completion = inputs["completion_ids"][7].tolist()
    with torch.no_grad():
        logits = trainer.model(input_ids=torch.tensor([prompt + completion])).logits[0].double().numpy()
    cold = np.exp(logits[len(prompt) - 1 : -1] / 0.5)
    expected = np.log(cold[np.arange(MAX_LENGTH), completion] / cold.sum(-1))
    np.testing.assert_allclose(logps[7].detach().numpy(), expected, rtol=1e-5)


def test_dapo_with_two_updates_per_batch_divides_by_the_mean_token_count_of_an_update(build_trainer: Any) -> None:
    """One prompt x 8 an update, two updates a generated batch: 16 completions, 36 + 36 tokens, 36 an update."""
    trainer = build_trainer(*overrides("dapo"), "algorithm.updates_per_batch=2")
    assert (trainer.args.gradient_accumulation_steps, trainer.args.steps_per_generation) == (1, 2)
    batch = build_batch(trainer)
    inputs = batch.inputs | {"num_items_in_batch": torch.tensor(72)}
    loss = trainer._compute_loss(trainer.model, inputs).item()
    assert loss == pytest.approx(-dapo_objective(batch), rel=1e-5)
