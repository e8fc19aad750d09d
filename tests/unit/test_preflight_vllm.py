"""What is said about vLLM before anything is loaded, for machines with and without GPUs and either of its builds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_exp import devices, vllm_package
from grpo_exp.data.prompts import PromptData
from grpo_exp.errors import ConfigError
from grpo_exp.preflight import prepare
from grpo_exp.preflight.notes import notes as all_notes
from grpo_exp.settings import load
from grpo_exp.vllm_package import VllmPackage

On = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> On:
    """Return `machine(gpus=4, vllm=...)`, which makes the checks believe they run there; None is not installed."""
    monkeypatch.setenv("GRPO_EXP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)

    def build(*, gpus: int | None = 4, vllm: str | None = "0.31.0", for_cpu: bool = False) -> None:
        package = None if vllm is None else VllmPackage(vllm, is_for_cpu=for_cpu)
        monkeypatch.setattr(devices, "count_visible_gpus", lambda: gpus)
        monkeypatch.setattr(vllm_package, "find_vllm", lambda: package)

    return build


@pytest.fixture
def model(tmp_path: Path) -> tuple[str, ...]:
    """Return words for a model of 14 heads that reads 2048 tokens."""
    folder = tmp_path / "model"
    folder.mkdir()
    shape = {"num_hidden_layers": 2, "hidden_size": 896, "intermediate_size": 4864, "vocab_size": 1000,
             "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 2048}  # fmt: skip
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", **shape}))
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).touch()
    return ("model=local", f"model.path={folder}", "trainer.max_completion_length=1024")


def faults(*words: str) -> list[str]:
    settings = load.to_settings(load.compose(["tracker=none", "dataset.train_size=64", *words]))
    try:
        prepare(settings)
    except ConfigError as error:
        return list(error.faults)
    return []


def notes(*words: str) -> list[str]:
    usual = ["tracker=none", "model=local", "model.path=org/name", "launch.mixed_precision=bf16"]
    settings = load.to_settings(load.compose([*usual, *words]))
    return [note for note in all_notes(settings, PromptData((), ())) if "vllm" in note.lower()]


# --------------------------------------------------------------------------------------------- where it computes


def test_engine_on_the_gpus_of_the_run_is_fine(machine: On) -> None:
    machine()
    assert faults("vllm=colocate") == []
    assert faults("vllm=colocate", "vllm.enable_sleep_mode=true", "launch.device=cuda") == []


def test_engine_on_the_cpu_needs_vllms_build_for_cpus(machine: On) -> None:
    heads = ("model.architecture.num_attention_heads=3", "model.architecture.num_key_value_heads=1")
    for gpus, device in ((4, "cpu"), (0, "cpu"), (0, "auto")):
        machine(gpus=gpus)
        (fault,) = faults("vllm=colocate", f"launch.device={device}", *heads)
        why = "launch.device is cpu" if device == "cpu" else "none is visible here"
        assert fault.startswith(f"vllm=colocate: needs a GPU, and {why}; use vllm=off, or vLLM's build for CPUs")
        machine(gpus=gpus, for_cpu=True)
        assert faults("vllm=colocate", f"launch.device={device}", *heads) == []


def test_engine_on_the_cpu_lacks_sleep_and_some_sizes_of_heads(machine: On) -> None:
    """192 / 4 = 48 is none of vLLM's sizes; 192 / 1 = 192 is the first that is, by the number of heads."""
    machine(gpus=0, for_cpu=True)
    found = faults("vllm=colocate", "vllm.enable_sleep_mode=true")
    assert [fault.partition(":")[0] for fault in found] == [
        "vllm.enable_sleep_mode=true", "model.architecture.num_attention_heads=4",
    ]  # fmt: skip
    assert "makes heads of 48" in found[1]
    assert found[1].endswith("use model.architecture.num_attention_heads=1")


def test_build_for_cpus_does_not_use_the_gpus(machine: On) -> None:
    machine(for_cpu=True)
    (fault,) = faults("vllm=colocate", "launch.device=cuda")
    assert fault.startswith("vllm=colocate: the vLLM that is installed computes on the CPU (version 0.31.0)")


def test_server_needs_gpus_on_both_sides(machine: On, model: tuple[str, ...]) -> None:
    for gpus, device in ((4, "cpu"), (0, "auto")):
        machine(gpus=gpus)
        (fault,) = faults("vllm=server", *model, f"launch.device={device}")
        assert fault.startswith("vllm=server: weights reach the server over NCCL, which needs a GPU")
    machine()
    assert faults("vllm=server", *model) == []


