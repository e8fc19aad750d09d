"""Looks at every generated completion: counts behaviours, and keeps rows of some batches for a table.

Rows have numbers: over all processes, and with dynamic sampling over all rounds of a batch. Every process knows the
rewards of all rows and the rest of its own, so all of them choose the same groups, and only rows of these are gathered,
cut to size before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from accelerate.utils import gather_object
from trl.trainer.grpo_trainer import GRPOTrainer

from grpo_exp.evaluation.behaviours import BEHAVIOURS, find_behaviours
from grpo_exp.evaluation.completion_rows import (
    CompletionRow,
    TableInfo,
    choose_groups,
    completion_text,
    limited,
    prompt_text,
)
from grpo_exp.rewards.score import Score
from grpo_exp.settings.completion_tables import CompletionTables

# Shapes: N rows of one round over all processes.

#: At most this share of a table are groups that dynamic sampling replaced.
_SHARE_REPLACED = 4


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """What one round brought: the rows of this process, and the rewards of all."""

    inputs: Sequence[Mapping[str, Any]]
    prompts: Sequence[Any]
    completions: Sequence[Any]
    completion_ids: Sequence[Sequence[int]]
    scores: Mapping[str, Sequence[Score]]
    """By component, of the rows of this process."""
    totals_N: torch.Tensor
    """Weighted sums of all processes, NaN where a row cannot be judged."""


class CompletionRecorder:
    """Is told each scored round of a batch, and at last the advantages of the rows that are trained on.

    Args:
        trainer: Its metrics get the rates of behaviours.
        settings: Which batches have a table, and its size.
        steps_per_batch: Optimizer steps that one generated batch is used for.
        on_rows: Called on the main process with a table's rows.
    """

    def __init__(
        self,
        trainer: GRPOTrainer,
        settings: CompletionTables,
        *,
        steps_per_batch: int,
        on_rows: Callable[[TableInfo, list[CompletionRow]], None],
    ) -> None:
        self._trainer = trainer
        self._settings = settings
        self._steps_per_batch = steps_per_batch
        self._on_rows = on_rows
        self._start_batch()

    def add(self, scored: ScoredRows) -> None:
        """Take one round in; all processes bring as many rows."""
        first = self._num_rows + self._trainer.accelerator.process_index * len(scored.prompts)
        found = [find_behaviours(completion_text(completion)) for completion in scored.completions]
        self._counts.update(name for one in found for name in one)
        self._num_mine += len(found)
        self._num_rows += len(scored.totals_N)
        if self._is_due():
            self._totals += [None if math.isnan(total) else total for total in scored.totals_N.tolist()]
            for place, behaviours in enumerate(found):
                self._mine[first + place] = (scored, place, behaviours)

    def keep(self, numbers: Sequence[int]) -> None:
        """Say which rows are trained on, in the order of the batch; without it these are all of them."""
        self._kept = list(numbers)

    def finish(self, advantages: torch.Tensor) -> None:
        """Log the rates, write the table if one is due, and forget the batch.

        Args:
            advantages: Of the rows of this process that are trained on.
        """
        self._log_rates()
        if self._is_due():
            self._hand_on(advantages)
        self._start_batch()

    def _start_batch(self) -> None:
        self._num_rows = 0
        self._num_mine = 0
        self._counts: Counter[str] = Counter()
        self._totals: list[float | None] = []
        self._mine: dict[int, tuple[ScoredRows, int, dict[str, str]]] = {}
        self._kept: list[int] | None = None

    @property
    def _step(self) -> int:
        """The first optimizer step, from 1, that uses the batch."""
        return self._trainer.state.global_step + 1

    def _is_due(self) -> bool:
        """Say whether the first, the last or an N-th step uses the batch."""
        every, first = self._settings.every_steps, self._step
        if every is None:
            return False
        last = first + self._steps_per_batch - 1
        return first == 1 or last >= self._trainer.state.max_steps or last // every > (first - 1) // every

    def _log_rates(self) -> None:
        accelerator = self._trainer.accelerator
        counts = torch.tensor([self._num_mine, *(self._counts[name] for name in BEHAVIOURS)], device=accelerator.device)
        if accelerator.num_processes > 1:
            counts = cast(torch.Tensor, accelerator.reduce(counts, reduction="sum"))
        total, *found = counts.tolist()
        for name, count in zip(BEHAVIOURS, found, strict=True):
            self._trainer._metrics["train"][f"behaviours/{name}_rate"].append(count / total)

    def _hand_on(self, advantages: torch.Tensor) -> None:
        """Gather the chosen rows of all processes, and hand them on where the main one is."""
        accelerator, size = self._trainer.accelerator, self._group_size
        kept = list(range(self._num_rows)) if self._kept is None else self._kept
        all_advantages = cast(torch.Tensor, accelerator.gather(advantages)).tolist()
        advantage_of = dict(zip(kept, all_advantages, strict=True))
        groups = self._choose({number // size for number in kept})
        numbers = [group * size + place for group in groups for place in range(size)]
        mine = [(number, self._row(number, advantage_of)) for number in numbers if number in self._mine]
        gathered = sorted(gather_object(mine), key=lambda pair: pair[0])
        if accelerator.is_main_process:
            self._on_rows(TableInfo("train", self._step, self._num_rows), [row for _, row in gathered])

    @property
    def _group_size(self) -> int:
        assert self._trainer.num_generations is not None  # TRL's type allows for it
        return self._trainer.num_generations

    def _choose(self, kept: set[int]) -> list[int]:
        """Return the groups of the table, ascending: those that are trained on, and some that were replaced."""
        size = self._group_size
        rewards = {group: self._totals[group * size : (group + 1) * size] for group in range(self._num_rows // size)}
        wanted = max(1, self._settings.max_rows // size)
        replaced = {group: values for group, values in rewards.items() if group not in kept}
        num_replaced = min(len(replaced), max(wanted // _SHARE_REPLACED, wanted - len(kept)))
        of_kept = choose_groups({group: rewards[group] for group in kept}, wanted - num_replaced)
        return sorted(of_kept + choose_groups(replaced, num_replaced))

    def _row(self, number: int, advantage_of: Mapping[int, float]) -> CompletionRow:
        scored, place, behaviours = self._mine[number]
        inputs, ids = scored.inputs[place], scored.completion_ids[place]
        pad = cast(int, self._trainer._tokenizer.pad_token_id)
        ends = {*self._trainer.eos_token_ids, pad}  # as TRL tells what was cut off
        row = CompletionRow(
            prompt=prompt_text(scored.prompts[place]),
            completion=completion_text(scored.completions[place]),
            target=inputs["target"],
            scores={name: scores[place] for name, scores in scored.scores.items()},
            reward=self._totals[number],
            length=len(ids),
            truncated=bool(ids) and ids[-1] not in ends,
            group=number // self._group_size,
            advantage=advantage_of.get(number),
            kept=number in advantage_of,
            behaviours=behaviours,
            columns={name: text for name, text in inputs.items() if name not in {"prompt", "target"}},
        )
        return limited(row, self._settings.max_characters)
