"""From settings to TRL's GRPOConfig: what is set arrives, and nothing else is switched on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.backends.trl.arguments import build_arguments
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.trl_fields import OWNED

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
RENAMED = r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"


def build(tmp_path: Path, *words: str) -> Any:
    settings = load.to_settings(load.compose(["tracker=none", *words]))
    return build_arguments(settings, solve_batch(settings), output_dir=tmp_path, use_cpu=True)


def test_arguments_can_be_built_without_a_warning(tmp_path: Path) -> None:
    """A warning that needs no action must not appear in front of a user."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(tmp_path)


#: Words after the command -> field and value; none is the default.
ARRIVES: list[tuple[str, str, Any]] = [
    ("algorithm.num_generations=4", "num_generations", 4),
    ("algorithm.epsilon_high=0.3", "epsilon_high", 0.3),
    ("algorithm.delta=2.5", "delta", 2.5),
    ("algorithm.temperature=0.7", "temperature", 0.7),
    ("algorithm.top_p=0.9", "top_p", 0.9),
    ("algorithm.scale_rewards=batch", "scale_rewards", "batch"),
    ("algorithm.importance_sampling_level=sequence", "importance_sampling_level", "sequence"),
    ("algorithm.num_iterations=2", "num_iterations", 2),
    ("algorithm.sync_ref_model=true", "sync_ref_model", True),  # beta is 0.04
    ("algorithm.ref_model_sync_steps=7", "ref_model_sync_steps", 7),
    ("algorithm.ref_model_mixup_alpha=1", "ref_model_mixup_alpha", 1.0),
    ("algorithm.sapo_temperature_pos=1.5", "sapo_temperature_pos", 1.5),
    ("algorithm.sapo_temperature_neg=2", "sapo_temperature_neg", 2.0),
    ("algorithm.vespo_k_pos=1.5", "vespo_k_pos", 1.5),
    ("algorithm.vespo_lambda_pos=2.5", "vespo_lambda_pos", 2.5),
    ("algorithm.vespo_k_neg=4", "vespo_k_neg", 4.0),
    ("algorithm.vespo_lambda_neg=1.25", "vespo_lambda_neg", 1.25),
    ("trainer.learning_rate='3e-6'", "learning_rate", 3e-6),
    ("trainer.max_steps=7", "max_steps", 7),
    ("trainer.max_completion_length=64", "max_completion_length", 64),
    ("trainer.gradient_checkpointing=true", "gradient_checkpointing", True),
    ("trainer.weight_decay=0.1", "weight_decay", 0.1),
    ("trainer.adam_beta2=0.95", "adam_beta2", 0.95),
    ("trainer.max_grad_norm=0.2", "max_grad_norm", 0.2),
    ("trainer.warmup_steps=5", "warmup_steps", 5),
    ("seed=3", "seed", 3),
    ("+trainer.extra.log_completions=true", "log_completions", True),
]


@pytest.fixture(scope="module")
def all_changed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return build(tmp_path_factory.mktemp("arguments"), *(word for word, _, _ in ARRIVES))


@pytest.mark.parametrize(("word", "field", "value"), ARRIVES)
def test_setting_arrives(word: str, field: str, value: Any, all_changed: Any) -> None:
    found = getattr(all_changed, field)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.filterwarnings(RENAMED)
def test_upper_clip_left_out_is_the_lower_one(tmp_path: Path) -> None:
    assert build(tmp_path, "algorithm.epsilon=0.15", "algorithm.epsilon_high=null").epsilon_high == 0.15


@pytest.mark.filterwarnings(RENAMED)
def test_reference_is_refreshed_where_there_is_one(tmp_path: Path) -> None:
    """TRL refuses the switch without a reference model; a sweep over beta may hold 0."""
    assert build(tmp_path, "algorithm=r1").sync_ref_model is True
    assert build(tmp_path, "algorithm=r1", "algorithm.beta=0").sync_ref_model is False


@pytest.mark.filterwarnings(RENAMED)
def test_batch_multiplies_up(tmp_path: Path) -> None:
    """4 prompts x 8, micro-batches of 16, 3 updates: accumulation 2, 6 micro-steps, 16 x 6 = 96 = 12 x 8."""
    found = build(
        tmp_path,
        "trainer.prompts_per_step=4",
        "trainer.per_device_train_batch_size=16",
        "algorithm.updates_per_batch=3",
    )
    assert (found.gradient_accumulation_steps, found.steps_per_generation) == (2, 6)
    assert found.generation_batch_size == 96


