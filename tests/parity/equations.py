"""The presets' objectives and advantages, written from their papers; autograd gives the gradients.

Two choices that the papers leave open are TRL's: the std is that of a sample (ddof 1), and 1e-4 is added to it.

Shapes: N completions of one optimizer step, T tokens of the longest, K reward components, P prompts of G completions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Step:
    """One optimizer step: everything an objective is a function of."""

    log_policy_NT: Tensor
    """Log-probabilities of the policy, with a gradient."""
    log_old_NT: Tensor
    """Those of the policy that sampled the completions."""
    log_reference_NT: Tensor
    mask_NT: Tensor
    """1 for tokens that count, 0 for padding and for completions that are filtered out."""
    advantages_N: Tensor
    max_length: int
    """Longest completion that is allowed."""
    micro_batches: Sequence[Sequence[int]]
    """Rows of each micro-batch, over all processes."""

    @property
    def ratios_NT(self) -> Tensor:
        """r_it = pi(o_it) / pi_old(o_it)."""
        return torch.exp(self.log_policy_NT - self.log_old_NT)

    @property
    def lengths_N(self) -> Tensor:
        """|o_i|; 1 for a completion that is filtered out, whose sums are 0."""
        return self.mask_NT.sum(1).clamp(min=1)

    @property
    def sequence_ratios_N(self) -> Tensor:
        """s_i = (pi(o_i) / pi_old(o_i))^(1/|o_i|), GSPO eq. 7."""
        return torch.exp(((self.log_policy_NT - self.log_old_NT) * self.mask_NT).sum(1) / self.lengths_N)

    @property
    def k3_NT(self) -> Tensor:
        """KL_it = ref/pi - log(ref/pi) - 1, DeepSeekMath eq. 4."""
        log_ratio_NT = self.log_reference_NT - self.log_policy_NT
        return torch.exp(log_ratio_NT) - log_ratio_NT - 1


def clipped(ratios: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """min[r A, clip(r, 1 - low, 1 + high) A]."""
    return torch.minimum(ratios * advantages, torch.clamp(ratios, 1 - low, 1 + high) * advantages)


def mean_of_token_means(step: Step, values_NT: Tensor) -> Tensor:
    """1/N sum_i 1/|o_i| sum_t."""
    return ((values_NT * step.mask_NT).sum(1) / step.lengths_N).mean()


def mean_over_tokens(step: Step, values_NT: Tensor) -> Tensor:
    """1/sum_i |o_i| sum_i sum_t."""
    return (values_NT * step.mask_NT).sum() / step.mask_NT.sum()


# --------------------------------------------------------------------------------------------------- objectives


def grpo(step: Step) -> Tensor:
    """DeepSeekMath, eq. 3 and 4: clip 0.2, beta 0.04."""
    surrogate_NT = clipped(step.ratios_NT, step.advantages_N[:, None], 0.2, 0.2)
    return mean_of_token_means(step, surrogate_NT - 0.04 * step.k3_NT)


def r1(step: Step) -> Tensor:
    """DeepSeek-R1: GRPO with clip 10, that is from nothing (1 - 10 < 0) to 11, and beta 0.001."""
    surrogate_NT = clipped(step.ratios_NT, step.advantages_N[:, None], 10, 10)
    return mean_of_token_means(step, surrogate_NT - 0.001 * step.k3_NT)


def dapo(step: Step) -> Tensor:
    """DAPO, eq. 8: clip from 0.2 to 0.28, mean over all tokens."""
    return mean_over_tokens(step, clipped(step.ratios_NT, step.advantages_N[:, None], 0.2, 0.28))


def dr_grpo(step: Step) -> Tensor:
    """Dr. GRPO, section 3.2: each completion is divided by a constant, the longest that is allowed."""
    surrogate_NT = clipped(step.ratios_NT, step.advantages_N[:, None], 0.2, 0.2) * step.mask_NT
    return (surrogate_NT.sum(1) / step.max_length).mean()


def bnpo(step: Step) -> Tensor:
    """TRL's loss_type=bnpo: mean over the micro-batches of their means over tokens."""
    surrogate_NT = clipped(step.ratios_NT, step.advantages_N[:, None], 0.2, 0.2) * step.mask_NT
    parts = [surrogate_NT[rows].sum() / step.mask_NT[rows].sum() for rows in map(list, step.micro_batches)]
    return torch.stack(parts).mean()


