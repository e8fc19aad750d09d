"""The plan as a whole: its arithmetic by hand, what is refused and what is advised, which GPU it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_exp import devices
from grpo_exp.errors import ConfigError
from grpo_exp.preflight import prepare
from grpo_exp.preflight.memory import Gpu, MemoryPlan, find_gpu, gpus, plan_memory, settings_that_fit
from grpo_exp.preflight.memory.plan import CONTEXT_BYTES, FRAGMENTED
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.run import RunSettings

GIB = 1024**3
MODEL = "model=qwen2_5_1_5b"
#: Parameters of Qwen2.5-1.5B, and its 151,936 x 1,536 embedding.
NUM, EMBEDDING = 1_543_714_304, 151_936 * 1_536


def compose(*words: str) -> RunSettings:
    return load.to_settings(load.compose(["tracker=none", "algorithm=dapo", *words]))


def plan(*words: str, gpu: Gpu | None = None) -> MemoryPlan:
    settings = compose(*words)
    found = plan_memory(settings, solve_batch(settings), prompt_tokens=100, gpu=gpu)
    assert found is not None
    return found


def test_states_of_full_fine_tuning_by_hand() -> None:
    """float32: 4 bytes a weight, 4 a gradient, 8 for AdamW; no reference without a KL, another 4 with one."""
    parts = plan(MODEL).parts
    assert parts["weights"] == parts["gradients"] == parts["optimizer step"] == 4 * NUM
    assert parts["optimizer"] == 8 * NUM
    assert parts["reference model"] == 0
    assert plan(MODEL, "algorithm.beta=0.04").parts["reference model"] == 4 * NUM


@pytest.mark.parametrize(
    ("launch", "weights", "gradients", "optimizer"),
    [
        # DDP sums gradients in buckets of its own: 4 + 4 bytes.
        ("ddp", 4 * NUM, 8 * NUM, 8 * NUM),
        # DeepSpeed with bf16: 2 bytes a weight, 2 a gradient, 12 for both moments and a copy in float32; over 8.
        ("zero2", 2 * NUM, 2 * NUM // 8, 12 * NUM // 8),
        ("zero3", 2 * NUM // 8, 2 * NUM // 8, 12 * NUM // 8),
        ("fsdp2", 4 * NUM // 8, 4 * NUM // 8, 8 * NUM // 8),
    ],
)
def test_states_that_are_shared_out_over_eight(launch: str, weights: int, gradients: int, optimizer: int) -> None:
    parts = plan(MODEL, f"launch={launch}", "launch.num_processes=8").parts
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (weights, gradients, optimizer)


@pytest.mark.parametrize(
    ("words", "optimizer", "step"),
    [
        (["launch=ddp"], 8 * NUM, 4 * NUM),  # roots of the second moments, in float32
        # DeepSpeed has float32 gradients made of those in bfloat16, and the roots: 4 + 4 bytes, over 2.
        (["launch=zero2"], 12 * NUM // 2, 8 * (NUM // 2)),
        (["launch=zero3"], 12 * NUM // 2, 8 * (NUM // 2)),
        (["launch=fsdp2"], 8 * NUM // 2, 4 * (NUM // 2)),
        # Without 16-bit passes gradients are in float32 already; ZeRO-2 copies the weights all the same.
        (["launch=zero2", "launch.mixed_precision=no"], 12 * NUM // 2, 4 * (NUM // 2)),
        (["launch=zero3", "launch.mixed_precision=no"], 8 * NUM // 2, 4 * (NUM // 2)),
        (["launch=zero2", "launch.offload=optimizer"], 0, 0),
    ],
)
def test_step_of_the_optimizer_by_hand(words: list[str], optimizer: int, step: int) -> None:
    parts = plan(MODEL, *words, "launch.num_processes=2").parts
    assert (parts["optimizer"], parts["optimizer step"]) == (optimizer, step)


def test_zero3_steps_a_thousand_million_numbers_at_a_time() -> None:
    """Qwen2.5-7B over 2: 3.8 thousand millions on each, of which 1 is in float32 gradients and roots."""
    words = ("model=qwen2_5_7b", "launch.num_processes=2")
    assert plan(*words, "launch=zero3").parts["optimizer step"] == 8 * 10**9
    assert plan(*words, "launch=zero2").parts["optimizer step"] > 30 * 10**9


@pytest.mark.parametrize(
    ("launch", "processes", "kept"),
    [("single", 1, 0), ("ddp", 2, 4 * NUM), ("zero2", 2, 0), ("zero3", 2, 2 * (NUM // 2)), ("fsdp2", 2, 0)],
)
def test_generation_has_the_place_of_gradients_but_not_of_buffers(launch: str, processes: int, kept: int) -> None:
    """DDP's buckets and ZeRO-3's buffer are made once, and stay."""
    found = plan(MODEL, f"launch={launch}", f"launch.num_processes={processes}")
    names = ("weights", "optimizer", "reference model", "KV cache", "sampling", "gathered weights")
    held = sum(found.parts[name] for name in names) + kept
    assert found.phases["generation"] == pytest.approx(held * (1 + FRAGMENTED) + CONTEXT_BYTES, abs=2)


def test_offloaded_states_are_not_on_the_gpu() -> None:
    parts = plan(MODEL, "launch=zero3", "launch.offload=parameters").parts
    assert (parts["weights"], parts["optimizer"]) == (0, 0)


def test_states_of_an_adapter_by_hand() -> None:
    """Rank 32 on all linear layers of 28; frozen weights in bfloat16, the adapter in float32."""
    kv = 2 * 128
    ends = (1536 + 1536) + 2 * (1536 + kv) + (1536 + 1536) + 3 * (1536 + 8960)
    adapter = 28 * 32 * ends
    parts = plan(MODEL, "model/lora=on", "algorithm.beta=0.04").parts
    assert parts["weights"] == 2 * NUM + 4 * adapter
    assert (parts["gradients"], parts["optimizer"], parts["reference model"]) == (4 * adapter, 8 * adapter, 0)


def test_weights_in_four_bits_by_hand() -> None:
    """QLoRA: 4 bits, 8 / 64 for the scale and 32 / (64 x 256) for the scale of scales; the embedding stays bfloat16."""
    full, quantized = (plan(MODEL, f"model/lora={name}").parts["weights"] for name in ("on", "qlora"))
    linear = 28 * (2 * 1536 * 1536 + 2 * 1536 * 256 + 3 * 1536 * 8960)
    adapter = plan(MODEL, "model/lora=on").num_trained
    assert full - quantized == pytest.approx(linear * (16 - 4 - 0.125 - 32 / 16384) / 8 + 2 * adapter, abs=8)


def test_keys_values_and_sampling_by_hand() -> None:
    """32 prompts x 8 = 256 rows of 100 + 1,024 tokens: 2 x 28 layers x 256 wide x 2 bytes, and one layer's copy."""
    parts = plan(MODEL).parts
    cache = 256 * 1124 * 2 * 28 * 256 * 2
    assert parts["KV cache"] == cache + cache // 28
    assert parts["sampling"] == 256 * 151_936 * 4 * 3


