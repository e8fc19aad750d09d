"""Two seeds, and two processes, never sample alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import PartialState
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration

from grpo_exp.backends.trl.seeds import seed_rollouts, seeded_engine
from grpo_exp.seeding import derive_seed


def arguments(seed: int, **changes: Any) -> Any:
    return SimpleNamespace(**{"seed": seed, "use_vllm": False, "vllm_mode": "server", **changes})


def test_derived_seeds_keep_their_parts_apart() -> None:
    """`seed + rank` would give (0, 1) and (1, 0) one seed; text put together would give (1, 23) and (12, 3) one."""
    keys = [(0, 1), (1, 0), (1, 23), (12, 3), (0, "1"), (0, 1, "")]
    seeds = [derive_seed(*key) for key in keys]
    assert seeds[0] == seeds[4]  # a part is its text
    assert len(set(seeds)) == len(keys) - 1
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_every_seed_and_process_draws_numbers_of_its_own() -> None:
    PartialState(cpu=True)
    with torch.random.fork_rng():
        drawn = []
        for seed in range(3):
            for rank in range(3):
                seed_rollouts(arguments(seed), rank)
                drawn.append(tuple(torch.rand(4).tolist()))
        seed_rollouts(arguments(1), 2)
        assert tuple(torch.rand(4).tolist()) == drawn[5]
    assert len(set(drawn)) == 9


class RecordingEngine:
    """Stands for vLLM's engine, which is not installed here: notes what it is built with."""

    built: list[dict[str, Any]]

    def __init__(self, **kwargs: Any) -> None:
        self.built.append(kwargs)


@pytest.fixture
def build_engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return `build(seed, rank, world)`: TRL starts its engine in a process, and what it got is returned."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")  # TRL sets them; this takes them back afterwards
    monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda: True)
    monkeypatch.setattr(vllm_generation, "LLM", RecordingEngine, raising=False)
    monkeypatch.setattr(RecordingEngine, "built", [], raising=False)

    def build(seed: int, rank: int, world: int = 4, group_size: int = 1) -> dict[str, Any]:
        accelerator = SimpleNamespace(
            state=SimpleNamespace(deepspeed_plugin=None, fsdp_plugin=None),
            process_index=rank,
            local_process_index=rank,
            num_processes=world,
            wait_for_everyone=lambda: None,
        )
        model = SimpleNamespace(name_or_path="model", named_modules=lambda: [])
        with seeded_engine(arguments(seed, use_vllm=True, vllm_mode="colocate")):
            stand_ins: Any = (model, accelerator, None)
            VLLMGeneration(*stand_ins, mode="colocate", tensor_parallel_size=group_size)
        return RecordingEngine.built[-1]

    return build


def test_engine_in_the_process_is_seeded_by_run_and_process(build_engine: Any) -> None:
    """TRL gives it the rank alone: seeds 0 and 1 would sample the same completions."""
    seeds = {build_engine(seed, rank)["seed"] for seed in range(3) for rank in range(2)}
    assert len(seeds) == 6
    assert build_engine(2, 1)["seed"] in seeds
    assert build_engine(0, 0)["model"] == "model"  # the rest arrives as TRL says it


def test_processes_that_share_an_engine_have_one_seed(build_engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 GPUs an engine: ranks 0 and 1 must sample alike, 2 and 3 are the next engine."""
    monkeypatch.setattr(torch.distributed, "new_subgroups_by_enumeration", lambda groups: (groups[0], groups))
    seeds = [build_engine(5, rank, group_size=2)["seed"] for rank in range(4)]
    assert seeds[0] == seeds[1]
    assert seeds[2] == seeds[3]
    assert seeds[0] != seeds[2]


def test_engine_class_is_trls_again_afterwards(build_engine: Any) -> None:
    build_engine(0, 0)
    assert vllm_generation.LLM is RecordingEngine


def test_generator_of_a_process_with_an_engine_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has seeded it, alike for all processes that share it; another seed would tear them apart."""
    PartialState(cpu=True)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        expected = torch.rand(2).tolist()
        torch.manual_seed(3)
        seed_rollouts(arguments(0, use_vllm=True, vllm_mode="colocate"), 0)
        assert torch.rand(2).tolist() == expected
