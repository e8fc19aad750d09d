"""Thresholds of the rules that watch a run; docs/health.md says what each rule is for.

"Points" are values of a curve: one for each step that logs it, which for rewards and lengths are the generating steps.
Where no source is named, the number is this project's judgement, and the text says what it rests on.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import Float, Fraction, Int, Settings

Action = Literal["ignore", "log", "alert", "checkpoint", "stop"]
Window = Annotated[Int, Field(ge=1, le=100_000)]
Factor = Annotated[Float, Field(gt=1, le=1e6)]
ShareOf = Annotated[Float, Field(gt=0, lt=1)]


class Rule(Settings):
    """What all rules have."""

    action: Action = "alert"
    """`ignore`: not looked at; `log`: an event only; `alert`: told in the terminal and by trackers, too; `checkpoint`:
    that, and a checkpoint is asked for; `stop`: that, and the run ends with exit code 3. Findings of severity info are
    only logged, whatever stands here."""


class WindowRule(Rule):
    """A rule that looks at the latest points of a curve."""

    window: Window = 10
    """Points that count as "now", from 1. Judgement: 10 batches of 256 completions put the standard error of a mean
    0/1 reward near 0.01, and a run of 50 steps is still warned in time."""


class NoSignalRule(WindowRule):
    """Hardly any group has rewards that differ."""

    share: Fraction = 0.9
    """Share of groups without variance, 0 to 1, mean over the window. Such groups have advantage 0
    (DAPO, arXiv:2503.14476, section 3.2). Judgement: at 0.9 a step learns from a tenth of what it generates."""
    easy_mean: Fraction = 0.8
    """Mean of `reward.primary` from which the prompts are called too easy. Judgement: with 8 completions a group, all
    are right in 17 % of the groups at 0.8."""
    hard_mean: Fraction = 0.2
    """Mean of `reward.primary` up to which the prompts are called too hard: the mirror image of `easy_mean`."""

    @model_validator(mode="after")
    def _check(self) -> NoSignalRule:
        if self.hard_mean >= self.easy_mean:
            raise ValueError(
                f"hard_mean: {self.hard_mean} is not below easy_mean={self.easy_mean}, so prompts would be too hard "
                "and too easy at once; lower it"
            )
        return self


class LengthExplosionRule(WindowRule):
    """Completions grow, and correctness does not."""

    factor: Factor = 2.0
    """Growth of the mean length over its first window. Length that grows without correctness is the bias described in
    Dr. GRPO (arXiv:2503.20783, section 3.1). The factor is a judgement: half of each step's cost buys nothing."""
    limit_share: ShareOf = 0.8
    """Share of `trainer.max_completion_length`, in (0, 1), at which growth counts from `limit_growth` on: DAPO begins
    its overlong punishment there (section 3.4: 16384 of 20480 tokens)."""
    limit_growth: Factor = 1.25
    """Growth that counts near the limit. Judgement: above the noise of a mean over 10 batches."""
    min_gain: Fraction = 0.05
    """Growth is no finding where `reward.primary` has risen by this since the first window (DeepSeek-R1-Zero,
    arXiv:2501.12948, figure 3: length grows for thousands of steps while accuracy does). Judgement: several standard
    errors of a window."""


class TruncationRule(WindowRule):
    """Many completions are cut off at the limit."""

    share: Fraction = 0.25
    """Share of truncated completions, 0 to 1, that every point of the window reaches. Truncation makes rewards noisy
    (DAPO, section 3.4). Judgement: a quarter of the answers is judged by its missing end."""


class LengthAndRewardFallRule(WindowRule):
    """Completions shorten, and the reward falls with them."""

    factor: ShareOf = 0.7
    """Mean length now over its best mean of a window, in (0, 1). Judgement: beyond what a change of form explains."""
    drop: ShareOf = 0.1
    """Fall of the reward from its best mean of a window, as a share of it, in (0, 1). Judgement: several standard
    errors of a window at a mean of 0.5."""


