"""The hooks of TRL that we override or call are the ones we think they are.

When a new TRL fails here, read its `GRPOTrainer`, adapt `backends/trl/trainer.py`, then these lines.
"""

from __future__ import annotations

import ast
import inspect
import re
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


def test_completions_are_asked_for_and_scored_in_the_order_that_dynamic_sampling_wants(trainer_class: type) -> None:
    """It replaces rows in `prompts` and `inputs` while `_generate` runs: all that comes after must read those lists."""
    hook = trainer_class.__dict__["_generate_and_score_completions"]
    assert parameters(hook) == ["self", "inputs"]
    steps = [
        "prompts = [x['prompt'] for x in inputs]",
        "= self._generate(prompts)",
        "rewards_per_func = self._calculate_rewards(inputs, prompts, completions, completion_ids_list)",
        "self._logs['prompt'].extend(gather_object(prompts))",
    ]
    text = ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(hook))))
    places = [text.find(step) for step in steps]
    assert -1 not in places, f"_generate_and_score_completions: {steps[places.index(-1)]!r} is gone"
    assert places == sorted(places), "_generate_and_score_completions: the steps have another order"
    between = text[places[1] : places[2]]
    assert "_get_per_token_logps_and_entropies" in between, "log-probabilities are computed before rows are replaced"


def test_generate_writes_each_length_metric_once(trainer_class: type) -> None:
    """Dynamic sampling takes the values of its rounds back and writes those of the kept rows."""
    from grpo_exp.backends.trl.dynamic_sampling import _LENGTH_METRICS

    text = inspect.getsource(trainer_class.__dict__["_generate"])
    written = re.findall(r'_metrics\[mode\]\["(completions/\w+)"\]\.append', text)
    assert sorted(written) == sorted(_LENGTH_METRICS)


def test_train_sampler_repeats_indices_and_can_be_told_not_to_shuffle(trainer_class: type) -> None:
    from trl.trainer.utils import RepeatSampler

    hook = trainer_class.__dict__["_get_train_sampler"]
    assert parameters(hook) == ["self", "dataset"]
    (value,) = returned(hook)
    assert value.startswith("RepeatSampler("), f"_get_train_sampler returns {value}"
    sampler = RepeatSampler(range(4), mini_repeat_count=2, batch_size=2, repeat_count=1, shuffle=True, seed=0)
    sampler.shuffle = False
    assert list(sampler) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sampler.num_samples == 4


def test_engine_is_built_in_one_call_with_a_seed() -> None:
    """`seeds.seeded_engine` stands in for the class, and reads the seed that TRL gives it."""
    from trl.generation.vllm_generation import VLLMGeneration

    tree = ast.parse(textwrap.dedent(inspect.getsource(VLLMGeneration.__dict__["_init_vllm"])))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "LLM"]
    assert len(calls) == 1, "VLLMGeneration._init_vllm builds its engine in another way"
    seeds = [ast.unparse(keyword.value) for keyword in calls[0].keywords if keyword.arg == "seed"]
    assert seeds == ["accelerator.process_index // self.tensor_parallel_size"]
    # `vllm_engine.adapted_engine` adds these, and must not contradict TRL.
    assert not {"dtype", "enforce_eager"} & {keyword.arg for keyword in calls[0].keywords}


def test_sampling_is_seeded_by_seed_and_rank(trainer_class: type) -> None:
    """`seeds.seed_rollouts` seeds once more behind it, and nothing after the constructor may seed again."""
    from transformers import Trainer

    assert "set_seed(args.seed, device_specific=True)" in inspect.getsource(trainer_class.__init__)
    assert "set_seed" not in inspect.getsource(Trainer._inner_training_loop)


def test_checkpoints_find_their_hooks_as_they_were(trainer_class: type) -> None:
    """Everything is written between two calls of `_save_checkpoint`, and put back before the first micro-step."""
    from transformers import Trainer

    save = inspect.getsource(Trainer._save_checkpoint)
    for line in (
        "run_dir = self._get_output_dir(trial=trial)",
        "self._save_rng_state(output_dir)",
        "self.state.save_to_json(os.path.join(output_dir, TRAINER_STATE_NAME))",
    ):
        assert line in save, f"_save_checkpoint: {line}"
    assert "_get_output_dir(trial=trial)" in inspect.getsource(trainer_class.__dict__["_save_checkpoint"])
    epoch = inspect.getsource(Trainer._run_epoch)
    assert epoch.count("self._load_rng_state(resume_from_checkpoint)") == 2, "_run_epoch: when a state is put back"
    assert epoch.rindex("self._load_rng_state(") < epoch.index("self.training_step("), "_run_epoch: put back too late"
    assert epoch.index("self._load_rng_state(") < epoch.index("iter(train_dataloader)"), "_run_epoch: a new epoch"
    between = inspect.getsource(Trainer._maybe_log_save_evaluate)
    assert between.index("self.log(logs") < between.index("if self.control.should_save"), "saved before it is logged"


