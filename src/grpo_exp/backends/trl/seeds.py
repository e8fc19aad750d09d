"""Seeds of sampling that belong to one run and one process: of transformers, and of a vLLM engine in the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from accelerate.utils import set_seed
from trl.generation import vllm_generation
from trl.trainer.grpo_config import GRPOConfig

from grpo_exp.seeding import derive_seed


def seed_rollouts(arguments: GRPOConfig, rank: int) -> None:
    """Seed this process's random numbers, which transformers samples with.

    Not where vLLM lives in the process: it has seeded them, alike for all processes that share an engine.
    """
    if not _starts_engine(arguments):
        set_seed(derive_seed(arguments.seed, "rollouts", rank))


@contextmanager
def seeded_engine(arguments: GRPOConfig) -> Iterator[None]:
    """Let a vLLM engine that TRL starts inside be seeded by the run, too: TRL seeds it by the number of the engine.

    TRL has no argument for it, so the class is replaced for as long as the trainer is built.
    """
    module = cast(Any, vllm_generation)  # has the class only where vLLM is installed
    if not _starts_engine(arguments) or not module.is_vllm_available():  # TRL says that it is missing
        yield
        return
    engine = module.LLM

    def build(*args: Any, **kwargs: Any) -> Any:
        return engine(*args, **{**kwargs, "seed": derive_seed(arguments.seed, "vllm", kwargs["seed"])})

    module.LLM = build
    try:
        yield
    finally:
        module.LLM = engine


def _starts_engine(arguments: GRPOConfig) -> bool:
    return bool(arguments.use_vllm) and arguments.vllm_mode == "colocate"
