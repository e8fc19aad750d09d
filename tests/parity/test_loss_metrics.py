"""What the trainer logs about a loss, and what it takes log-probabilities and token counts of.

The ratios are chosen by hand here, so that the shares of clipped tokens can be counted. Shapes: N completions, T tokens
of the longest completion.
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
    """What TRL's `_compute_loss` takes, and the same numbers for numpy."""

    inputs: dict[str, torch.Tensor]
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
    return Batch(inputs, np.exp(log_ratio_NT), log_reference_NT, mask_NT)


def dapo_loss(batch: Batch) -> float:
    """DAPO, eq. 8: -1/sum_i |o_i| sum_i sum_t min[r A, clip(r, 0.8, 1.28) A]."""
    advantages_N1 = ADVANTAGES_N[:, None]
    clipped_NT = np.clip(batch.ratios_NT, 0.8, 1.28)
    surrogate_NT = np.minimum(batch.ratios_NT * advantages_N1, clipped_NT * advantages_N1)
    return -float((surrogate_NT * batch.mask_NT).sum() / batch.mask_NT.sum())


def overrides(preset: str, updates: int = 1) -> list[str]:
    """One prompt x G = 8 completions in one micro-batch; a cap for CISPO that some of the ratios reach."""
    return [
        f"algorithm={preset}",
        f"algorithm.num_generations={G}",
        f"algorithm.updates_per_batch={updates}",
        "trainer.prompts_per_step=1",
        f"trainer.max_completion_length={MAX_LENGTH}",
        f"trainer.per_device_train_batch_size={G}",
        *(["algorithm.epsilon_high=1.5"] if preset == "cispo" else []),
    ]


@pytest.fixture(scope="module", params=["grpo", "dapo", "cispo"])
def preset(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def trainer(preset: str, build_trainer: Any) -> Any:
    return build_trainer(*overrides(preset))


def logged(trainer: Any, batch: Batch) -> dict[str, list[float]]:
    trainer._metrics["train"].clear()
    trainer._compute_loss(trainer.model, batch.inputs)
    return trainer._metrics["train"]


def test_clip_ratios_in_the_log_are_shares_of_tokens(preset: str, trainer: Any) -> None:
    """Low: r < 0.8 with A < 0; high: r > 1 + epsilon_high (cispo: r > 1.5, the cap) with A > 0; of all 36 tokens."""
    batch = build_batch(trainer)
    metrics = logged(trainer, batch)
    positive_N1 = (ADVANTAGES_N > 0)[:, None]
    low_share = ((batch.ratios_NT < 0.8) & ~positive_N1 & (batch.mask_NT > 0)).sum() / 36
    high = {"grpo": 1.2, "dapo": 1.28, "cispo": 1.5}[preset]
    high_share = ((batch.ratios_NT > high) & positive_N1 & (batch.mask_NT > 0)).sum() / 36
    assert high_share > 0
    if preset == "cispo":
        assert metrics["cispo_clip_ratio"] == [pytest.approx(high_share, rel=1e-5)]
        assert "clip_ratio/low_mean" not in metrics
        return
    assert metrics["clip_ratio/low_mean"] == [pytest.approx(low_share, rel=1e-5)]
    assert metrics["clip_ratio/high_mean"] == [pytest.approx(high_share, rel=1e-5)]


def test_kl_is_logged_with_a_reference_only(preset: str, trainer: Any) -> None:
    """k3, mean over the 36 tokens, for grpo (beta 0.04); absent, not 0, for the presets with beta 0."""
    batch = build_batch(trainer)
    metrics = logged(trainer, batch)
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
    assert loss == pytest.approx(dapo_loss(batch), rel=1e-5)


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
    trainer = build_trainer(*overrides("dapo", updates=2))
    assert (trainer.args.gradient_accumulation_steps, trainer.args.steps_per_generation) == (1, 2)
    batch = build_batch(trainer)
    inputs = batch.inputs | {"num_items_in_batch": torch.tensor(72)}
    loss = trainer._compute_loss(trainer.model, inputs).item()
    assert loss == pytest.approx(dapo_loss(batch), rel=1e-5)
