"""An estimate of what one GPU must hold, made from numbers alone: docs/memory.md has the formulas."""

from grpo_exp.preflight.memory.advice import settings_that_fit
from grpo_exp.preflight.memory.gpus import Gpu, find_gpu
from grpo_exp.preflight.memory.plan import MemoryPlan, plan_memory
from grpo_exp.preflight.memory.report import memory_faults, memory_lines
from grpo_exp.preflight.memory.tokens import longest_prompt

__all__ = [
    "Gpu",
    "MemoryPlan",
    "find_gpu",
    "longest_prompt",
    "memory_faults",
    "memory_lines",
    "plan_memory",
    "settings_that_fit",
]