def test_server_cannot_load_the_built_in_policy(machine: On) -> None:
    machine()
    (fault,) = faults("vllm=server")
    assert fault.startswith("model=tiny: has no files for a vLLM server")


# ----------------------------------------------------------------------------------------------- GPUs and ports


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("vllm.num_gpus=4", "vllm.data_parallel_size=2"),
            "vllm.num_gpus=4: 4 GPU(s) are visible, and at least one must be left to train",
        ),
        (
            ("vllm.num_gpus=2", "launch=ddp", "launch.num_processes=3", "trainer.prompts_per_step=3"),
            "launch.num_processes=3: each needs a GPU of its own and 2 are visible, without the 2 that serve; use "
            "launch.num_processes=2 or less",
        ),
        (
            (
                "vllm.num_gpus=1",
                "launch=multinode",
                "launch.num_processes=2",
                "launch.machine_rank=0",
                "launch.main_process_ip=10.0.0.1",
            ),
            "vllm.num_gpus=1: a run gives GPUs of its node to a server, and launch.num_nodes=2 has several",
        ),
        (("vllm.num_gpus=1", "launch=inline"), "vllm.num_gpus=1: GPUs are shared out to processes"),
        (("vllm.server_port=8000", "vllm.group_port=8000"), "vllm.group_port=8000: is vllm.server_port, too"),
        # 14 heads divide by 1, 2, 7 and 14.
        (("vllm.num_gpus=3",), "vllm.tensor_parallel_size=3: the model's 14 attention heads do not divide by it"),
        (("vllm.max_model_length=2049",), "vllm.max_model_length=2049: the model reads at most 2048 tokens"),
        (("vllm.max_model_length=1024",), "vllm.max_model_length=1024: holds the prompt, too"),
    ],
)
def test_server_that_does_not_fit(words: tuple[str, ...], message: str, machine: On, model: tuple[str, ...]) -> None:
    machine()
    (fault,) = faults("vllm=server", *model, *words)
    assert fault.startswith(message)


@pytest.mark.parametrize(
    ("name", "shared", "processes", "reason", "near"),
    [
        # 12 query heads divide by 3, but 2 key heads are not 3, 6 ... times on equally many of 3 GPUs.
        ("qwen2_5_1_5b", 3, 3, "2 key and value heads cannot be shared out evenly over 3 GPUs", 1),
        ("llama3_2_3b", 6, 6, "8 key and value heads cannot be shared out evenly over 6 GPUs", 2),
        # 9 query heads and 3 key heads are shared out by 3; 1,536 = 3 x 512 is, too, but not by 9.
        ("smollm2_135m", 9, 9, "MLP of 1536 does not divide by it", 3),
        # 28 heads divide by 7 and 4; 8 processes by 4 only.
        ("qwen2_5_7b", 8, 8, "28 attention heads do not divide by it", 4),
        # 6 processes divide by 3, which 28 heads do not, so 2 is left.
        ("qwen2_5_7b", 4, 6, "launch.num_processes=6 does not divide by it", 2),
    ],
)
def test_model_that_the_gpus_of_an_engine_cannot_share(
    name: str, shared: int, processes: int, reason: str, near: int, machine: On
) -> None:
    machine(gpus=16)
    words = (f"model={name}", "vllm=colocate", "launch=ddp", f"launch.num_processes={processes}",
             f"trainer.prompts_per_step={processes}", "launch.memory_plan=off")  # fmt: skip
    (fault,) = faults(*words, f"vllm.tensor_parallel_size={shared}")
    assert fault.startswith(f"vllm.tensor_parallel_size={shared}: ")
    assert reason in fault
    assert fault.endswith(f"use {near}")
    assert faults(*words, f"vllm.tensor_parallel_size={near}") == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("vllm.max_model_length=1535",), "vllm.max_model_length=1535: the longest prompt has 512 tokens"),
        (("trainer.max_completion_length=1537",), "dataset.max_prompt_length=512: with trainer.max_completion_length"),
    ],
)
def test_longest_prompt_that_is_let_through_decides(
    words: tuple[str, ...], message: str, machine: On, model: tuple[str, ...]
) -> None:
    """512 + 1024 = 1536; 512 + 1537 = 2049, and the model reads 2048. That there is no tokenizer is told, too."""
    machine()
    fits = faults("vllm=server", *model, "dataset.max_prompt_length=512", "vllm.max_model_length=1536")
    found = faults("vllm=server", *model, "dataset.max_prompt_length=512", *words)
    assert next(fault for fault in found if fault not in fits).startswith(message)
    assert len(found) == len(fits) + 1