class RewardCollapseRule(WindowRule):
    """The reward falls far below its best."""

    drop: ShareOf = 0.3
    """Fall of the mean reward from its best mean of a window, as a share of it, in (0, 1). Judgement: sound runs of
    the demo vary by a few percent."""
    min_drop: Annotated[Float, Field(ge=0, le=1e6)] = 0.05
    """Smallest fall that counts, in units of the reward: a share of a best near 0 means nothing."""


class FormatHackingRule(WindowRule):
    """A component that is easy to please rises, and `reward.primary` does not."""

    component_gain: Annotated[Float, Field(gt=0, le=1e6)] = 0.1
    """Rise of the component's mean since its first window, in its own unit. Judgement: a tenth of a 0/1 reward."""
    max_primary_gain: Annotated[Float, Field(ge=0, le=1e6)] = 0.02
    """Rise of `reward.primary` up to which it counts as flat. Judgement: two standard errors of a window. The pattern
    is overoptimisation of a proxy (arXiv:2210.10760)."""


class ConstantComponentRule(WindowRule):
    """All completions get the same value from a component."""

    window: Window = 20
    """Points over which the component does not vary. Judgement: twice the usual window, since a rare reward may be
    found late."""


class CheckerRule(WindowRule):
    """The checker gives up on completions, or cannot judge their targets."""

    timeout_share: Fraction = 0.01
    """Share of completions in the window, 0 to 1, that ran into the time limit. Each scores 0 whatever it says.
    Judgement: about the standard error of a window."""
    crash_share: Fraction = 0.01
    """The same of those that killed the checker."""
    unjudgeable_share: Fraction = 0.01
    """The same of those whose target cannot be judged. Targets are checked before training, so any is a surprise."""


class EntropyCollapseRule(WindowRule):
    """The policy stops to explore before it has learned."""

    factor: ShareOf = 0.25
    """Entropy now over that of the first window, in (0, 1). What a policy has left to learn is bounded by its entropy
    (arXiv:2505.22617), and clip-higher exists to keep it (DAPO, section 3.1). The factor is a judgement: sound runs of
    the demo lose three quarters too, but only as they become right."""
    solved: Fraction = 0.8
    """Mean of `reward.primary` from which low entropy is what learning looks like. Judgement: answers that are right
    that often leave little to choose."""
    max_gain: Fraction = 0.02
    """Rise of `reward.primary` over the window before up to which it counts as flat. Judgement: two standard errors."""


class KlDriftRule(WindowRule):
    """The policy is far from where it started, or jumps away from there."""

    level: Annotated[Float, Field(gt=0, le=1e6)] = 1.0
    """KL per token in nats, above 0. Judgement: at 1 nat the policy gives tokens of the reference on average less than
    half of their probability; sound runs of full models stay below 0.1, those of the built-in policy below 0.6."""
    jump_factor: Factor = 5.0
    """A value this many times the median of the window before it is a jump. Judgement: KL grows slower and slower."""
    jump_level: Annotated[Float, Field(ge=0, le=1e6)] = 0.2
    """Smallest value in nats per token that counts as a jump: KL begins at 0, where factors mean nothing."""


class ClipExplosionRule(WindowRule):
    """Much of a batch is clipped, so that later updates on it teach little."""

    share: Fraction = 0.1
    """Share of clipped tokens, mean over the window, 0 to 1. GSPO's figure 2 (arXiv:2507.18071) shows about 0.001 for
    GRPO. Judgement: a hundred times that; a demo run of 8 updates at ten times its rate clips 0.07."""
    sequence_share: Fraction = 0.5
    """The same with `algorithm.importance_sampling_level=sequence`, where the same figure shows about 0.15 in sound
    runs."""


class GradientSpikeRule(WindowRule):
    """The gradient is many times its usual size."""

    window: Window = 20
    """Points before the spike whose median is the usual size. Judgement: long enough for a steady median."""
    factor: Factor = 10.0
    """Norm over that median, before clipping. ZClip (arXiv:2504.02507) acts on outliers of 2.5 standard deviations to
    smooth training; a finding should be rarer. Judgement. Norms up to `trainer.max_grad_norm` are no spikes."""


