"""What every data set goes through behind its source, in this order, with a count of what is left out at each step.

1. prompts of other benchmarks (`exclude`)
2. prompts with too many tokens (`max_prompt_length`)
3. prompts that are too easy or too hard (`pass_rates`)
4. rows whose target the reward cannot judge
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import compress

from grpo_exp.data.exclusion import leave_out_excluded
from grpo_exp.data.pass_rates import filter_by_pass_rate
from grpo_exp.data.prompt_tokens import TokenCounter
from grpo_exp.data.prompts import PromptData
from grpo_exp.rewards.target_check import check_rows
from grpo_exp.settings.dataset import DatasetSettings
from grpo_exp.settings.reward import RewardSettings


def prepare_rows(
    data: PromptData, settings: DatasetSettings, *, counter: TokenCounter | None, reward: RewardSettings | None
) -> PromptData:
    """Return the rows that can be used.

    Args:
        data: Rows of a source; train and evaluation share no prompt.
        settings: Of the data set.
        counter: Counts tokens; None where no limit is set.
        reward: Judges targets; None keeps all.

    Raises:
        ConfigError: A file cannot be used, tokens cannot be counted, or more than 5 % of the targets cannot be judged.
    """
    data = leave_out_excluded(data, settings.exclude, settings.prompt_template)
    if counter is not None and settings.max_prompt_length is not None:
        data = leave_out_long(data, counter, settings.max_prompt_length)
    data = filter_by_pass_rate(data, settings.pass_rates)
    return data if reward is None else leave_out_unjudgeable(data, reward)


def leave_out_long(data: PromptData, counter: TokenCounter, limit: int) -> PromptData:
    """Return the rows whose prompt has at most `limit` tokens, chat template included."""
    rows = (*data.train, *data.evaluation)
    is_short = [count <= limit for count in counter.count([row.prompt for row in rows])]
    return _keep(data, is_short, {f"with more than {limit} tokens": is_short.count(False)})


def leave_out_unjudgeable(data: PromptData, reward: RewardSettings) -> PromptData:
    """Return the rows whose target the reward can judge; the others are counted and listed by reason.

    Raises:
        DataError: More than 5 % of the rows would be left out.
    """
    rows = (*data.train, *data.evaluation)
    report = check_rows(reward, [row.to_dict() for row in rows])
    if not report.unjudgeable:
        return data
    left_out = {entry.row for entry in report.unjudgeable}
    reasons = {(name, reason): f"whose target {name} cannot judge ({reason})" for name, reason in report.counts}
    kept = _keep(
        data,
        [row not in left_out for row in range(len(rows))],
        {text: report.counts[key] for key, text in reasons.items()},
    )
    targets = {
        text: tuple(entry.target for entry in report.unjudgeable if (entry.component, entry.reason) == key)
        for key, text in reasons.items()
    }
    return dataclasses.replace(kept, dropped_targets={**data.dropped_targets, **targets})


def _keep(data: PromptData, is_kept: list[bool], counts: dict[str, int]) -> PromptData:
    """Return the rows that are kept, training rows first in the list."""
    if all(is_kept):
        return data
    return dataclasses.replace(
        data,
        train=tuple(compress(data.train, is_kept)),
        evaluation=tuple(compress(data.evaluation, is_kept[len(data.train) :])),
        dropped=Counter(data.dropped) + Counter(counts),
    )