@pytest.mark.filterwarnings(RENAMED)
def test_weights_of_the_reward_are_plain_numbers_in_the_order_of_the_components(tmp_path: Path) -> None:
    """d036: a list of OmegaConf's own cannot be written as JSON."""
    found = build(tmp_path, "reward.components.format.weight=0.25")
    assert found.reward_weights == [1.0, 0.25]
    assert type(found.reward_weights) is list
    assert '"reward_weights": [' in found.to_json_string()


@pytest.mark.filterwarnings(RENAMED)
def test_trl_writes_nothing_by_itself(tmp_path: Path) -> None:
    """Its own trackers would log outside any step, and its checkpoints and evaluations are not ours."""
    found = build(tmp_path)
    assert found.report_to == []
    assert (str(found.save_strategy.value), str(found.eval_strategy.value)) == ("no", "no")
    assert (found.logging_steps, found.disable_tqdm, found.push_to_hub) == (1, True, False)
    assert found.logging_nan_inf_filter is False


@pytest.mark.filterwarnings(RENAMED)
def test_generation_with_vllm_gets_its_fields(tmp_path: Path) -> None:
    found = build(tmp_path, "vllm=colocate", "vllm.gpu_memory_utilization=0.5")
    assert (found.use_vllm, found.vllm_mode, found.vllm_gpu_memory_utilization) == (True, "colocate", 0.5)
    assert found.vllm_importance_sampling_mode == "token_truncate"
    server = build(tmp_path, "vllm=server", "vllm.server_port=8123", "vllm.group_port=51300")
    assert (server.vllm_mode, server.vllm_server_port, server.vllm_group_port) == ("server", 8123, 51300)
    assert (server.vllm_server_host, server.vllm_server_timeout) == ("127.0.0.1", 1800.0)
    assert build(tmp_path).use_vllm is False


def test_every_field_of_vllm_in_trl_has_a_setting_that_reaches_it(tmp_path: Path) -> None:
    """None is left to TRL's defaults, which drift, or to trainer.extra, where nobody checks it."""
    both = {
        "vllm.importance_sampling_correction=false": ("vllm_importance_sampling_correction", False),
        "vllm.importance_sampling_mode=token_mask": ("vllm_importance_sampling_mode", "token_mask"),
        "vllm.importance_sampling_clip_max=2": ("vllm_importance_sampling_clip_max", 2.0),
        "vllm.importance_sampling_clip_min=0.5": ("vllm_importance_sampling_clip_min", 0.5),
        "vllm.model_impl=transformers": ("vllm_model_impl", "transformers"),
        "vllm.structured_outputs_regex=a+": ("vllm_structured_outputs_regex", "a+"),
    }
    of_mode = {
        "colocate": {
            "vllm.gpu_memory_utilization=0.5": ("vllm_gpu_memory_utilization", 0.5),
            "vllm.tensor_parallel_size=2": ("vllm_tensor_parallel_size", 2),
            "vllm.max_model_length=300": ("vllm_max_model_length", 300),
            "vllm.enable_sleep_mode=true": ("vllm_enable_sleep_mode", True),
        },
        "server": {
            "vllm.server_host=n3": ("vllm_server_host", "n3"),
            "vllm.server_port=21": ("vllm_server_port", 21),
            "vllm.server_base_url=http://x": ("vllm_server_base_url", "http://x"),
            "vllm.group_port=22": ("vllm_group_port", 22),
            "vllm.server_timeout_seconds=7": ("vllm_server_timeout", 7.0),
        },
    }
    reached = {"vllm_mode"}
    for mode, own in of_mode.items():
        words = {**both, **own}
        found = build(tmp_path, f"vllm={mode}", *words)
        for field, value in words.values():
            assert getattr(found, field) == value, field
            reached.add(field)
    deprecated = {"vllm_importance_sampling_cap"}  # an old name of clip_max
    fields = {name for name in type(found).__dataclass_fields__ if name.startswith("vllm_")}
    assert fields == reached | deprecated
    assert fields <= OWNED.keys()


@pytest.mark.filterwarnings(RENAMED)
def test_every_field_that_is_set_here_is_protected_from_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `trainer.extra` would raise a TypeError about a repeated argument."""
    from grpo_exp.backends.trl import arguments

    given: set[str] = set()
    monkeypatch.setattr(arguments, "GRPOConfig", lambda **fields: given.update(fields))
    for vllm in ("off", "colocate", "server"):
        build(tmp_path, f"vllm={vllm}")
    assert given - set(OWNED) == set()
