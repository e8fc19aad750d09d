"""Notes on vLLM: settings without effect, and corrections that do not fit to the length of completions."""

from __future__ import annotations

import math

from grpo_exp import devices, vllm_package
from grpo_exp.preflight.defaults import changed
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.served import engine_dtype
from grpo_exp.settings.vllm import ServerVllm

#: Factor between the trainer's and vLLM's probability of one token that 16 bits easily make; a judgement.
_RATIO_OF_A_TOKEN = 1.01
#: Versions of vLLM that TRL 1.16 says it supports (trl.import_utils).
_SUPPORTED = ((0, 22), (0, 31))


def vllm_notes(settings: RunSettings) -> list[str]:
    """Return one line for each: the value, why, and what to do."""
    vllm = settings.vllm
    if vllm.mode == "off":
        return []
    found = [*_version_notes(), *_correction_notes(settings)]
    if vllm.structured_outputs_regex is not None:
        found.append(
            "vllm.structured_outputs_regex: samples come from another distribution than the loss is computed on, so "
            "ratios are biased; leave it null where a reward of the form will do"
        )
    if engine_dtype(settings) == "float32" and not devices.uses_cpu(settings.launch.device):
        found.append(
            "vllm.dtype=auto: vLLM computes in float32, as the trainer does, which takes twice the memory and several "
            "times as long as 16 bits; launch.mixed_precision=bf16 is usual on a GPU"
        )
    return found + (_place_notes(vllm) if vllm.mode == "server" else [])


def _version_notes() -> list[str]:
    package, (low, high) = vllm_package.find_vllm(), _SUPPORTED
    if package is None or (package.is_at_least(*low) and not package.is_at_least(high[0], high[1] + 1)):
        return []
    return [
        f"vLLM {package.version} is installed, and TRL supports {low[0]}.{low[1]} to {high[0]}.{high[1]}: weights or "
        "probabilities may arrive in another form; pip install 'grpo-exp[vllm]' brings one of these"
    ]


def _correction_notes(settings: RunSettings) -> list[str]:
    vllm, length = settings.vllm, settings.trainer.max_completion_length
    assert vllm.mode != "off"
    mode, cap = vllm.importance_sampling_mode, vllm.importance_sampling_clip_max
    if not vllm.importance_sampling_correction:
        names = ("importance_sampling_mode", "importance_sampling_clip_max", "importance_sampling_clip_min")
        return [
            f"vllm.{name}={getattr(vllm, name)} has no effect: vllm.importance_sampling_correction is false; leave it "
            "out, or turn the correction on"
            for name in changed(vllm, *names)
        ]
    longest = math.log(cap) / math.log(_RATIO_OF_A_TOKEN) if cap is not None and cap > 1 else math.inf
    if not mode.startswith("sequence") or length <= longest:
        return []
    what = "left out of the loss" if mode == "sequence_mask" else "cut down to it as a whole"
    return [
        f"vllm.importance_sampling_mode={mode}: multiplies the ratios of all tokens, and 1 % each over {longest:.0f} "
        f"of them reach vllm.importance_sampling_clip_max={cap:g}, where trainer.max_completion_length is {length}: "
        f"long completions would be {what}; use token_truncate"
    ]


def _place_notes(vllm: ServerVllm) -> list[str]:
    """Tell of a place that nobody looks at."""
    by_address = vllm.server_base_url is not None
    unused = changed(vllm, "server_host", "server_port") if by_address else []
    if vllm.is_own:
        unused = changed(vllm, "server_host")
    why = "vllm.server_base_url is given" if by_address else "vllm.server_port is null, which is the server of this run"
    return [f"vllm.{name}={getattr(vllm, name)} has no effect: {why}; leave one of them out" for name in unused]
