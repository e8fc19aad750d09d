"""The hooks of TRL that we override or call are the ones we think they are.

When a new TRL fails here, read its `GRPOTrainer`, adapt `backends/trl/trainer.py`, then these lines.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from importlib.metadata import version
from typing import Any

import pytest


@pytest.fixture(scope="module")
def trainer_class() -> type:
    """Import TRL only for these tests: it takes seconds."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    return GRPOTrainer


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_version_is_the_pinned_one() -> None:
    assert version("trl").startswith("1.16.")


def returned(hook: Any) -> list[str]:
    """Return the expressions that a method returns, without those of functions inside it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(hook))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return [ast.unparse(node.value) for node in tree.body if isinstance(node, ast.Return) and node.value is not None]


def test_generate_takes_prompts_and_returns_eight_things(trainer_class: type) -> None:
    hook = trainer_class.__dict__["_generate"]
    assert parameters(hook) == ["self", "prompts"]
    assert returned(hook) == [
        "(prompt_ids, completion_ids, tool_mask, completions, logprobs, extra_fields, images, tool_images)"
    ]


def test_calculate_rewards_is_called_with_four_lists_and_gathers(trainer_class: type) -> None:
    hook = inspect.unwrap(trainer_class.__dict__["_calculate_rewards"])
    assert parameters(hook) == ["self", "inputs", "prompts", "completions", "completion_ids_list"]
    last_but_one = inspect.getsource(hook).strip().splitlines()[-2].strip()
    assert last_but_one == "rewards_per_func = gather(rewards_per_func)"  # the rows of all processes
    assert returned(hook) == ["rewards_per_func"]


def test_generate_and_score_takes_rows_and_returns_the_padded_batch(trainer_class: type) -> None:
    """`kl_probe` keeps rows of these four tensors."""
    hook = trainer_class.__dict__["_generate_and_score_completions"]
    changed = "_generate_and_score_completions: adapt TimedGRPOTrainer and KlProbe.keep"
    assert parameters(hook) == ["self", "inputs"], changed
    assert returned(hook) == ["output"], changed
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"):
        assert f"'{name}': {name}" in ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(hook)))), changed


def test_log_probabilities_are_asked_for_by_ids_mask_and_width(trainer_class: type) -> None:
    """`kl_probe` calls it, and takes the first of three things that come back."""
    hook = inspect.unwrap(trainer_class.__dict__["_get_per_token_logps_and_entropies"])
    changed = "_get_per_token_logps_and_entropies: adapt KlProbe._log_probs"
    wanted = ["self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size"]
    assert parameters(hook)[:6] == wanted, changed
    assert returned(hook) == ["(logps, entropies, aux_loss)"], changed


def test_our_overrides_have_the_same_parameters(trainer_class: type) -> None:
    from grpo_exp.backends.trl.trainer import TimedGRPOTrainer

    overridden = [name for name, value in vars(TimedGRPOTrainer).items() if callable(value) and name != "__init__"]
    for name in overridden:
        if hasattr(trainer_class, name):
            assert parameters(getattr(TimedGRPOTrainer, name)) == parameters(getattr(trainer_class, name)), name
    assert {"_generate", "_calculate_rewards", "_generate_and_score_completions"} <= set(overridden)


def test_fast_step_finds_its_hooks_as_they_were(trainer_class: type) -> None:
    """Micro-batches are taken over in `_prepare_inputs`; the loss and the log-probabilities are asked for as before."""
    assert parameters(inspect.unwrap(trainer_class.__dict__["_prepare_inputs"])) == ["self", "generation_batch"], (
        "_prepare_inputs"
    )
    assert parameters(trainer_class.__dict__["_compute_loss"]) == ["self", "model", "inputs"], "_compute_loss"
    hook = inspect.unwrap(trainer_class.__dict__["_get_per_token_logps_and_entropies"])
    assert parameters(hook)[:8] == [
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy",
        "compute_aux_loss",
    ], "_get_per_token_logps_and_entropies"  # fmt: skip
    assert returned(hook) == ["(logps, entropies, aux_loss)"], "_get_per_token_logps_and_entropies"
    defaults = [p.default for p in inspect.signature(hook).parameters.values()][5:]
    assert all(value is None or value is False for value in defaults), "_get_per_token_logps_and_entropies"


def test_fast_step_overrides_have_the_parameters_of_the_hooks() -> None:
    from grpo_exp.backends.trl.fast_step import FastStepTrainer

    overridden = vars(FastStepTrainer)
    assert parameters(overridden["_prepare_inputs"]) == ["self", "generation_batch"]
    assert parameters(overridden["_compute_loss"]) == ["self", "model", "inputs"]
    assert parameters(overridden["_get_per_token_logps_and_entropies"]) == [
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "kwargs",
    ]  # fmt: skip


def test_buffer_of_a_generated_batch_is_one_list_of_micro_batches(trainer_class: type) -> None:
    """The fast step lays out anew what a new list in `_buffered_inputs` holds, and serves it by `_step`."""
    source = inspect.getsource(inspect.unwrap(trainer_class.__dict__["_prepare_inputs"]))
    for line in (
        "generation_batch = shuffle_sequence_dict(generation_batch)",
        "generation_batches = split_tensor_dict(generation_batch, self.args.steps_per_generation)",
        "inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]",
    ):
        assert line in source, f"_prepare_inputs: {line}"


#: What each loss type divides by, as `backends/trl/fast_step.py` takes it to be.
DIVISORS = (
    "loss = ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()",
    "loss = (per_token_loss * mask).sum() / mask.sum().clamp(min=1.0)",
    "loss = (per_token_loss * mask).sum() / (per_token_loss.size(0) * self.max_completion_length)",
    'normalizer = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes',
    "loss = (per_token_loss * mask).sum(-1).mean()",
)


def test_losses_divide_by_what_the_fast_step_scales_by(trainer_class: type) -> None:
    source = inspect.getsource(trainer_class.__dict__["_compute_loss"])
    for line in DIVISORS:
        assert line in source, f"_compute_loss: {line}"
    # What the metrics of a micro-batch are means over; `step_metrics.py` weights them so.
    assert source.count("if x.shape[1] == 1:") == 2, "_compute_loss: means of sequence-level values"
    # Rows differ in number between processes; what pads them is NaN, so the extremes must not see it.
    for line in ("nanmin(gathered_low_clip).item()", "nanmax(gathered_high_clip).item()"):
        assert line in source, f"_compute_loss: {line}"
    assert source.count("self.accelerator.gather(") == 3, "_compute_loss: what is gathered"
    assert "local_sum, local_count = (x * mask).sum(), mask.sum().float()" in source, "_compute_loss: token means"
