"""A batch of four rows, laid out by hand.

Row  prompt  completion  advantage
0    2       4           1
1    3       1           0
2    1       2           -1
3    2       3           0.5, but no token in the loss (truncated)
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo_exp.backends.trl.micro_batches import LayoutRules, MicroBatch, count, join, lay_out, rows_with_gradient
from grpo_exp.errors import RunError

PROMPTS, COMPLETIONS, WIDTHS = (2, 3, 1, 2), (4, 1, 2, 3), (3, 4)


def a_batch() -> dict[str, torch.Tensor]:
    """Return the batch; the id of a token says its row and place: 10 x row + place, prompts from 100 on."""
    prompt_ids, prompt_mask = torch.zeros(4, 3, dtype=torch.long), torch.zeros(4, 3, dtype=torch.long)
    completion_ids, completion_mask = torch.zeros(4, 4, dtype=torch.long), torch.zeros(4, 4, dtype=torch.long)
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        prompt_ids[row, 3 - prompt :] = 100 + 10 * row + torch.arange(prompt)
        prompt_mask[row, 3 - prompt :] = 1
        completion_ids[row, :completion] = 10 * row + torch.arange(completion)
        completion_mask[row, :completion] = int(row != 3)
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "advantages": torch.tensor([1.0, 0.0, -1.0, 0.5]),
        "old_per_token_logps": torch.full((4, 4), -2.0),
        "importance_sampling_ratio": torch.tensor([[1.0], [2.0], [3.0], [4.0]]),
        "num_items_in_batch": torch.tensor(7),
    }


def rules(**changes: Any) -> LayoutRules:
    return LayoutRules(**{"num_parts": 2, "by_advantage": True, "cut_prompts": True, "fill": False, **changes})


def test_rows_without_advantage_or_without_a_token_have_no_gradient() -> None:
    batch = a_batch()
    assert rows_with_gradient(batch, by_advantage=True).tolist() == [True, False, True, False]
    assert rows_with_gradient(batch, by_advantage=False).tolist() == [True, True, True, False]
    per_token = {**batch, "advantages": torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]])}
    assert rows_with_gradient(per_token, by_advantage=True).tolist() == [False, True, False, False]
    # What a tool wrote is not in the loss: row 0 has nothing else.
    tools = {**batch, "tool_mask": torch.tensor([[0, 0, 0, 0], *[[1, 1, 1, 1]] * 3])}
    assert rows_with_gradient(tools, by_advantage=False).tolist() == [False, True, True, False]


def test_each_micro_batch_is_cut_to_its_own_longest_row() -> None:
    """Row 0 needs 2 + 4 tokens, row 2 needs 1 + 2; a stock micro-batch of two rows has 2 x (3 + 4)."""
    first, second = lay_out(a_batch(), rules())
    assert first.inputs["prompt_ids"].tolist() == [[100, 101]]
    assert first.inputs["completion_ids"].tolist() == [[0, 1, 2, 3]]
    assert second.inputs["prompt_ids"].tolist() == [[120]]
    assert second.inputs["completion_ids"].tolist() == [[20, 21]]
    assert second.inputs["completion_mask"].tolist() == [[1, 1]]
    assert second.inputs["old_per_token_logps"].shape == (1, 2)
    assert second.inputs["advantages"].tolist() == [-1.0]
    assert second.inputs["importance_sampling_ratio"].tolist() == [[3.0]]  # one value a row is not cut
    assert second.inputs["num_items_in_batch"] == 7  # still that of the whole batch
    assert (first.num_rows, second.num_rows) == (1, 1)


def test_prompts_are_left_whole_where_positions_are_counted() -> None:
    first, second = lay_out(a_batch(), rules(cut_prompts=False))
    assert first.inputs["prompt_ids"].tolist() == [[0, 100, 101]]
    assert second.inputs["prompt_ids"].tolist() == [[0, 0, 120]]


def test_completion_of_one_token_keeps_a_second_column() -> None:
    """TRL's metrics read a width of 1 as one value a sequence."""
    batch = {**a_batch(), "advantages": torch.tensor([0.0, 1.0, 0.0, 0.0])}
    (only,) = lay_out(batch, rules(num_parts=1))
    assert only.inputs["completion_mask"].tolist() == [[1, 0]]


def test_micro_steps_without_rows_come_last_and_hold_nothing_on_one_process() -> None:
    parts = lay_out(a_batch(), rules(num_parts=4))
    assert [(part.num_rows, bool(part.inputs)) for part in parts] == [(1, True), (1, True), (0, False), (0, False)]


def test_every_micro_step_goes_through_the_model_where_others_wait() -> None:
    """The stand-in is the row with the shortest prompt, 2; nothing in it is in the loss, and its ratio is 1."""
    parts = lay_out(a_batch(), rules(num_parts=3, fill=True))
    stand_in = parts[2]
    assert (stand_in.num_rows, stand_in.num_stand_ins) == (0, 1)
    assert stand_in.inputs["prompt_ids"].tolist() == [[120]]
    assert stand_in.inputs["completion_ids"].tolist() == [[20, 21]]
    assert stand_in.inputs["completion_mask"].tolist() == [[0, 0]]
    assert stand_in.inputs["old_per_token_logps"].tolist() == [[0.0, 0.0]]
    assert stand_in.inputs["advantages"].tolist() == [0.0]
    assert stand_in.inputs["importance_sampling_ratio"].tolist() == [[1.0]]


def test_step_without_rows_runs_a_stand_in_first() -> None:
    batch = {**a_batch(), "advantages": torch.zeros(4)}
    parts = lay_out(batch, rules())
    assert [(part.num_rows, part.num_stand_ins, bool(part.inputs)) for part in parts] == [(0, 1, True), (0, 0, False)]


def test_counts_of_the_layout() -> None:
    """In the loss: 4 + 1 + 2 tokens of rows 0, 1, 2. Row 1 is left out with its token; row 3 has none anyway."""
    batch = a_batch()
    whole = [7, 4, 1]
    assert count(batch, lay_out(batch, rules(num_parts=3, fill=True))) == [
        [4, 1, 0, *whole],
        [2, 1, 0, *whole],
        [0, 1, 1, *whole],
    ]
    assert count(batch, [MicroBatch({}, 0)]) == [[0, 0, 0, 7, 4, 3]]  # nothing run: rows 0, 1 and 2 are left out


def test_micro_batches_are_joined_in_their_order() -> None:
    batch = a_batch()
    halves = [{name: v if v.dim() == 0 else v[i : i + 2] for name, v in batch.items()} for i in (0, 2)]
    joined = join(halves)
    assert joined.keys() == batch.keys()
    assert all(torch.equal(joined[name], batch[name]) for name in batch)


def test_batch_with_images_is_refused_by_name() -> None:
    with pytest.raises(RunError, match=r"holds pixel_values, and only text can be laid out anew; use .*=false"):
        join([{**a_batch(), "pixel_values": torch.zeros(4, 3)}])
