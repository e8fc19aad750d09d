"""What model and launch come to, in words, and what a login node can check of a run that is for GPUs elsewhere."""

from __future__ import annotations

import pytest

from grpo_exp import devices
from grpo_exp.commands import check
from grpo_exp.preflight.effective import effective_lines
from grpo_exp.settings import load


@pytest.fixture(autouse=True)
def _login_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count_visible_gpus", lambda: 0)


def lines(*words: str, runs_here: bool = True) -> dict[str, str]:
    return dict(effective_lines(load.to_settings(load.compose(["tracker=none", *words])), runs_here=runs_here))


def test_default_run() -> None:
    assert lines() == {
        "model": "tiny, weights in float32, all trained, learning rate 0.0001",
        "launch": "1 process, passes without autocast, device cpu, transformers generates",
    }


def test_adapter_on_several_nodes() -> None:
    words = ["model=qwen2_5_7b", "model.variant=base", "model/lora=qlora", "launch=multinode", "launch.strategy=zero2",
             "launch.offload=optimizer", "vllm=server"]  # fmt: skip
    assert lines(*words, runs_here=False) == {
        "model": "Qwen/Qwen2.5-7B, 4-bit weights, LoRA r=32 on all-linear, attention sdpa, activations recomputed, "
        "learning rate 1e-05",
        "launch": "16 processes on 2 nodes, gradients and optimizer shared out (DeepSpeed ZeRO-2), optimizer in the "
        "memory of the CPU, bf16 passes, device auto, vLLM generates (server)",
    }


def test_login_node_checks_a_run_for_a_gpu_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """fsdp2 is refused where the run would be on this machine's CPU."""
    words = ["model=qwen2_5_7b", "launch=fsdp2", "launch.gpu=H100-80GB", "dataset.train_size=64", "tracker=none"]
    assert check.main(words) == 0
    printed = capsys.readouterr().out
    for start in ("model    Qwen/Qwen2.5-7B-Instruct", "launch   8 processes, weights", "memory   estimated peak "):
        assert f"\n{start}" in printed
    with pytest.raises(ValueError, match="silently hold all of it"):
        check.main([word for word in words if "gpu" not in word])