def test_logits_are_a_tile_and_not_the_vocabulary() -> None:
    """8 rows x 1,024 tokens: a tile of 4,096 x 32,768 in bfloat16, hidden states and the output layer's gradient."""
    hidden = 8 * 1024 * 1536 * (4 + 2 * 4)
    assert plan(MODEL).parts["log-probabilities"] == 4096 * 32_768 * 2 + hidden + EMBEDDING * 8


def test_peak_is_the_largest_phase_with_the_reserve() -> None:
    found = plan(MODEL)
    step = found.parts["weights"] + found.parts["gradients"] + found.parts["optimizer"] + found.parts["optimizer step"]
    assert found.phases["optimizer step"] == int(step * (1 + FRAGMENTED)) + CONTEXT_BYTES
    assert found.peak == max(found.phases.values()) == found.phases[found.peak_phase]
    assert found.fits is None  # nobody said which GPU


def test_vllm_takes_its_share_in_every_phase_unless_it_sleeps() -> None:
    gpu = Gpu("80GB", 80 * GIB)
    words = [MODEL, "vllm=colocate", "vllm.gpu_memory_utilization=0.25"]
    off, on, asleep = (
        plan(MODEL, gpu=gpu), plan(*words, gpu=gpu), plan(*words, "vllm.enable_sleep_mode=true", gpu=gpu),
    )  # fmt: skip
    assert on.parts["vLLM"] == 20 * GIB
    assert on.parts["KV cache"] == on.parts["sampling"] == 0
    for phase in ("forward and backward", "optimizer step"):
        assert on.phases[phase] - off.phases[phase] == 20 * GIB
        assert asleep.phases[phase] == off.phases[phase]


