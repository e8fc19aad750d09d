"""What rules need to know of a run's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.reward import Component
from grpo_exp.settings.run import RunSettings

#: Kinds of components whose best value is known and not 1.
_BEST_IS_ZERO = frozenset({"overlong", "repetition"})


@dataclass(frozen=True, slots=True)
class ComponentFacts:
    """A component of the reward.

    Attributes:
        kind: What it judges by.
        weight: Its factor in the reward, without its schedule.
        best: The value of a completion that it has nothing to say against; None where nobody knows.
    """

    kind: str
    weight: float
    best: float | None


@dataclass(frozen=True, slots=True)
class Facts:
    """A run, as far as rules care.

    Attributes:
        primary: Name of the component that is judged.
        components: All components by name.
        is_scheduled: Whether a weight changes over training, so that the reward moves by itself.
        is_filtered: Whether dynamic sampling chooses the groups, so that curves of the batch say little.
        is_judged_as_one: Whether the whole batch is one group for `frac_reward_zero_std`.
        is_on_policy: Whether each batch is used for one update, so that nothing can be clipped.
        is_sequence_level: Whether ratios are taken over whole completions.
        num_generations: Completions of a group.
        groups_per_batch: Groups of a generated batch.
        max_completion_length: Limit in tokens.
        max_grad_norm: Norm that gradients are scaled down to.
        scales_loss: Whether the loss is scaled (fp16), so that a step whose gradient overflows is skipped.
        dataset_kind: Where the prompts come from.
        uses_vllm: Whether vLLM generates.
    """

    primary: str
    components: Mapping[str, ComponentFacts]
    is_scheduled: bool
    is_filtered: bool
    is_judged_as_one: bool
    is_on_policy: bool
    is_sequence_level: bool
    num_generations: int
    groups_per_batch: int
    max_completion_length: int
    max_grad_norm: float
    scales_loss: bool
    dataset_kind: str
    uses_vllm: bool

    @classmethod
    def of(cls, settings: RunSettings) -> Facts:
        """Collect the facts of a run."""
        algorithm, trainer, components = settings.algorithm, settings.trainer, settings.reward.components
        return cls(
            primary=settings.reward.primary,
            components={name: _facts_of(component) for name, component in components.items()},
            is_scheduled=any(component.schedule.kind != "constant" for component in components.values()),
            is_filtered=algorithm.dynamic_sampling.enabled,
            is_judged_as_one=algorithm.scale_rewards == "batch"
            or algorithm.multi_objective_aggregation == "normalize_then_sum",
            is_on_policy=algorithm.updates_per_batch * algorithm.num_iterations == 1,
            is_sequence_level=algorithm.importance_sampling_level == "sequence",
            num_generations=algorithm.num_generations,
            groups_per_batch=solve_batch(settings).prompts_per_generation,
            max_completion_length=trainer.max_completion_length,
            max_grad_norm=trainer.max_grad_norm,
            scales_loss=settings.launch.mixed_precision == "fp16",
            dataset_kind=settings.dataset.kind,
            uses_vllm=settings.vllm.mode != "off",
        )

    @property
    def reward_curve(self) -> str:
        """Name of the curve that says how the policy does: the reward, or the primary component if weights move."""
        return self.component_curve(self.primary) if self.is_scheduled else self.unchosen("reward")

    @property
    def primary_curve(self) -> str:
        """Name of the curve of the component that is judged."""
        return self.component_curve(self.primary)

    @property
    def length_curve(self) -> str:
        """Name of the curve of the mean length."""
        return self.unchosen("completion_length/mean")

    def component_curve(self, name: str) -> str:
        """Return the name of a component's mean."""
        return self.unchosen(f"rewards/{name}/mean")

    def unchosen(self, name: str) -> str:
        """Return the name of a curve, with dynamic sampling that of the first round, whose prompts nobody chose."""
        return f"train/dynamic_sampling/{name}" if self.is_filtered else f"train/{name}"


def _facts_of(component: Component) -> ComponentFacts:
    best: float | None = 0.0 if component.kind in _BEST_IS_ZERO else 1.0
    if component.kind == "python" or component.weight < 0:
        best = None
    if component.kind == "cosine_length":
        best = component.right_short
    return ComponentFacts(component.kind, component.weight, best)