def test_state_that_checkpoints_keep_is_where_it_was(trainer_class: type) -> None:
    """`trainer_state.py` reads and sets these attributes."""
    from transformers import Trainer

    made = inspect.getsource(trainer_class.__init__)
    for name in ("_step = 0", "_buffered_inputs = None", '_metrics = {"train": ', "_logs = {"):
        assert f"self.{name}" in made, name
    loop = inspect.getsource(Trainer._inner_training_loop)
    for name in ("_tr_loss", "_total_loss_scalar", "_globalstep_last_logged", "_initial_global_step"):
        assert f"self.{name} = " in loop, name
    reused = inspect.getsource(inspect.unwrap(trainer_class.__dict__["_prepare_inputs"]))
    assert "generate_every = self.args.steps_per_generation * self.num_iterations" in reused
    assert "if self._step % generate_every == 0 or self._buffered_inputs is None:" in reused


def our_trainers() -> list[type]:
    from grpo_exp.backends.trl.checkpointing import CheckpointingTrainer
    from grpo_exp.backends.trl.dynamic_sampling import DynamicSamplingTrainer
    from grpo_exp.backends.trl.fast_step import FastStepTrainer
    from grpo_exp.backends.trl.trainer import TimedGRPOTrainer
    from grpo_exp.backends.trl.whole_saving import WholeSavingTrainer

    return [TimedGRPOTrainer, DynamicSamplingTrainer, FastStepTrainer, CheckpointingTrainer, WholeSavingTrainer]


def test_our_overrides_have_the_same_parameters(trainer_class: type) -> None:
    found = set()
    for ours in our_trainers():
        # The fast step leaves a hook's last arguments together, and has a test of its own.
        left_out = {"__init__", "_get_per_token_logps_and_entropies", "create_model_card"}
        overridden = [name for name, value in vars(ours).items() if callable(value) and name not in left_out]
        for name in overridden:
            if hasattr(trainer_class, name):
                found.add(name)
                assert parameters(getattr(ours, name)) == parameters(getattr(trainer_class, name)), name
    assert {"_generate", "_calculate_rewards", "_generate_and_score_completions", "_get_train_sampler"} <= found
    assert {"_save_checkpoint", "_get_output_dir", "_save_rng_state", "_load_rng_state"} <= found


def test_checkpoints_of_fine_tuning_use_hooks_that_trls_trainer_has() -> None:
    """The same hooks as of GRPO, and its count of tokens, which no checkpoint of theirs holds."""
    from trl.trainer.sft_trainer import SFTTrainer

    from grpo_exp.backends.trl.sft import CheckpointingSFTTrainer
    from grpo_exp.backends.trl.whole_saving import WholeSavingTrainer

    hooks = {"_save_checkpoint", "_get_output_dir", "_save_rng_state", "_load_rng_state"}
    for name in hooks:
        assert parameters(getattr(WholeSavingTrainer, name)) == parameters(getattr(SFTTrainer, name)), name
    for ours in (WholeSavingTrainer, CheckpointingSFTTrainer):
        own = {name for name in vars(ours) if not name.startswith("__")} - hooks - {"create_model_card"}
        assert not [name for name in own if hasattr(SFTTrainer, name)], ours.__name__
    assert "self._total_train_tokens += " in inspect.getsource(SFTTrainer)


def test_our_own_names_hide_none_of_trls(trainer_class: type) -> None:
    """A method or attribute of ours that a new TRL uses for something else would break it in silence."""
    hooks = {
        "_generate", "_calculate_rewards", "_generate_and_score_completions", "_get_train_sampler", "__init__",
        "_prepare_inputs", "_compute_loss", "_get_per_token_logps_and_entropies", "_save_checkpoint",
        "_get_output_dir", "_save_rng_state", "_load_rng_state", "create_model_card",
    }  # fmt: skip
    for ours in our_trainers():
        own = {name for name in vars(ours) if not name.startswith("__")} - hooks
        assert not [name for name in own if hasattr(trainer_class, name)], ours.__name__