def test_checkpointing_and_smaller_batches_take_less() -> None:
    long = [MODEL, "trainer.max_completion_length=4096"]
    with_it, without = plan(*long), plan(*long, "trainer.gradient_checkpointing=false")
    assert with_it.parts["activations"] < without.parts["activations"] / 5
    smaller = plan(*long, "trainer.gradient_checkpointing=false", "trainer.per_device_train_batch_size=4")
    assert smaller.parts["activations"] < 0.6 * without.parts["activations"]


# ----------------------------------------------------------------------------------------- refused, and what would fit


def fault(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        prepare(compose("dataset.train_size=64", *words), runs_here=False)
    (text,) = caught.value.faults
    return text


@pytest.mark.parametrize(
    ("words", "gpu", "advice"),
    [
        ([MODEL, "trainer.gradient_checkpointing=false", "trainer.max_completion_length=4096"], "H100-80GB",
         "trainer.gradient_checkpointing=true"),
        (["model=qwen2_5_7b"], "A100-80GB", "model/lora=on"),
        (["model=qwen2_5_7b", "launch=ddp", "launch.num_processes=8"], "A100-80GB", "launch.strategy=zero2"),
        (["model=qwen2_5_7b", "model/lora=on"], "T4", "model/lora=qlora"),
    ],
)  # fmt: skip
def test_a_run_that_cannot_fit_is_refused_with_what_would(words: list[str], gpu: str, advice: str) -> None:
    text = fault(*words, f"launch.gpu={gpu}")
    assert text.startswith(f"launch.gpu={gpu}: has ")
    given = text.partition("it would fit with ")[2].partition(";")[0].split()
    assert advice in given
    # What is advised does fit, and without any one of the words it would not.
    for left_out in [None, *given]:
        kept = [word for word in given if word != left_out]
        settings = compose(*words, *kept, f"launch.gpu={gpu}")
        found = plan_memory(settings, solve_batch(settings), prompt_tokens=10, gpu=find_gpu(settings.launch))
        assert found is not None
        assert found.fits is (left_out is None)


def test_a_share_of_vllm_that_is_too_large_is_answered_with_a_smaller_one() -> None:
    """Qwen2.5-1.5B with its optimizer takes about half of 80 GB; vLLM's share of 0.95 leaves nothing for it."""
    words = [MODEL, "vllm=colocate"]
    gpu = Gpu("80GB", 80 * GIB)
    settings = compose(*words, "vllm.gpu_memory_utilization=0.95")
    found = plan_memory(settings, solve_batch(settings), prompt_tokens=10, gpu=gpu)
    assert found is not None
    assert found.fits is False
    (word,) = [w for w in settings_that_fit(found, settings, solve_batch(settings)) if "utilization" in w]
    assert plan(*words, "vllm.enable_sleep_mode=true", word, gpu=gpu).fits
    assert float(word.partition("=")[2]) >= 0.3  # no smaller than is needed


def test_vllm_is_not_advised_a_share_that_holds_nothing() -> None:
    """Qwen2.5-7B has 15.2 GB in 16 bits: of 24 GB no share leaves room for it and its training."""
    settings = compose("model=qwen2_5_7b", "model/lora=on", "vllm=colocate", "vllm.gpu_memory_utilization=0.9")
    found = plan_memory(settings, solve_batch(settings), prompt_tokens=10, gpu=Gpu("24GB", 24 * GIB))
    assert found is not None
    assert settings_that_fit(found, settings, solve_batch(settings)) == []


def test_nothing_makes_it_fit() -> None:
    text = fault("model=qwen2_5_7b", "launch.gpu=2GB")
    assert "no setting that is known here makes it fit" in text
    settings = compose("model=qwen2_5_7b")
    batch = solve_batch(settings)
    small = plan("model=qwen2_5_7b", gpu=Gpu("2GB", 2 * GIB))
    assert settings_that_fit(small, settings, batch) == []


def test_share_of_vllm_that_does_not_hold_the_weights() -> None:
    """0.1 of 40 GB are 3.9; Qwen2.5-7B has 15.2 GB in bfloat16. It is told beside a missing vLLM."""
    with pytest.raises(ConfigError) as caught:
        prepare(compose("model=qwen2_5_7b", "model/lora=on", "vllm=colocate", "launch.gpu=A100-40GB",
                        "vllm.gpu_memory_utilization=0.1"), runs_here=False)  # fmt: skip
    assert any(f.startswith("vllm.gpu_memory_utilization=0.1: vLLM's share of 3.9 GiB") for f in caught.value.faults)


def test_estimate_can_be_printed_only_or_left_out() -> None:
    words = ("model=qwen2_5_7b", "launch.gpu=T4", "dataset.train_size=64")
    printed = prepare(compose(*words, "launch.memory_plan=print"), runs_here=False).memory
    assert printed[0].startswith("estimated peak ")
    assert "not calibrated on a GPU" in printed[0]
    assert prepare(compose(*words, "launch.memory_plan=off"), runs_here=False).memory == ()


def test_runs_on_a_cpu_have_no_plan_and_ask_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "nvidia_gpus", lambda: pytest.fail("nothing runs on a GPU"))
    monkeypatch.setattr(devices, "count_visible_gpus", lambda: 0)
    assert prepare(compose("dataset.train_size=64")).memory == ()


