"""What vLLM has for keys and values in its share of a GPU, beside its own copy of the weights."""

from __future__ import annotations

from grpo_exp.preflight.memory.plan import MemoryPlan, cache_bytes
from grpo_exp.preflight.memory.states import precision_of
from grpo_exp.preflight.model_files import architecture_of
from grpo_exp.settings.run import RunSettings


def engine_room(plan: MemoryPlan, settings: RunSettings) -> tuple[int, int] | None:
    """Return the bytes that vLLM has for keys and values on one GPU, and those of one sequence there."""
    vllm, shape = settings.vllm, architecture_of(settings.model)
    if vllm.mode != "colocate" or shape is None or plan.gpu is None:
        return None
    number = precision_of(settings).compute
    own_weights = shape.num_parameters * number // vllm.tensor_parallel_size
    sequence = cache_bytes(shape, plan.tokens.length, number) // vllm.tensor_parallel_size
    return plan.parts["vLLM"] - own_weights, sequence