class NotFiniteRule(Rule):
    """Loss or gradient norm is NaN or infinite; another metric that is only alerts, whatever the action."""

    action: Action = "stop"


class SamplingMismatchRule(WindowRule):
    """vLLM samples from another distribution than the one that is trained."""

    window: Window = 5
    """Points that are all outside. Judgement: the mean ratio hardly varies in sound runs."""
    low: Annotated[Float, Field(gt=0, le=1)] = 0.8
    """Lowest sound mean ratio of the trainer's probability over vLLM's. It is 1 in theory; the range is as far from 1
    as epsilon, beyond which PPO clips (arXiv:1707.06347). Causes: https://fengyao.notion.site/off-policy-rl"""
    high: Annotated[Float, Field(ge=1, le=1000)] = 1.2
    """Highest sound mean ratio, as `low`."""


class ThroughputRule(WindowRule):
    """Steps produce less and less per second."""

    factor: ShareOf = 0.5
    """Tokens per second and completions per second now over their first window, in (0, 1). Both must have fallen:
    longer completions lower one of them, shorter ones the other. Judgement: the run will take twice as long."""


class GenerationShareRule(WindowRule):
    """Most of a step goes into generation."""

    action: Action = "log"
    share: Fraction = 0.8
    """Share of `time/generate` in `time/step`, mean over the window, 0 to 1. Generation dominates GRPO (TRL's guide on
    vLLM); judgement: from here on a faster generator can make steps several times as fast."""


class DynamicSamplingRule(WindowRule):
    """Dynamic sampling throws most groups away, or does not fill its batches."""

    acceptance: Fraction = 0.2
    """Share of generated groups that vary, mean over the window, 0 to 1. Judgement: below it more than four of five
    completions are thrown away. Where `reward.primary` has reached `solved` this is only logged."""
    solved: Fraction = 0.8
    """Mean of `reward.primary` in the first round from which prompts count as learned; as `no_signal.easy_mean`."""
    filled_share: Fraction = 0.25
    """Share of groups in the batch that do not vary, mean over the window, 0 to 1: the rounds ran out. Judgement."""


class HealthRules(Settings):
    """One group of settings for each rule."""

    no_signal: NoSignalRule = NoSignalRule()
    """Groups without variance: too easy or too hard."""
    dynamic_sampling: DynamicSamplingRule = DynamicSamplingRule()
    """The same, where such groups are replaced."""
    length_explosion: LengthExplosionRule = LengthExplosionRule()
    """Length up, correctness flat."""
    truncation: TruncationRule = TruncationRule()
    """Completions that are cut off."""
    length_and_reward_fall: LengthAndRewardFallRule = LengthAndRewardFallRule()
    """Length and reward down."""
    reward_collapse: RewardCollapseRule = RewardCollapseRule()
    """Reward far below its best."""
    format_hacking: FormatHackingRule = FormatHackingRule()
    """Form up, correctness flat."""
    constant_component: ConstantComponentRule = ConstantComponentRule()
    """A component that does not vary."""
    checker: CheckerRule = CheckerRule()
    """Time-outs, crashes, targets that cannot be judged."""
    entropy_collapse: EntropyCollapseRule = EntropyCollapseRule()
    """Entropy gone before the task is learned."""
    kl_drift: KlDriftRule = KlDriftRule()
    """Far from the initial or the reference policy."""
    clip_explosion: ClipExplosionRule = ClipExplosionRule()
    """Too much is clipped; acts with several updates per batch."""
    gradient_spike: GradientSpikeRule = GradientSpikeRule()
    """Gradient norm far above its median."""
    not_finite: NotFiniteRule = NotFiniteRule()
    """NaN or infinity."""
    sampling_mismatch: SamplingMismatchRule = SamplingMismatchRule()
    """vLLM and trainer disagree; acts with vLLM and its correction."""
    throughput: ThroughputRule = ThroughputRule()
    """Slower and slower."""
    generation_share: GenerationShareRule = GenerationShareRule()
    """Where the time goes."""
