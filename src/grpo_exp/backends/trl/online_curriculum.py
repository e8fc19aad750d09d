"""Prompts drawn by how often the policy solves them: most often those that it solves about half of the time.

A prompt whose completions are all right or all wrong gives no advantage. The variance of success, p (1 - p), says how
much a prompt can teach, and prompts are drawn in proportion to it (sampling for learnability, arXiv:2502.12272).

Unlike the other orders this one depends on what happened so far, so its state is part of a checkpoint. It is asked for
prompts when a batch is generated, not by the sampler, which looks ahead: a resumed run draws the same ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from grpo_exp.backends.trl.prompt_order import permutation
from grpo_exp.backends.trl.seeds import derive_seed
from grpo_exp.backends.trl.trainer import TimedGRPOTrainer
from grpo_exp.settings.dataset_preparation import Curriculum

# Shapes: N rows over all processes, K reward components.

#: Column of the data set with the number of the row, as text like all further columns.
INDEX_COLUMN = "prompt_index"
#: Success that a prompt is taken to have until it has been seen: it may be worth the most.
_UNSEEN = 0.5


class OnlineCurriculum:
    """Estimates of how often each prompt is solved, and draws that follow from them and the seed.

    Args:
        rates: What is known beforehand, by prompt: 0 to 1, or None.
        seed: Of the run.
        settings: Exploration and memory.
    """

    def __init__(self, rates: Sequence[float | None], seed: int, settings: Curriculum) -> None:
        self._rates = list(rates)
        self._seed = seed
        self._settings = settings
        self._seen = [False] * len(self._rates)
        #: How many have been drawn; with the estimates all that the state is.
        self.position = 0

    def take(self, count: int) -> list[int]:
        """Draw prompts, no one twice where there are enough."""
        draws = random.Random(derive_seed(self._seed, "online curriculum", self.position))
        self.position += count
        size = len(self._rates)
        rounds, rest = divmod(count, size)
        taken = [index for number in range(rounds) for index in permutation(size, self._seed, self.position, number)]
        return taken + self._draw(rest, draws)

    def _draw(self, count: int, draws: random.Random) -> list[int]:
        """Draw without putting back: some alike, the others by weight w, as the largest log(u) / w of uniform u."""
        uniform = [draws.random() for _ in self._rates]
        explored = math.floor(count * self._settings.exploration + draws.random())
        alike = sorted(range(len(uniform)), key=uniform.__getitem__)[: min(explored, count)]
        chosen = set(alike)
        keys = [(w > 0, math.log(1 - draws.random()) / w if w > 0 else draws.random()) for w in self._weights()]
        by_weight = sorted((i for i in range(len(keys)) if i not in chosen), key=keys.__getitem__, reverse=True)
        return alike + by_weight[: count - len(alike)]

    def _weights(self) -> list[float]:
        return [self.estimate(index) * (1 - self.estimate(index)) for index in range(len(self._rates))]

    def estimate(self, index: int) -> float:
        """Return how often a prompt is taken to be solved, 0 to 1."""
        rate = self._rates[index]
        return _UNSEEN if rate is None else rate

    def observe(self, index: int, success: float) -> None:
        """Take in the mean success of a group, 0 to 1."""
        old = self._rates[index]
        memory = self._settings.memory if old is not None else 0.0
        self._rates[index] = success if old is None else memory * old + (1 - memory) * success
        self._seen[index] = True

    @property
    def seen_fraction(self) -> float:
        """Share of the prompts that have been trained on."""
        return sum(self._seen) / len(self._seen)

    def state(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        return {"position": self.position, "rates": list(self._rates), "seen": list(self._seen)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.position, self._rates, self._seen = state["position"], list(state["rates"]), list(state["seen"])


class CurriculumTrainer(TimedGRPOTrainer):
    """Trainer whose batches hold the prompts that a curriculum draws, in place of those of the sampler.

    Args:
        curriculum: Draws them. All processes hold the same state, since rewards are gathered.
        **kwargs: Arguments of TimedGRPOTrainer; the data set has the column INDEX_COLUMN.
    """

    def __init__(self, *, curriculum: OnlineCurriculum, **kwargs: Any) -> None:
        self.curriculum = curriculum
        super().__init__(**kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if self._is_training:
            inputs[:] = self._draw(len(inputs))
        return super()._generate_and_score_completions(inputs)

    def _draw(self, count: int) -> list[dict[str, Any]]:
        """Return this process's rows of a batch: each prompt as often as a group is large."""
        assert self.num_generations is not None  # TRL's type allows for it
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        drawn = self.curriculum.take(count * world // self.num_generations)
        metrics = self._metrics["train"]
        expected = sum(self.curriculum.estimate(index) for index in drawn) / len(drawn)
        metrics["curriculum/expected_success"].append(expected)
        metrics["curriculum/seen_fraction"].append(self.curriculum.seen_fraction)
        indices = [index for index in drawn for _ in range(self.num_generations)]
        rows: Any = self.train_dataset
        return [dict(rows[index]) for index in indices[rank * count : (rank + 1) * count]]

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        rewards_NK = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self._is_training:
            here = torch.tensor([int(row[INDEX_COLUMN]) for row in inputs], device=self.accelerator.device)
            indices_N: Any = self.accelerator.gather(here)
            self._observe(indices_N.tolist(), rewards_NK[:, self._primary].tolist())
        return rewards_NK

    def _observe(self, indices_N: list[int], values_N: list[float]) -> None:
        found: dict[int, list[float]] = {}
        for index, value in zip(indices_N, values_N, strict=True):
            if not math.isnan(value):  # a target that cannot be judged says nothing
                found.setdefault(index, []).append(min(1.0, max(0.0, value)))
        for index, values in found.items():
            self.curriculum.observe(index, sum(values) / len(values))
