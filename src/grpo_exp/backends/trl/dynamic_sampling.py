"""Dynamic sampling: groups that do not vary are replaced before anything is computed on them (arXiv:2503.14476, 3.2).

TRL asks `_generate` for the completions of its prompts and computes all else from what it returns. Here `_generate`
goes through several rounds, scores each, and returns the rows that are kept; prompts and inputs are replaced in the
lists that TRL goes on with, and its own call for rewards gets those that were computed already.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from accelerate.utils import gather_object
from datasets import Dataset

from grpo_exp.backends.trl.group_selection import GroupSelection
from grpo_exp.backends.trl.prompt_order import PromptSource, PromptStream
from grpo_exp.backends.trl.reward_batch import OUTCOMES
from grpo_exp.backends.trl.trainer import TimedGRPOTrainer
from grpo_exp.errors import ConfigError, RunError

# Shapes: N rows over all processes, K reward components, B groups, G completions of a group.

#: Written by TRL once for each round. The last two are of no further use: no curve of ours is made of them.
_LENGTH_METRICS = tuple(
    f"completions/{name}"
    for name in (
        "mean_length", "min_length", "max_length", "clipped_ratio", "mean_terminated_length",
        "min_terminated_length", "max_terminated_length",
    )
)  # fmt: skip
#: Columns from which TRL takes images by itself.
_IMAGE_COLUMNS = frozenset({"image", "images"})


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """When a batch is full, and what happens if it does not get full."""

    metric: int
    """Index of the component that a group must vary in, among the reward functions."""
    max_rounds: int
    """Rounds of generation for one batch, the first one included."""
    on_exhausted: Literal["keep", "raise"]
    """Fill the batch with groups that do not vary, or end the run."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One completion with all that TRL wants to know about it."""

    inputs: dict[str, Any]
    prompt: Any
    prompt_ids: list[int]
    completion_ids: list[int]
    completion: Any
    logprobs: list[float | None] | None


@dataclass(slots=True)
class _Batch:
    """One generated batch while it is being filled. Rows have numbers: over all rounds, processes and groups."""

    inputs: list[dict[str, Any]]
    """TRL's list, rewritten in place."""
    mine: dict[int, _Row] = field(default_factory=dict)
    """Rows that this process generated."""
    rounds_NK: list[torch.Tensor] = field(default_factory=list)
    """Rewards of each round, of all processes."""
    rounds_N2: list[torch.Tensor] = field(default_factory=list)
    """Tokens of each completion of each round, and 1 where it ended by itself."""
    rewards_NK: torch.Tensor | None = None
    """Rewards of the rows that are kept, once they are known."""


