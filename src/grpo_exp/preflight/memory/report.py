"""The plan in words: lines for the start of a run, and the fault where it does not fit."""

from __future__ import annotations

from grpo_exp.preflight.memory.advice import settings_that_fit
from grpo_exp.preflight.memory.engine import engine_room
from grpo_exp.preflight.memory.gpus import GIB
from grpo_exp.preflight.memory.plan import MemoryPlan
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.run import RunSettings

#: Said wherever the estimate is: nobody has compared it with a GPU yet.
UNCALIBRATED = "not calibrated on a GPU"
_ALL_THE_SAME = "launch.memory_plan=print starts it all the same"


def memory_lines(plan: MemoryPlan, settings: RunSettings) -> list[str]:
    """Return what is printed before a run starts: the peak, then its parts."""
    place = "" if plan.gpu is None else f" of the {_gib(plan.gpu.memory)} of {plan.gpu.name}"
    parts = ", ".join(f"{name} {_gib(size)}" for name, size in plan.parts.items() if size)
    phases = ", ".join(f"{name} {_gib(size)}" for name, size in plan.phases.items())
    tokens = plan.tokens
    lines = [
        f"estimated peak {_gib(plan.peak)}{place} per GPU, in {plan.peak_phase} ({UNCALIBRATED}: docs/memory.md)",
        f"parts: {parts}",
        f"phases: {phases}",
        f"for {plan.num_parameters / 1e6:,.0f} million parameters of which {plan.num_trained / 1e6:,.1f} are trained; "
        f"{tokens.rows} x ({tokens.prompt} + {tokens.completion}) tokens in a pass, {tokens.generated_rows} rows "
        "generated at once",
    ]
    return [*lines, *_engine_lines(plan, settings)]


def _engine_lines(plan: MemoryPlan, settings: RunSettings) -> list[str]:
    """Say how many sequences vLLM's share holds beside its own copy of the weights."""
    room = engine_room(plan, settings)
    if room is None:
        return []
    cache, sequence = room
    return [
        f"vLLM: {_gib(cache)} for keys and values, {cache // sequence if cache > 0 else 0} sequences of "
        f"{plan.tokens.length} tokens at once, of {plan.tokens.generated_rows} per GPU"
    ]


def memory_faults(plan: MemoryPlan, settings: RunSettings, batch: BatchPlan) -> list[str]:
    """Return why the run cannot fit its GPU, with the settings that would make it fit."""
    if plan.gpu is None:
        return []
    faults = []
    if not plan.fits:
        words = settings_that_fit(plan, settings, batch)
        fix = (
            f"it would fit with {' '.join(words)}"
            if words
            else ("no setting that is known here makes it fit: take a smaller model, more or larger GPUs")
        )
        faults.append(
            f"launch.gpu={plan.gpu.name}: has {_gib(plan.gpu.memory)} and the run needs an estimated {_gib(plan.peak)} "
            f"in {plan.peak_phase} ({UNCALIBRATED}); {fix}; {_ALL_THE_SAME}"
        )
    room = engine_room(plan, settings)
    vllm = settings.vllm
    if room is not None and vllm.mode == "colocate" and room[0] < room[1]:
        faults.append(
            f"vllm.gpu_memory_utilization={vllm.gpu_memory_utilization:g}: vLLM's share of {_gib(plan.parts['vLLM'])} "
            f"does not hold its copy of the weights and one sequence of {plan.tokens.length} tokens; raise it, or "
            f"vllm.tensor_parallel_size; {_ALL_THE_SAME}"
        )
    return faults


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if abs(size) >= 0.05 * GIB else f"{size / 1024**2:.1f} MiB"
