"""What is said before anything is loaded: all faults at once, and notes that need no action."""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_exp import devices
from grpo_exp.errors import ConfigError
from grpo_exp.preflight import Prepared, prepare
from grpo_exp.preflight.tiny_text import ALPHABET, longest_answer, most_tokens, unreadable
from grpo_exp.settings import load

SeeGpus = Callable[[int | None], None]


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is said independent of this machine's cache and devices."""
    monkeypatch.setenv("GRPO_EXP_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


@pytest.fixture
def see_gpus(monkeypatch: pytest.MonkeyPatch) -> SeeGpus:
    """Return `see_gpus(4)`: the machine has so many; None is some that nobody counted."""
    return lambda count: monkeypatch.setattr(devices, "count_visible_gpus", lambda: count)


@pytest.fixture(autouse=True)
def _no_gpu(see_gpus: SeeGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    see_gpus(0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))


def installed(name: str) -> types.ModuleType:
    """Return what importlib takes for an installed package."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    return module


def prepared(*words: str) -> Prepared:
    return prepare(load.to_settings(load.compose(["tracker=none", "dataset.train_size=64", *words])))


def faults(*words: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        prepared(*words)
    return list(caught.value.faults)


def test_default_command_has_no_fault(tmp_path: Path) -> None:
    found = prepared("algorithm=dapo", "reward=math", f"output_dir={tmp_path}")
    assert found.plan.completions_per_step == 32 * 8
    assert len(found.data.train) == 64


def test_faults_of_several_groups_are_told_together(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = faults(
        "+trainer.extra.beta=1",
        "+trainer.extra.log_completion=true",
        "trainer.max_completion_length=512",
        f"output_dir={tmp_path}/file/outputs",
        "trainer.per_device_train_batch_size=7",
    )
    starts = [
        "trainer.extra.beta: is decided elsewhere",
        "trainer.extra.log_completion: is no field",
        "trainer.max_completion_length=512: the model reads at most 512 tokens",
        f"output_dir={tmp_path}/file/outputs: {tmp_path}/file is not a folder; choose another folder",
        "algorithm.num_generations=8: 32 prompts x 8 = 256 completions",
    ]
    assert len(found) == len(starts)
    for fault, start in zip(found, starts, strict=True):
        assert fault.startswith(start)


def test_data_fault_is_told_beside_others(tmp_path: Path) -> None:
    """The batch can be solved, so the data are looked at, too: 63 prompts for 64 a step."""
    found = faults("trainer.prompts_per_step=64", "dataset.train_size=63", "trainer.max_completion_length=512")
    assert [fault.partition(":")[0] for fault in found] == ["trainer.max_completion_length=512", "dataset"]


def test_completion_that_fits_leaves_room_for_the_prompt() -> None:
    assert prepared("trainer.max_completion_length=400").plan.prompts_per_step == 32


def test_folder_that_does_not_exist_yet_is_fine(tmp_path: Path) -> None:
    prepared(f"output_dir={tmp_path}/a/b/c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["vllm=server", "vllm.server_port=8000", "vllm.group_port=8000"],
            "vllm.group_port=8000: is vllm.server_port, too, and each needs its own port; use another",
        ),
        # 3 processes divide by 1 and 3 only, and 3 is above 2.
        (
            ["vllm=colocate", "vllm.tensor_parallel_size=2", "launch.num_processes=3", "trainer.prompts_per_step=3"],
            "vllm.tensor_parallel_size=2: launch.num_processes=3 does not divide by it",
        ),
        (["vllm=colocate", "vllm.max_model_length=20"], "vllm.max_model_length=20: holds the prompt, too"),
        (
            ["vllm=colocate", "algorithm.loss_type=vespo", "vllm.importance_sampling_mode=sequence_mask"],
            "vllm.importance_sampling_mode=sequence_mask: algorithm.loss_type=vespo weighs sequences itself",
        ),
    ],
)
def test_vllm_that_would_fail_after_the_model_is_loaded(words: list[str], message: str) -> None:
    assert any(fault.startswith(message) for fault in faults("launch=ddp", *words))


def test_refresh_of_the_reference_has_settings_of_its_own() -> None:
    (fault,) = faults("algorithm=grpo", "+trainer.extra.sync_ref_model=true")
    assert fault.startswith("trainer.extra.sync_ref_model: is decided elsewhere; set algorithm.sync_ref_model instead")


# ---------------------------------------------------------------------------------------------- devices


def test_cuda_without_a_gpu_is_refused_here(see_gpus: SeeGpus) -> None:
    (fault,) = faults("launch.device=cuda")
    assert fault.startswith("launch.device=cuda: no GPU is visible here")
    assert "use launch.device=cpu" in fault
    for count in (1, None):
        see_gpus(count)
        prepared("launch.device=cuda")


def test_one_process_for_each_gpu(see_gpus: SeeGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    see_gpus(2)
    prepared("launch=ddp", "launch.num_processes=2")
    for device in ("cuda", "auto"):
        (fault,) = faults("launch=ddp", "launch.num_processes=4", f"launch.device={device}")
        assert fault == (
            "launch.num_processes=4: each needs a GPU of its own and 2 are visible; use launch.num_processes=2 or "
            "less, or launch.device=cpu"
        )
    prepared("launch=ddp", "launch.num_processes=4", "launch.device=cpu")
    see_gpus(None)
    prepared("launch=ddp", "launch.num_processes=4")  # nobody counted them, so nobody refuses
    see_gpus(2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # a launcher spread 4 over two machines
    prepared("launch=ddp", "launch.num_processes=4")


def test_processes_on_a_cpu_do_not_flood_it() -> None:
    """Four cores: up to 8 processes, to try things; 16 x 32 / 16 divides, so only the number is wrong."""
    prepared("launch=ddp", "launch.num_processes=8")
    (fault,) = faults("launch=ddp", "launch.num_processes=16")
    assert fault.startswith("launch.num_processes=16: this machine's CPU runs at most 8")


# ---------------------------------------------------------------------------------------------- folders


def test_folder_below_proc_names_the_setting() -> None:
    """Permission bits let root write there; the file system does not."""
    (fault,) = faults("output_dir=/proc/x")
    assert fault.startswith("output_dir=/proc/x: /proc cannot be written")
    assert fault.endswith("choose another folder with output_dir=FOLDER")


def test_folder_with_a_name_too_long_for_any_file_system() -> None:
    (fault,) = faults(f"output_dir={'a' * 300}")
    assert fault.startswith(f"output_dir={'a' * 300}: cannot be a folder (File name too long)")


def test_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRPO_EXP_CACHE", "/proc/cache")
    (fault,) = faults()
    assert fault.startswith("GRPO_EXP_CACHE=/proc/cache: /proc cannot be written")
    model = write_model(tmp_path, {"max_position_embeddings": 4096})
    prepared("model=local", f"model.path={model}")  # primes nothing


def test_filled_cache_may_be_read_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from grpo_exp.preflight import folders

    (tmp_path / "tiny-0123").mkdir()
    monkeypatch.setenv("GRPO_EXP_CACHE", str(tmp_path))
    monkeypatch.setattr(folders, "why_not_writable", lambda path: "is read-only" if path == tmp_path else None)
    prepared()


# ------------------------------------------------------------------------------ prompts in view of the model


def write_rows(folder: Path, prompts: list[Any]) -> list[str]:
    """Write a file and return the words that train on it, two prompts a step."""
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt, "target": "1"}) + "\n" for prompt in prompts))
    drop = ["~dataset.train_size", "+dataset.train_size=null"]
    return ["dataset=jsonl", *drop, f"dataset.path={path}", "trainer.prompts_per_step=2"]


def write_model(folder: Path, config: Any) -> Path:
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    for name in ("model.safetensors", "tokenizer.json"):
        (model / name).touch()
    return model


@pytest.mark.parametrize(("missing", "what"), [("model.safetensors", "weights"), ("tokenizer.json", "tokenizer")])
def test_model_folder_that_is_not_whole(missing: str, what: str, tmp_path: Path) -> None:
    model = write_model(tmp_path, {})
    (model / missing).unlink()
    (fault,) = faults("model=local", f"model.path={model}")
    assert fault.startswith(f"model.path={model}: holds no {what}")


def test_prompts_with_characters_outside_the_alphabet(tmp_path: Path) -> None:
    words = write_rows(tmp_path, [f"{n}+1?" for n in range(10)] + ["3\u00d74?", "caf\u00e9 \u00d7?"])
    (fault,) = faults(*words)
    assert fault.startswith("dataset: 2 of 12 prompts hold characters that the built-in policy cannot read, the first ")
    assert "model=local" in fault
    model = write_model(tmp_path, {})
    prepared(*words, "model=local", f"model.path={model}")


def test_system_prompt_with_characters_outside_the_alphabet() -> None:
    (fault,) = faults("dataset.system_prompt='d\u00e9j\u00e0'")
    assert fault.startswith("dataset.system_prompt='d\u00e9j\u00e0': holds '\u00e9\u00e0'")


def test_prompts_that_leave_no_room_for_the_answer(tmp_path: Path) -> None:
    """With 30 letters a prompt has 32 tokens with <user> and <assistant>, and 32 + 20 = 52 are more than 51."""
    words = write_rows(tmp_path, [f"{n}+1?" for n in range(10)] + ["a" * 30])
    prepared(*words, "model.architecture.max_position_embeddings=52")
    (fault,) = faults(*words, "model.architecture.max_position_embeddings=51")
    assert fault.startswith("dataset: 1 of 11 prompts have more than 31 tokens, the longest 32")
    assert "raise model.architecture.max_position_embeddings to 52" in fault


def test_tokens_are_counted_as_the_tokenizer_counts_them() -> None:
    """A conversation of three: 4 + 5 + 3 characters, four tags and the one that asks for an answer."""
    from grpo_exp.models.tokenizer import build_tokenizer

    tokenizer = build_tokenizer()
    conversations = [
        [{"role": "user", "content": "12+9?"}],
        [{"role": "system", "content": "Add:"}, {"role": "user", "content": "\n x"}],
        [
            {"role": "user", "content": "1+2?"},
            {"role": "assistant", "content": "three"},
            {"role": "user", "content": "a_b"},
        ],
    ]
    assert most_tokens(conversations[2]) == 4 + 5 + 3 + 4 + 1
    for messages in conversations:
        text = str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        assert most_tokens(messages) == len(tokenizer.encode(text, add_special_tokens=False))
    tagged = [{"role": "user", "content": "<think>x</think>\\boxed{1}"}]
    text = str(tokenizer.apply_chat_template(tagged, add_generation_prompt=True, tokenize=False))
    assert most_tokens(tagged) > len(tokenizer.encode(text, add_special_tokens=False))


def test_alphabet_is_the_tokenizers() -> None:
    from grpo_exp.models.tokenizer import UNKNOWN, build_tokenizer

    tokenizer = build_tokenizer()
    vocabulary = set(tokenizer.get_vocab())
    assert {token for token in vocabulary if len(token) == 1} == ALPHABET
    (unknown,) = tokenizer.encode(UNKNOWN, add_special_tokens=False)
    for code in [*range(1, 0x250), 0x2212, 0x1F600]:
        is_unknown = tokenizer.encode(chr(code), add_special_tokens=False) == [unknown]
        assert is_unknown == bool(unreadable(chr(code))), hex(code)


@pytest.mark.parametrize(("operand", "tokens"), [(9, 13), (29, 15), (99, 17)])
def test_longest_answer(operand: int, tokens: int) -> None:
    r"""`<think>9+9=18</think>\boxed{18}<eos>`: 1 + 6 + 1 + 1 + 2 + 1 + 1 = 13; 29 adds 2 digits, 198 adds 2."""
    from grpo_exp.models.tokenizer import EOS, build_tokenizer

    answer = f"<think>{operand}+{operand}={2 * operand}</think>\\boxed{{{2 * operand}}}{EOS}"
    assert longest_answer(operand) == tokens == len(build_tokenizer().encode(answer, add_special_tokens=False))


# ---------------------------------------------------------------------------------------------- local models


def test_completion_longer_than_the_model_reads(tmp_path: Path) -> None:
    """1,024 is the default of model=local; a multimodal model keeps its text settings one level down."""
    for config in ({"max_position_embeddings": 1024}, {"text_config": {"max_position_embeddings": 1024}}):
        model = write_model(tmp_path, config)
        (fault,) = faults("model=local", f"model.path={model}")
        assert fault.startswith("trainer.max_completion_length=1024: the model reads at most 1024 tokens")


def test_scaled_positions_count(tmp_path: Path) -> None:
    """512 positions stretched by 4 are 2,048."""
    config = {"max_position_embeddings": 512, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    prepared("model=local", f"model.path={write_model(tmp_path, config)}")


def test_model_that_does_not_say_how_much_it_reads(tmp_path: Path) -> None:
    prepared("model=local", f"model.path={write_model(tmp_path, {})}")


@pytest.mark.parametrize("config", ["{", "[]"])
def test_config_of_a_model_that_is_no_json_object(config: str, tmp_path: Path) -> None:
    model = write_model(tmp_path, config)
    (fault,) = faults("model=local", f"model.path={model}")
    assert fault.startswith(f"model.path={model}: its config.json is no readable JSON object")


def test_float16_twice_and_flash_attention_on_a_cpu(
    tmp_path: Path, see_gpus: SeeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["model=local", f"model.path={write_model(tmp_path, {})}"]
    (fault,) = faults(*words, "model.dtype=float16", "launch.mixed_precision=fp16")
    assert fault.startswith("model.dtype=float16: with launch.mixed_precision=fp16 the loss is scaled")
    (fault,) = faults(*words, "model.attn_implementation=flash_attention_2")
    assert fault.startswith("model.attn_implementation=flash_attention_2: needs a GPU")
    see_gpus(1)
    found = faults(*words, "model.attn_implementation=flash_attention_2")
    assert [fault.partition(": ")[2][:32] for fault in found] == [
        "the package flash-attn is not in", "computes in 16 bits only, and th",
    ]  # fmt: skip
    monkeypatch.setitem(sys.modules, "flash_attn", installed("flash_attn"))
    prepared(*words, "model.attn_implementation=flash_attention_2", "launch.mixed_precision=bf16")


# --------------------------------------------------------------------------------------------- held-out samples


def test_more_held_out_samples_than_anybody_waits_for(tmp_path: Path) -> None:
    """1,000 prompts x 1,024 = 1,024,000 completions; 1,000 x 1,000 are the most."""
    (fault,) = faults("dataset.max_operand=999", "dataset.eval_size=1000", "trainer.eval_samples=1024")
    assert fault.startswith("trainer.eval_samples=1024: 1000 held-out prompts x 1024 are 1024000 completions")
    assert "use trainer.eval_samples=1000 or less" in fault


def test_file_without_the_mapped_column(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"question": "2+3?", "answer": "5"}) + "\n")
    found = faults("dataset=jsonl", "~dataset.train_size", "+dataset.train_size=null", f"dataset.path={path}")
    assert len(found) == 2
    assert found[0].startswith(f"dataset.prompt_column=prompt: {path} has no column 'prompt'")
    assert found[1].startswith(f"dataset.target_column=target: {path} has no column 'target'")


def test_reward_function_that_is_missing_is_told_before_the_run(tmp_path: Path) -> None:
    component = "+reward.components.mine={kind: python, function: 'no_such_module_x:f'}"
    (fault,) = faults(f"output_dir={tmp_path}", component)
    assert fault.startswith("reward.components.mine.function=no_such_module_x:f: there is no module 'no_such_module_x'")