class DynamicSamplingTrainer(TimedGRPOTrainer):
    """Trainer whose batches hold groups that vary, as far as rounds of generation bring them.

    Args:
        rules: When a batch is full.
        **kwargs: Arguments of TimedGRPOTrainer.

    Raises:
        ConfigError: Tools, environments, images or a stream of prompts are given.
    """

    def __init__(self, *, rules: SamplingRules, **kwargs: Any) -> None:
        self._rules = rules
        self._batch: _Batch | None = None
        super().__init__(**kwargs)
        self._refuse_what_cannot_be_replaced()
        self._prompt_stream: PromptSource = PromptStream(
            len(self._rows), self.args.seed, "dynamic sampling", self._order
        )

    def draw_from(self, source: PromptSource) -> None:
        """Take the prompts of further rounds from elsewhere."""
        self._prompt_stream = source

    def sampling_state(self) -> dict[str, int]:
        """Return what a checkpoint must hold, so that a resumed run draws the same prompts."""
        return {"position": self._prompt_stream.position}

    def load_sampling_state(self, state: dict[str, int]) -> None:
        """Go on where `sampling_state` was taken."""
        self._prompt_stream.position = state["position"]

    @property
    def _rows(self) -> Dataset:
        return cast(Dataset, self.train_dataset)

    @property
    def _group_size(self) -> int:
        assert self.num_generations is not None  # TRL's type allows for it
        return self.num_generations

    def _refuse_what_cannot_be_replaced(self) -> None:
        """Refuse what ties a completion to more than its row: it could not be moved to another place of the batch."""
        if not isinstance(self.train_dataset, Dataset):
            raise ConfigError(
                "algorithm.dynamic_sampling.enabled=true: further prompts are drawn by number, and this data set is a "
                "stream; use one in memory, or algorithm.dynamic_sampling.enabled=false"
            )
        given = {
            "tools": bool(self.tools),
            "environments": self.environment_factories is not None,
            "a rollout function": self.rollout_func is not None,
            "images": self._is_vlm or bool(_IMAGE_COLUMNS.intersection(self.train_dataset.column_names)),
        }
        found = [name for name, is_given in given.items() if is_given]
        if found:
            raise ConfigError(
                f"algorithm.dynamic_sampling.enabled=true: this run has {' and '.join(found)}, and groups can be "
                "replaced only where a completion is text that follows from its row; use "
                "algorithm.dynamic_sampling.enabled=false"
            )

    # ------------------------------------------------------------------------------------------- TRL's hooks

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        assert self.model is not None
        if not self.model.training:  # an evaluation measures the prompts it is given
            return super()._generate_and_score_completions(inputs)
        self._batch = _Batch(list(inputs))
        try:
            return super()._generate_and_score_completions(self._batch.inputs)
        finally:
            self._batch = None

    def _generate(self, prompts: list[Any]) -> Any:
        batch = self._batch
        if batch is None:
            return super()._generate(prompts)
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        selection = GroupSelection(len(prompts) * world // self._group_size)
        self._add_round(batch, selection, batch.inputs, prompts)
        while selection.num_missing and selection.num_rounds < self._rules.max_rounds:
            drawn = self._prompt_stream.take(selection.count_next(world, self._group_size))
            indices = [index for index in drawn for _ in range(self._group_size)]
            share = len(indices) // world
            inputs = [dict(self._rows[index]) for index in indices[rank * share : (rank + 1) * share]]
            self._add_round(batch, selection, inputs, [row["prompt"] for row in inputs])
        if selection.num_missing and self._rules.on_exhausted == "raise":
            raise RunError(self._exhausted(selection))
        return self._finish(batch, selection, prompts)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        if self._batch is None:
            return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        assert self._batch.rewards_NK is not None  # `_generate` has scored them
        return self._batch.rewards_NK

    # ---------------------------------------------------------------------------------------- rounds of a batch

    def _add_round(self, batch: _Batch, selection: GroupSelection, inputs: list[Any], prompts: list[Any]) -> None:
        """Generate and score one round; the decision is taken on the rewards of all processes."""
        prompt_ids, completion_ids, _, completions, logprobs, _, _, _ = super()._generate(prompts)
        rewards_NK = super()._calculate_rewards(inputs, prompts, completions, completion_ids)
        first = selection.num_drawn * self._group_size + self.accelerator.process_index * len(prompts)
        parts = zip(inputs, prompts, prompt_ids, completion_ids, completions, strict=True)
        for place, part in enumerate(parts):
            batch.mine[first + place] = _Row(*part, logprobs=None if logprobs is None else logprobs[place])
        ends = {*self.eos_token_ids, cast(int, self._tokenizer.pad_token_id)}  # as TRL tells what was cut off
        facts = [[len(ids), int(ids[-1] in ends)] for ids in completion_ids]
        facts_N2 = self.accelerator.gather(torch.tensor(facts, device=self.accelerator.device))
        batch.rounds_NK.append(rewards_NK)
        batch.rounds_N2.append(cast(torch.Tensor, facts_N2))
        values_BG = rewards_NK[:, self._rules.metric].view(-1, self._group_size)
        selection.add_round(values_BG.tolist())

    def _finish(self, batch: _Batch, selection: GroupSelection, prompts: list[Any]) -> tuple[Any, ...]:
        """Share the kept rows out over the processes, and return this one's as `_generate` does."""
        size = self._group_size
        kept = [group * size + place for group in selection.choose() for place in range(size)]
        found = dict(gather_object([(number, batch.mine[number]) for number in kept if number in batch.mine]))
        if self.completions is not None:
            self.completions.keep(kept)
        start = self.accelerator.process_index * len(prompts)
        rows = [found[number] for number in kept[start : start + len(prompts)]]
        batch.inputs[:] = [row.inputs for row in rows]
        prompts[:] = [row.prompt for row in rows]
        batch.rewards_NK = torch.cat(batch.rounds_NK)[kept]
        self._log_rounds(batch, selection, kept)
        logprobs = None if rows[0].logprobs is None else [row.logprobs for row in rows]
        return (
            [row.prompt_ids for row in rows],
            [row.completion_ids for row in rows],
            None,
            [row.completion for row in rows],
            logprobs,
            {},
            None,
            [],
        )

    def _log_rounds(self, batch: _Batch, selection: GroupSelection, kept: list[int]) -> None:
        """Let TRL's curves be those of the kept rows, count outcomes over all, and add what the kept rows hide."""
        metrics = self._metrics["train"]
        for name in _LENGTH_METRICS:
            del metrics[name][-selection.num_rounds :]
        for name in (f"rewards/{name}/{outcome}" for name in self.reward_func_names for outcome in OUTCOMES):
            metrics[name][-selection.num_rounds :] = [sum(metrics[name][-selection.num_rounds :])]
        facts_N2 = torch.cat(batch.rounds_N2)
        kept_N2 = facts_N2[kept]
        lengths, ended = kept_N2[:, 0].float(), kept_N2[:, 1].bool()
        found = {
            "completions/mean_length": lengths.mean().item(),
            "completions/min_length": lengths.min().item(),
            "completions/max_length": lengths.max().item(),
            "completions/clipped_ratio": 1 - ended.float().mean().item(),
            "completions/mean_terminated_length": lengths[ended].mean().item(),  # NaN where none ended: absent
        }
        first_N2 = batch.rounds_N2[0].float().mean(dim=0)
        first_NK = batch.rounds_NK[0]
        first_K = torch.nanmean(first_NK, dim=0)
        first_N = torch.nansum(first_NK * self.reward_weights.to(first_NK.device), dim=1)
        judged_N = ~torch.isnan(first_NK).all(dim=1)
        found |= {
            "dynamic_sampling/rounds": float(selection.num_rounds),
            "dynamic_sampling/acceptance_rate": selection.acceptance_rate,
            "dynamic_sampling/filled_groups": float(selection.num_missing),
            "dynamic_sampling/discarded_completions": float(len(facts_N2) - len(kept)),
            "dynamic_sampling/discarded_tokens": float((facts_N2[:, 0].sum() - kept_N2[:, 0].sum()).item()),
            "dynamic_sampling/reward": first_N[judged_N].mean().item(),  # NaN where no row was judged: absent
            "dynamic_sampling/completion_length/mean": first_N2[0].item(),
            "dynamic_sampling/completion_length/truncated_fraction": 1 - first_N2[1].item(),
        }
        for name, mean in zip(self.reward_func_names, first_K.tolist(), strict=True):
            found[f"dynamic_sampling/rewards/{name}/mean"] = mean
        for name, value in found.items():
            metrics[name].append(value)

    def _exhausted(self, selection: GroupSelection) -> str:
        name = self.reward_func_names[self._rules.metric]
        return (
            f"algorithm.dynamic_sampling.max_rounds={self._rules.max_rounds}: after so many rounds "
            f"{selection.num_varying} of {selection.wanted} groups vary in {name!r} "
            f"({selection.acceptance_rate:.1%} of {selection.num_drawn}), and on_exhausted=raise wants a "
            "full batch; raise max_rounds, use prompts of another difficulty or a larger algorithm.num_generations, "
            "or set on_exhausted=keep"
        )
