"""TRL's GRPOTrainer with a clock around its hooks, and rows left out that cannot be judged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from grpo_exp.backends.trl.agreement import together
from grpo_exp.backends.trl.completion_recorder import CompletionRecorder, ScoredRows
from grpo_exp.backends.trl.kl_probe import KlProbe
from grpo_exp.backends.trl.prompt_order import PromptOrder, PromptOrderSampler
from grpo_exp.backends.trl.reward_batch import OUTCOMES, RewardBatch
from grpo_exp.backends.trl.seeds import seed_rollouts, seeded_engine

# Shapes: N completions over all processes, K reward components, O outcomes.


#: Below it an advantage is rounding: rewards have 64 bits until here, so equal ones leave at most 1e-8.
_NO_ADVANTAGE = 1e-7


def without_rounding(advantages: torch.Tensor) -> torch.Tensor:
    """Return advantages in 32 bits, exactly 0 where only rounding made them something else."""
    return torch.where(advantages.abs() < _NO_ADVANTAGE, 0.0, advantages).float()


class StepClock:
    """Seconds spent in the phases of one optimizer step, on this process."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._phases: dict[str, float] = {}

    def start_step(self) -> None:
        """Forget the last step."""
        self._started, self._phases = time.perf_counter(), {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time inside to a phase."""
        before = time.perf_counter()
        try:
            yield
        finally:
            self._phases[name] = self._phases.get(name, 0.0) + time.perf_counter() - before

    def read(self) -> dict[str, float]:
        """Return `time/step`, `time/train` and the phases that happened, in seconds."""
        step = time.perf_counter() - self._started
        phases = {f"time/{name}": seconds for name, seconds in self._phases.items()}
        return {**phases, "time/train": step - sum(self._phases.values()), "time/step": step}


class TimedGRPOTrainer(GRPOTrainer):
    """GRPOTrainer that measures its phases, scores all components at once and leaves unjudgeable rows out.

    Args:
        rewards: The reward; its functions become TRL's.
        primary: Index of the component that is judged, among the reward functions.
        clock: Where the times go.
        order: Of the prompts in each epoch; None shuffles.
        **kwargs: GRPOTrainer's other arguments.
    """

    def __init__(
        self,
        *,
        rewards: RewardBatch,
        primary: int,
        clock: StepClock,
        order: PromptOrder | None = None,
        **kwargs: Any,
    ) -> None:
        self._rewards = rewards
        self._order = order
        self._primary = primary
        self._clock = clock
        #: Set by whoever wants the KL from the initial policy.
        self.kl_probe: KlProbe | None = None
        #: Set by whoever wants rates of behaviours and tables of completions.
        self.completions: CompletionRecorder | None = None
        with seeded_engine(kwargs["args"]):
            super().__init__(reward_funcs=list[Any](rewards.functions()), **kwargs)
        seed_rollouts(cast(GRPOConfig, self.args), self.accelerator.process_index)

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        repeats, arguments = cast(RepeatSampler, super()._get_train_sampler(dataset)), cast(GRPOConfig, self.args)
        assert arguments.generation_batch_size is not None  # GRPOConfig works it out
        repeats.shuffle = False  # the order is ours; what is repeated for groups and micro-steps stays TRL's
        steps = len(repeats) // (arguments.generation_batch_size * arguments.gradient_accumulation_steps)
        return PromptOrderSampler(repeats, arguments.seed, lambda: self.state.global_step // steps, self._order)

    def _generate(self, prompts: list[Any]) -> Any:
        with self._clock.phase("generate"):
            return super()._generate(prompts)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        batch["advantages"] = without_rounding(batch["advantages"])
        if self.kl_probe is not None and self.state.global_step == 0:  # the policy has not moved yet
            self.kl_probe.keep(batch)
        if self.completions is not None and self._is_training:
            with self._clock.phase("reward"):
                self.completions.finish(batch["advantages"])
        return batch

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        with self._clock.phase("reward"):
            self._score(inputs, prompts, completions, completion_ids_list)
            rewards_NK = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        # TRL divides by std + 1e-4. In 32 bits the mean of equal rewards is not quite their value, and the advantages
        # of a group without variance come out at up to 1e-3; with normalize_then_sum, which divides twice, at up to 1.
        rewards_NK = rewards_NK.double()
        weights = self._rewards.weights_at(self.state.global_step)
        self.reward_weights = torch.tensor(weights, dtype=torch.float32)
        # A target that cannot be judged must not be trained on its form alone: the whole row is left out.
        rewards_NK[torch.isnan(rewards_NK[:, self._primary])] = torch.nan
        if self.completions is not None and self._is_training:
            with self._clock.phase("reward"):
                totals_N = torch.nansum(rewards_NK * self.reward_weights.to(rewards_NK.device), dim=1)
                totals_N[torch.isnan(rewards_NK[:, self._primary])] = torch.nan
                # Lists of their own: dynamic sampling rewrites those of inputs and prompts in place.
                given = (list(inputs), list(prompts), completions, completion_ids_list)
                self.completions.add(ScoredRows(*given, self._rewards.scores, totals_N))
        return rewards_NK

    @property
    def _is_training(self) -> bool:
        assert self.model is not None  # transformers' type allows for it
        return self.model.training

    def _score(self, inputs: Any, prompts: Any, completions: Any, completion_ids: Any) -> None:
        """Score on this process's rows; a fault on one process ends all of them, before they wait for each other."""
        together(
            self.accelerator,
            lambda: self._rewards.score(inputs, prompts, completions, completion_ids),
            what="the reward",
        )
        counts_KO = torch.tensor(self._rewards.outcomes(), device=self.accelerator.device)
        if self.accelerator.num_processes > 1:
            counts_KO = cast(torch.Tensor, self.accelerator.reduce(counts_KO, reduction="sum"))
        metrics = self._metrics["train" if self._is_training else "eval"]
        for name, counts in zip(self.reward_func_names, counts_KO.tolist(), strict=True):
            for outcome, count in zip(OUTCOMES, counts, strict=True):
                metrics[f"rewards/{name}/{outcome}"].append(float(count))
