"""What surprises people in the first steps, explained in one line each. Pure: numbers in, lines out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from grpo_exp.settings.run import RunSettings

#: Only these steps are explained: later a value has a history that says more than a general remark.
FIRST_STEPS = 3
#: A loss of at most this size makes people ask whether anything is learned; advantages are of order 1.
NEAR_ZERO_LOSS = 0.05
#: From this share on, groups without variance cost half of the batch or more.
MANY_DEAD_GROUPS = 0.5
#: Loss types whose value is the mean advantage where the ratio is 1.
_MEAN_ADVANTAGE = frozenset({"grpo", "dapo", "dr_grpo", "bnpo", "luspo"})


@dataclass(frozen=True, slots=True)
class Explanation:
    """One remark; its topic is told once in the life of a run."""

    topic: str
    text: str


class Explainer:
    """Looks at the metrics of the first steps.

    Args:
        settings: The run.
        told: Topics that earlier attempts of the run have explained.
    """

    def __init__(self, settings: RunSettings, *, told: Collection[str] = ()) -> None:
        self._settings = settings
        self._told = set(told)

    def observe(self, step: int, metrics: Mapping[str, float]) -> list[Explanation]:
        """Return what is worth a word at this step.

        Args:
            step: Optimizer step, from 1; nothing is explained behind FIRST_STEPS.
            metrics: Finite metrics by name.
        """
        if not self._settings.health.enabled or step > FIRST_STEPS:
            return []
        texts = {
            "loss_near_zero": self._loss_near_zero(metrics),
            "clip_ratios_zero": self._clip_ratios_zero(metrics),
            "dead_groups": self._dead_groups(metrics),
        }
        new = [
            Explanation(topic, text) for topic, text in texts.items() if text is not None and topic not in self._told
        ]
        self._told.update(explanation.topic for explanation in new)
        return new

    @property
    def _is_on_policy(self) -> bool:
        """Whether each generated batch is used for one update, so that the ratio of the policies is exactly 1."""
        algorithm = self._settings.algorithm
        return algorithm.updates_per_batch * algorithm.num_iterations == 1

    def _loss_near_zero(self, metrics: Mapping[str, float]) -> str | None:
        loss, norm = metrics.get("train/loss"), metrics.get("train/grad_norm")
        if loss is None or norm is None or not self._is_on_policy:
            return None
        if abs(loss) > NEAR_ZERO_LOSS or norm == 0 or self._settings.algorithm.loss_type not in _MEAN_ADVANTAGE:
            return None
        return (
            f"loss {loss:.4f} is near 0 by construction: each batch is used for one update, so the policy ratio is "
            "exactly 1, and the advantages of a group sum to 0; the value says nothing, the gradient teaches "
            f"(grad_norm {norm:.3g}): watch reward and held-out accuracy instead"
        )

    def _clip_ratios_zero(self, metrics: Mapping[str, float]) -> str | None:
        clipped = [
            value
            for name, value in metrics.items()
            if name.startswith("train/clip_ratio/") or name == "train/cispo_clip_ratio"
        ]
        if not self._is_on_policy or not clipped or any(clipped):
            return None
        return (
            "clip ratios are 0 because each batch is used for one update: the policy ratio is exactly 1, so nothing "
            "is clipped and epsilon has no say; they move with algorithm.updates_per_batch or num_iterations above 1"
        )

    def _dead_groups(self, metrics: Mapping[str, float]) -> str | None:
        share = metrics.get("train/frac_reward_zero_std")
        if share is None or share < MANY_DEAD_GROUPS:
            return None
        algorithm, name = self._settings.algorithm, self._settings.reward.primary
        if algorithm.scale_rewards == "batch" or algorithm.multi_objective_aggregation == "normalize_then_sum":
            what = "all rewards of the batch are equal (frac_reward_zero_std 1), so nothing is learned from it"
        else:
            what = (
                f"{share:.0%} of the groups got equal rewards for all their completions (frac_reward_zero_std "
                f"{share:.2f}): their advantages are 0 and they teach nothing"
            )
        mean = metrics.get(f"train/rewards/{name}/mean")
        seen = "" if mean is None else f" (mean {name} {mean:.3f})"
        replace = "" if algorithm.dynamic_sampling.enabled else ", or set algorithm.dynamic_sampling.enabled=true"
        return (
            f"{what}; if the prompts are too hard or too easy{seen}, take others, else raise "
            f"algorithm.num_generations (now {algorithm.num_generations}){replace}"
        )
