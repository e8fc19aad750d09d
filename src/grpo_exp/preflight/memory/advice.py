"""Which settings would make a run fit: tried one after another, cheapest first, and only those kept that are needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from pydantic import BaseModel

from grpo_exp.errors import ConfigError
from grpo_exp.preflight.memory.engine import engine_room
from grpo_exp.preflight.memory.plan import MemoryPlan, plan_memory
from grpo_exp.settings.batching import BatchPlan, solve_batch
from grpo_exp.settings.run import RunSettings

ModelT = TypeVar("ModelT", bound=BaseModel)
#: The word a user would type, and what it sets: path -> value.
Change = tuple[str, dict[str, object]]
#: Smaller shares of a GPU for vLLM, tried in this order; with fewer sequences at once than below it crawls.
_SHARES_OF_VLLM = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15)
_SEQUENCES_AT_ONCE = 8


def settings_that_fit(plan: MemoryPlan, settings: RunSettings, batch: BatchPlan) -> list[str]:
    """Return words that make the estimate fit, or none where nothing does.

    Args:
        plan: The estimate that does not fit.
        settings: Of the run.
        batch: Its batch arithmetic.
    """
    taken: list[Change] = []
    for change in _changes(settings, batch):
        tried = [*taken, change]
        peak = _peak(plan, settings, tried)
        if peak is None or peak >= (_peak(plan, settings, taken) or 0):
            continue
        taken = tried
        if _fits(plan, settings, taken):
            break
    if not _fits(plan, settings, taken):
        return []
    for change in list(taken):  # a strong one may make an earlier one needless
        without = [other for other in taken if other is not change]
        if _fits(plan, settings, without):
            taken = without
    return [word for word, _ in _last_of_each(taken)]


def _changes(settings: RunSettings, batch: BatchPlan) -> Iterator[Change]:
    """Yield changes, those that cost least first."""
    trainer, launch, lora = settings.trainer, settings.launch, settings.model.lora
    if not trainer.gradient_checkpointing:
        yield "trainer.gradient_checkpointing=true", {"trainer.gradient_checkpointing": True}
    yield from _less_for_vllm(settings)
    size = batch.per_device_train_batch_size
    while size > 1:
        size = max(divisor for divisor in range(1, size) if size % divisor == 0)
        yield f"trainer.per_device_train_batch_size={size}", {"trainer.per_device_train_batch_size": size}
    if launch.num_processes > 1 and launch.kind == "accelerate" and not lora.is_quantized:
        for name in ("zero2", "fsdp2"):
            if launch.strategy == "ddp" or (launch.strategy == "zero2" and name == "fsdp2"):
                yield f"launch.strategy={name}", {"launch.strategy": name}
    if not lora.enabled:
        yield "model/lora=on", {"model.lora.enabled": True}
    if lora.enabled and lora.quantization == "none" and settings.vllm.mode == "off" and settings.model.kind != "tiny":
        yield "model/lora=qlora", {"model.lora.quantization": "nf4"}
    if settings.vllm.mode == "off":
        yield from _fewer_at_once(settings)


def _less_for_vllm(settings: RunSettings) -> Iterator[Change]:
    """Yield ways to leave more of the GPU to the trainer."""
    vllm = settings.vllm
    if vllm.mode != "colocate":
        return
    if not vllm.enable_sleep_mode:
        yield "vllm.enable_sleep_mode=true", {"vllm.enable_sleep_mode": True}
    for share in _SHARES_OF_VLLM:
        if share < vllm.gpu_memory_utilization:
            yield f"vllm.gpu_memory_utilization={share:g}", {"vllm.gpu_memory_utilization": share}


def _fewer_at_once(settings: RunSettings) -> Iterator[Change]:
    """Yield smaller steps: without vLLM a process generates all its completions of a batch at once."""
    prompts = settings.trainer.prompts_per_step
    while prompts is not None and prompts > 1:
        prompts //= 2
        yield f"trainer.prompts_per_step={prompts}", {"trainer.prompts_per_step": prompts}


def _fits(plan: MemoryPlan, settings: RunSettings, changes: list[Change]) -> bool:
    peak = _peak(plan, settings, changes)
    return peak is not None and plan.gpu is not None and peak <= plan.gpu.memory


def _peak(plan: MemoryPlan, settings: RunSettings, changes: list[Change]) -> int | None:
    """Return the peak with some changes; None where the batch does not divide, or vLLM has no room, with them."""
    changed = settings
    for _, values in changes:
        for path, value in values.items():
            changed = _with(changed, path.split("."), value)
    try:
        batch = solve_batch(changed)
    except ConfigError:
        return None
    found = plan_memory(changed, batch, prompt_tokens=plan.tokens.prompt, gpu=plan.gpu)
    if found is None:
        return None
    room = engine_room(found, changed)
    if room is not None and changed.vllm != settings.vllm and room[0] < _SEQUENCES_AT_ONCE * room[1]:
        return None
    return found.peak


def _with(model: ModelT, path: list[str], value: object) -> ModelT:
    """Return settings with one value changed; validators are not asked."""
    name, *rest = path
    return model.model_copy(update={name: _with(getattr(model, name), rest, value) if rest else value})


def _last_of_each(changes: list[Change]) -> list[Change]:
    """Return the last change of each setting, where several were tried one after another."""
    last = {word.partition("=")[0]: (word, values) for word, values in changes}
    return list(last.values())