def test_model_of_unknown_shape_says_so(tmp_path: Path) -> None:
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).touch()
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    (line,) = prepare(
        compose("model=local", f"model.path={tmp_path}", "launch.gpu=T4", "dataset.train_size=64"), runs_here=False
    ).memory
    assert line.startswith("no estimate: the shape of the model is not known")


# ------------------------------------------------------------------------------------------------------ which GPU


@pytest.mark.parametrize(
    ("text", "gib"),
    [("A100-80GB", 80 * 0.97), ("nvidia h200", 141 * 0.97), ("l40s", 48 * 0.97), ("RTX 4090", 24 * 0.97), ("48GB", 48),
     ("22.5 GiB", 22.5)],
)  # fmt: skip
def test_gpus_by_name_or_size(text: str, gib: float) -> None:
    found = find_gpu(compose(f"launch.gpu='{text}'").launch)
    assert found is not None
    assert found.memory == int(gib * GIB)


@pytest.mark.parametrize(("text", "why"), [("H100", "more than one GPU known here; use one of H100-80GB, H100-94GB"),
                                           ("Voodoo2", "no GPU known here; use one of T4")])  # fmt: skip
def test_unknown_names_are_told_with_those_that_are_known(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        find_gpu(compose(f"launch.gpu={text}").launch)


def test_smallest_visible_gpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"name": "NVIDIA A100-SXM4-80GB", "memory.total": "81920 MiB"},
        {"name": "NVIDIA A100-SXM4-40GB", "memory.total": "40960 MiB"},
        {"error": "nvidia-smi: no answer"},
    ]
    monkeypatch.setattr(gpus, "nvidia_gpus", lambda: rows)
    assert find_gpu(compose().launch) == Gpu("NVIDIA A100-SXM4-40GB", 40 * GIB)
    monkeypatch.setattr(gpus, "nvidia_gpus", list)
    assert find_gpu(compose().launch) is None
