"""The exact command line of `vllm serve` for runs of each kind."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from grpo_exp.serving.command import Replica, build_serve_command
from grpo_exp.settings import load
from grpo_exp.vllm_package import VllmPackage

_MODEL = ("vllm=server", "model=local", "model.path=/models/our Qwen")
CASES: dict[str, tuple[tuple[str, ...], Replica | None]] = {
    "a server that others reach": (("vllm.max_model_length=4096",), None),
    "two GPUs of this node": (("vllm.num_gpus=2", "seed=1", "launch.mixed_precision=bf16"), None),
    "second of two nodes": (("vllm.tensor_parallel_size=8",), Replica(1, 2, "n3", 22000)),
    "another environment": (
        ("vllm.serve_command=[apptainer,exec,--nv,vllm.sif,vllm]", "vllm.serve_options=[--enable-expert-parallel]",
         "vllm.data_parallel_size=4", "model.revision=main", "model.trust_remote_code=true"),
        None,
    ),
}  # fmt: skip


def test_serve_commands(check_golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_exp.serving.command.serve_program", lambda: ["vllm"])
    blocks = []
    for title, (words, replica) in CASES.items():
        settings = load.to_settings(load.compose([*_MODEL, *words]))
        package = None if title == "another environment" else VllmPackage("0.31.0", is_for_cpu=False)
        host = "127.0.0.1" if "vllm.num_gpus=2" in words else "0.0.0.0"
        command = build_serve_command(settings, host=host, port=21000, package=package, replica=replica)
        blocks.append(f"# {title}: {' '.join(words)}\n{shlex.join(command)}\n")
    check_golden("vllm_serve.txt", "\n".join(blocks))
