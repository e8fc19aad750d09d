"""Settings of the algorithm: axes, not names. A named algorithm is a preset in conf/algorithm."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import FilledText, Float, Int, NoneText, PositiveFraction, Settings
from grpo_exp.settings.dynamic_sampling import DynamicSampling
from grpo_exp.settings.overlong import OverlongPunishment

#: TRL's loss types, grouped by how many numbers the ratio clip needs.
LossType = Literal["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"]
#: Shape of a soft gate, and power or decay of VESPO's kernel: 1 to 4 in the papers.
GateTemperature = Annotated[Float, Field(gt=0, le=100)]
KernelExponent = Annotated[Float, Field(ge=0, le=100)]


class AlgorithmSettings(Settings):
    """How rewards of a group become an update. Field names are TRL's own."""

    name: FilledText
    """Name of the preset, for tables and run names."""
    citation: FilledText
    """The paper that the numbers come from."""
    num_generations: Annotated[Int, Field(ge=2, le=1024)] = 8
    """G, completions per prompt; at least 2, since the baseline is the mean of the group."""
    loss_type: LossType
    """How token losses are aggregated, and the form of the surrogate."""
    importance_sampling_level: Literal["token", "sequence"] = "token"
    """Ratio per token (GRPO) or per sequence (GSPO)."""
    scale_rewards: Literal["group", "batch", "none"]
    """What the advantage is divided by: std of the group, of the batch, or nothing (Dr. GRPO)."""
    multi_objective_aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = "sum_then_normalize"
    """Weighted sum of components before or after normalising."""
    epsilon: Annotated[Float, Field(gt=0, le=10)] = 0.2
    """Lower clip of the ratio: at 1 - epsilon; from 1 on there is none, since ratios are positive."""
    epsilon_high: Annotated[Annotated[Float, Field(gt=0, le=100)] | None, NoneText, Field(examples=[0.28])] = None
    """Upper clip of the ratio: at 1 + epsilon_high; null is epsilon. For cispo an absolute cap (about 5)."""
    delta: Annotated[Annotated[Float, Field(gt=1, le=1000)] | None, NoneText, Field(examples=[4.0])] = None
    """Two-sided clip: upper bound of the unclipped ratio, above 1 + epsilon; null is none."""
    beta: Annotated[Float, Field(ge=0, le=1)] = 0.0
    """Weight of the KL to the reference model; 0 loads no reference model."""
    use_bias_correction_kl: bool = False
    """Multiply the KL by the ratio (DeepSeek-V3.2); false is the k3 estimator of DeepSeekMath, eq. 4."""
    sync_ref_model: bool = False
    """Refresh the reference model while training; acts with `beta` above 0 (TR-DPO, arXiv:2404.09656)."""
    ref_model_sync_steps: Annotated[Int, Field(ge=1, le=1_000_000)] = 512
    """Optimizer steps between two refreshes of the reference model (tau of TR-DPO; DeepSeek-R1: 400)."""
    ref_model_mixup_alpha: PositiveFraction = 0.6
    """Share of the policy in the refreshed reference, in (0, 1]; 1 replaces it (alpha of TR-DPO; DeepSeek-R1: 1)."""
    sapo_temperature_pos: GateTemperature = 1.0
    """Steepness of the gate 4/tau sigmoid(tau (r - 1)) at positive advantage; `loss_type` sapo (arXiv:2511.20347)."""
    sapo_temperature_neg: GateTemperature = 1.05
    """The same at advantage 0 and below; the paper wants it above `sapo_temperature_pos`."""
    vespo_k_pos: KernelExponent = 2.0
    """Power k of the kernel w^k exp(lambda (1 - w)) at advantage 0 and above; `loss_type` vespo (arXiv:2602.10693)."""
    vespo_lambda_pos: KernelExponent = 3.0
    """Decay lambda of that kernel at advantage 0 and above."""
    vespo_k_neg: KernelExponent = 3.0
    """Power k of that kernel at negative advantage."""
    vespo_lambda_neg: KernelExponent = 2.0
    """Decay lambda of that kernel at negative advantage."""
    temperature: Annotated[Float, Field(gt=0, le=2)] = 1.0
    """Sampling temperature of the rollouts, in (0, 2]."""
    top_p: PositiveFraction = 1.0
    """Nucleus sampling of the rollouts; 1 is off."""
    mask_truncated_completions: bool = False
    """Leave completions that hit max_completion_length out of the loss (DAPO's overlong filtering)."""
    updates_per_batch: Annotated[Int, Field(ge=1, le=1024)] = 1
    """Optimizer steps per generated batch; above 1 the later ones are off-policy and the ratio leaves 1."""
    num_iterations: Annotated[Int, Field(ge=1, le=1024)] = 1
    """Passes over a generated batch (mu in DeepSeekMath, alg. 1)."""
    dynamic_sampling: DynamicSampling = DynamicSampling()
    """Replace groups without reward variance."""
    overlong: OverlongPunishment = OverlongPunishment()
    """Punish completions that come near max_completion_length."""

    @property
    def clip_high(self) -> float:
        """Upper clip that is in force: `epsilon_high`, or `epsilon` where that is null."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high

    @model_validator(mode="after")
    def _check(self) -> AlgorithmSettings:
        faults = []
        if self.loss_type == "cispo":
            if self.clip_high <= 1:
                faults.append(
                    f"epsilon_high: {self.clip_high} caps the ratio below 1 with loss_type=cispo, where it is "
                    "an absolute cap; use a value above 1, for example 5.0"
                )
        else:
            if self.clip_high < self.epsilon:
                faults.append(
                    f"epsilon_high: {self.epsilon_high} is below epsilon ({self.epsilon}); the upper clip must "
                    "be at least the lower one; raise epsilon_high, or set it to null to use epsilon"
                )
            if self.delta is not None and self.delta <= 1 + self.clip_high:
                faults.append(
                    f"delta: {self.delta} must lie above 1 + epsilon_high ({1 + self.clip_high}); raise it or use null"
                )
        if faults:
            raise ValueError("\n".join(faults))
        return self