def gspo(step: Step) -> Tensor:
    """GSPO, eq. 5: one ratio for a sequence, clip from 3e-4 to 4e-4."""
    return clipped(step.sequence_ratios_N, step.advantages_N, 3e-4, 4e-4).mean()


def luspo(step: Step) -> Tensor:
    """LUSPO: GSPO's term times |o_i|, clip from 2e-3 to 2.5e-3."""
    return (step.lengths_N * clipped(step.sequence_ratios_N, step.advantages_N, 2e-3, 2.5e-3)).mean()


def cispo(step: Step) -> Tensor:
    """MiniMax-M1, eq. 4 and 5: sg[min(r, cap)] A log pi, no lower bound; the cap is ScaleRL's 5."""
    weights_NT = torch.clamp(step.ratios_NT, max=5.0).detach()
    return mean_over_tokens(step, weights_NT * step.advantages_N[:, None] * step.log_policy_NT)


def sapo(step: Step) -> Tensor:
    """SAPO: f(r) A with f(r) = 4/tau sigmoid(tau (r - 1)), tau 1 for A > 0 and 1.05 else."""
    advantages_N1 = step.advantages_N[:, None]
    tau_N1 = torch.where(advantages_N1 > 0, 1.0, 1.05)
    return mean_of_token_means(step, 4 / tau_N1 / (1 + torch.exp(-tau_N1 * (step.ratios_NT - 1))) * advantages_N1)


def vespo(step: Step) -> Tensor:
    """VESPO: phi(w_i) A_i log pi with phi(w) = w^k exp(lambda (1 - w)), w the ratio of the whole sequence.

    k and lambda are 2 and 3 for A >= 0, 3 and 2 for A < 0; phi takes no gradient.
    """
    w_N = torch.exp(((step.log_policy_NT - step.log_old_NT) * step.mask_NT).sum(1)).detach()
    k_N = torch.where(step.advantages_N >= 0, 2.0, 3.0)
    lambda_N = torch.where(step.advantages_N >= 0, 3.0, 2.0)
    phi_N = w_N**k_N * torch.exp(lambda_N * (1 - w_N))
    return mean_over_tokens(step, (phi_N * step.advantages_N)[:, None] * step.log_policy_NT)


def gdpo(step: Step) -> Tensor:
    """GDPO: GRPO's surrogate without KL; what is new is in the advantages."""
    return mean_of_token_means(step, clipped(step.ratios_NT, step.advantages_N[:, None], 0.2, 0.2))


def orz(step: Step) -> Tensor:
    """Open-Reasoner-Zero: PPO's clip 0.2, mean over tokens, no KL."""
    return mean_over_tokens(step, clipped(step.ratios_NT, step.advantages_N[:, None], 0.2, 0.2))


OBJECTIVES: dict[str, Callable[[Step], Tensor]] = {
    objective.__name__: objective
    for objective in (grpo, r1, dapo, dr_grpo, bnpo, gspo, cispo, sapo, luspo, vespo, gdpo, orz)
}
PRESETS = sorted(OBJECTIVES)
#: Presets that leave completions out of the loss which hit the longest length (DAPO, section 3.4).
FILTERED = {"dapo"}


# --------------------------------------------------------------------------------------------------- advantages

#: What TRL adds to a std.
EPSILON = 1e-4


def standardised(rewards_PG: np.ndarray) -> np.ndarray:
    """(R - mean(R)) / std(R) of each group, DeepSeekMath section 4.1.2."""
    return (rewards_PG - rewards_PG.mean(1, keepdims=True)) / (rewards_PG.std(1, ddof=1, keepdims=True) + EPSILON)


def advantages_N(preset: str, rewards_KPG: np.ndarray, weights_K: np.ndarray) -> np.ndarray:
    """Return the advantages of a preset, from the components' rewards and weights."""
    rewards_PG = np.tensordot(weights_K, rewards_KPG, axes=1)
    centred_PG = rewards_PG - rewards_PG.mean(1, keepdims=True)
    if preset == "dr_grpo":  # no division by the std
        return centred_PG.ravel()
    if preset == "orz":  # the std of the batch
        return (centred_PG / (rewards_PG.std(ddof=1) + EPSILON)).ravel()
    if preset == "gdpo":  # each component by itself, then the sum over the batch
        summed_PG = np.tensordot(weights_K, np.stack([standardised(component) for component in rewards_KPG]), axes=1)
        return ((summed_PG - summed_PG.mean()) / (summed_PG.std(ddof=1) + EPSILON)).ravel()
    return standardised(rewards_PG).ravel()