def test_two_gpus_train_and_two_serve(machine: On, model: tuple[str, ...]) -> None:
    machine()
    assert faults("vllm=server", *model, "vllm.num_gpus=2", "launch=ddp", "launch.num_processes=2") == []


def test_gpus_that_nobody_counts_cannot_be_shared_out(machine: On, model: tuple[str, ...]) -> None:
    machine(gpus=None)
    (fault,) = faults("vllm=server", *model, "vllm.num_gpus=2")
    assert fault.startswith("vllm.num_gpus=2: nobody knows how many GPUs there are")
    assert faults("vllm=server", *model) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("vllm.num_gpus=2", "vllm.tensor_parallel_size=1"),
            "vllm.num_gpus: 2 GPUs serve, and 1 copies of the model on 1 each use 1; use num_gpus=1",
        ),
        (("vllm.num_gpus=2", "vllm.server_port=8000"), "vllm.num_gpus, vllm.server_port: a server is to be started"),
        (
            ("vllm.importance_sampling_clip_min=3",),
            "vllm.importance_sampling_clip_min: 3 is not below importance_sampling_clip_max (3)",
        ),
        (
            ("vllm.serve_options=['--tensor_parallel_size=4']",),
            "vllm.serve_options.0='--tensor_parallel_size=4': --tensor-parallel-size is given by grpo_exp itself",
        ),
    ],
)
def test_settings_that_contradict_each_other(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load.to_settings(load.compose(["vllm=server", *words]))
    (fault,) = caught.value.faults
    assert fault.startswith(message), fault


def test_length_that_the_prompts_do_not_leave_is_refused_for_the_built_in_policy(machine: On) -> None:
    """Prompts of the built-in task have at most 10 tokens or so; 20 of the completion leave 1 of 21."""
    machine()
    (fault,) = faults("vllm=colocate", "vllm.max_model_length=21")
    assert fault.startswith("vllm.max_model_length=21: the longest prompt has ")
    assert faults("vllm=colocate", "vllm.max_model_length=64") == []


# ---------------------------------------------------------------------------------------------------- notes


def test_float32_on_a_gpu_is_told(machine: On) -> None:
    machine()
    assert notes("vllm=colocate") == []
    (note,) = notes("vllm=colocate", "launch.mixed_precision=no")
    assert "vLLM computes in float32" in note
    machine(gpus=0, for_cpu=True)
    assert notes("vllm=colocate", "launch.mixed_precision=no") == []


def test_correction_over_sequences_is_advised_against_for_long_completions(machine: On) -> None:
    """1.01^110 = 2.99 and 1.01^111 = 3.02, and the cap is 3: ln 3 / ln 1.01 = 110.4."""
    machine()
    words = ("vllm=colocate", "vllm.importance_sampling_mode=sequence_mask")
    assert notes(*words, "trainer.max_completion_length=110") == []
    (note,) = notes(*words, "trainer.max_completion_length=111")
    assert "1 % each over 110 of them reach vllm.importance_sampling_clip_max=3, where trainer" in note
    assert note.endswith("long completions would be left out of the loss; use token_truncate")
    assert notes("vllm=colocate", "trainer.max_completion_length=4096") == []


@pytest.mark.parametrize(
    ("version", "is_fine"), [("0.21.9", False), ("0.22.0", True), ("0.31.1", True), ("0.32.0", False)]
)
def test_version_that_trl_does_not_support_is_told(version: str, is_fine: bool, machine: On) -> None:
    machine(vllm=version)
    assert (notes("vllm=colocate") == []) is is_fine


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (("vllm.server_host=n3",), "vllm.server_host=n3 has no effect: vllm.server_port is null"),
        (
            ("vllm.server_base_url=https://n3/x", "vllm.server_port=21"),
            "vllm.server_port=21 has no effect: vllm.server_base_url is given",
        ),
        (("vllm.structured_outputs_regex=a+",), "vllm.structured_outputs_regex: samples come from another"),
        (
            ("vllm.importance_sampling_correction=false", "vllm.importance_sampling_clip_min=0.1"),
            "vllm.importance_sampling_clip_min=0.1 has no effect: vllm.importance_sampling_correction is false",
        ),
    ],
)
def test_setting_without_effect(words: tuple[str, ...], start: str, machine: On) -> None:
    machine()
    (note,) = notes("vllm=server", *words)
    assert note.startswith(start)
