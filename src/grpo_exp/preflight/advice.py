"""Advice from the literature: values that are allowed, and outside of what is known to work.

A rule looks at settings alone, so that a login node can ask. It speaks of real models only: the built-in one is small
enough for other numbers. Faults are elsewhere; nobody is stopped here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from grpo_exp import devices
from grpo_exp.preflight.model_files import context_length
from grpo_exp.preflight.shown_formats import FORMS, forms_not_shown
from grpo_exp.settings.run import RunSettings

#: From here on a completion is long enough to be reasoning.
_REASONING_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Advice:
    """One value that is unusual."""

    setting: str
    """Key and value as they would be typed."""
    text: str
    """Why it is unusual, and what to try."""
    source: str
    """Where the rule comes from."""

    def __str__(self) -> str:
        return f"{self.setting}: {self.text} [{self.source}]"


Rule = Callable[[RunSettings], Iterable[Advice]]


def advice(settings: RunSettings, *, runs_here: bool = True) -> list[Advice]:
    """Return what the literature would say about these settings, the gravest first; nothing for the built-in model."""
    if settings.model.kind == "tiny":
        return []
    on_cpu = devices.will_use_cpu(settings.launch.device, runs_here=runs_here)
    return [found for rule in _RULES for found in rule(settings)] + list(_generation(settings, on_cpu=on_cpu))


def _learning_rate(settings: RunSettings) -> Iterable[Advice]:
    model, rate = settings.model, settings.trainer.learning_rate
    if model.kind == "tiny":
        return
    setting = f"trainer.learning_rate={rate:g}"
    if not model.lora.enabled and rate > 5e-6:
        yield Advice(
            setting,
            "above 5e-6, where full fine-tuning with GRPO often collapses; papers use 1e-6 to 3e-6, so try 1e-6",
            "DeepSeekMath, arXiv:2402.03300, 4.2: 1e-6; DAPO, arXiv:2503.14476, 4.1: 1e-6; DeepSeek-R1, "
            "arXiv:2501.12948: 3e-6",
        )
    if model.lora.enabled and rate > 1e-4:
        yield Advice(
            setting,
            "above 1e-4; an adapter wants about ten times the rate of full fine-tuning, so try 1e-5 to 5e-5",
            "Schulman et al., LoRA Without Regret, 2025",
        )


def _temperature(settings: RunSettings) -> Iterable[Advice]:
    temperature = settings.algorithm.temperature
    if 0.7 <= temperature <= 1.0:
        return
    if temperature < 0.7:
        grave = "; below 0.5 most groups are of one opinion" if temperature < 0.5 else ""
        why = f"samples of a group differ little, and without differences there is no advantage{grave}; use 0.7 to 1.0"
    else:
        why = "above 1 samples turn incoherent before they turn diverse; use 0.7 to 1.0"
    yield Advice(
        f"algorithm.temperature={temperature:g}",
        why,
        "rollouts of DAPO, arXiv:2503.14476, and Dr. GRPO, arXiv:2503.20783: 1.0",
    )


def _format_weight(settings: RunSettings) -> Iterable[Advice]:
    components = settings.reward.components
    answer = components[settings.reward.primary].weight
    for name, component in components.items():
        if component.kind not in FORMS or name == settings.reward.primary or answer <= 0:
            continue
        if component.weight > 0.2 * answer:
            yield Advice(
                f"reward.components.{name}.weight={component.weight:g}",
                f"form pays {component.weight / answer:.2g} of a right answer; above 0.2 a policy may learn form and "
                f"stop there (health rule format_hacking); try {0.1 * answer:g}",
                "arithmetic: a completion with nothing but form gets weight(form) / weight(answer) of a right one",
            )


def _length_bias(settings: RunSettings) -> Iterable[Advice]:
    algorithm, length = settings.algorithm, settings.trainer.max_completion_length
    is_sequence_mean = algorithm.loss_type == "grpo" and algorithm.importance_sampling_level == "token"
    if is_sequence_mean and length > 2 * _REASONING_TOKENS:
        yield Advice(
            f"algorithm.loss_type=grpo with trainer.max_completion_length={length}",
            "a mean per sequence makes each token of a long wrong answer count less, so wrong answers grow; use "
            "algorithm=dapo or dr_grpo for long reasoning",
            "DAPO, arXiv:2503.14476, 3.3; Dr. GRPO, arXiv:2503.20783, 3.1",
        )


def _updates(settings: RunSettings) -> Iterable[Advice]:
    algorithm = settings.algorithm
    if algorithm.num_iterations > 1:
        yield Advice(
            f"algorithm.num_iterations={algorithm.num_iterations}",
            "completions are learnt from again by a policy that has moved on; watch train/clip_ratio/region_mean, and "
            "prefer more prompts",
            "DeepSeekMath, arXiv:2402.03300, 4.2: a single update after each exploration",
        )
    if algorithm.updates_per_batch > 16:
        yield Advice(
            f"algorithm.updates_per_batch={algorithm.updates_per_batch}",
            "the last updates learn from a policy that is as many updates old; use 16 or fewer, as papers do",
            "DAPO, arXiv:2503.14476, 4.1: 16 updates per rollout",
        )


def _group_size(settings: RunSettings) -> Iterable[Advice]:
    size = settings.algorithm.num_generations
    if size > 16:
        yield Advice(
            f"algorithm.num_generations={size}",
            "above 16 the same completions usually buy more as further prompts; 16 is usual",
            "DAPO, arXiv:2503.14476, 4.1, and DeepSeek-R1, arXiv:2501.12948: 16; DeepSeekMath, arXiv:2402.03300: 64",
        )
    if size < 8:
        signal = 1 - 0.2**size - 0.8**size
        yield Advice(
            f"algorithm.num_generations={size}",
            f"below 8 few groups differ: of prompts solved in a fifth of the samples {signal:.0%} have a signal, with "
            f"8 {1 - 0.2**8 - 0.8**8:.0%}; grpo-exp check --signal measures it on your prompts",
            "1 - p^G - (1-p)^G with p = 0.2",
        )


def _context(settings: RunSettings) -> Iterable[Advice]:
    limit, length = context_length(settings.model), settings.trainer.max_completion_length
    if limit is None or length <= 0.8 * limit:
        return
    yield Advice(
        f"trainer.max_completion_length={length}",
        f"leaves {limit - length} of the model's {limit} tokens for prompts; use less, or a model that reads more",
        "model.context_length, or config.json of the model",
    )


def _priming(settings: RunSettings) -> Iterable[Advice]:
    model = settings.model
    if model.kind == "tiny" or model.variant != "base" or getattr(model, "prime_from", None):
        return
    forms = forms_not_shown(settings)
    if forms:
        yield Advice(
            f"model.variant=base with reward.components.{forms[0]}",
            "a base model seldom writes a format that it was not shown, and what is never sampled is never rewarded; "
            "prime it with grpo-exp sft and model.prime_from=RUN, or show the format in dataset.system_prompt",
            "DeepSeek-R1, arXiv:2501.12948, 2.3.1 (cold start)",
        )


def _beta(settings: RunSettings) -> Iterable[Advice]:
    algorithm = settings.algorithm
    if algorithm.beta > 0.04 or (algorithm.beta > 0.01 and algorithm.loss_type != "grpo"):
        yield Advice(
            f"algorithm.beta={algorithm.beta:g}",
            "holds the policy close to where it started; reasoning runs use 0 to 0.001, DeepSeekMath 0.04 with "
            "loss_type=grpo",
            "DAPO, arXiv:2503.14476, 2.3; DeepSeek-R1, arXiv:2501.12948: 0.001; DeepSeekMath, arXiv:2402.03300, 4.2",
        )


def _generation(settings: RunSettings, *, on_cpu: bool) -> Iterable[Advice]:
    vllm = settings.vllm
    if vllm.mode == "off" and not on_cpu:
        yield Advice(
            "vllm=off",
            "transformers generates on the GPU, and generation is often the slowest part of a step; use vllm=colocate",
            "TRL's documentation, Speeding Up Training",
        )
    if vllm.mode == "colocate" and vllm.gpu_memory_utilization > 0.4 and not vllm.enable_sleep_mode:
        yield Advice(
            f"vllm.gpu_memory_utilization={vllm.gpu_memory_utilization:g}",
            "above 0.4 of the memory is kept from training while vLLM stays awake; use 0.3, or "
            "vllm.enable_sleep_mode=true",
            "TRL's default: 0.3",
        )


def _truncation(settings: RunSettings) -> Iterable[Advice]:
    algorithm, length = settings.algorithm, settings.trainer.max_completion_length
    if length < _REASONING_TOKENS or algorithm.mask_truncated_completions or algorithm.overlong.enabled:
        return
    if algorithm.loss_type == "dr_grpo":
        return  # the paper keeps them: its constant length makes them count like others
    yield Advice(
        "algorithm.mask_truncated_completions=false",
        "a completion that was cut off is punished for its length, not for its reasoning, and that noise grows with "
        "the length; use true, or algorithm.overlong.enabled=true",
        "DAPO, arXiv:2503.14476, 3.4 (overlong filtering)",
    )


def _reasoning_length(settings: RunSettings) -> Iterable[Advice]:
    model, length = settings.model, settings.trainer.max_completion_length
    if model.kind == "tiny" or not _reasons(settings) or 2048 <= length <= 8192:
        return
    why = "reasoning may be cut off" if length < 2048 else "generation dominates, and one straggler holds up all"
    yield Advice(
        f"trainer.max_completion_length={length}",
        f"{why}; 2048 to 8192 is where first runs work, then raise it while "
        "train/completion_length/truncated_fraction is high",
        "Dr. GRPO, arXiv:2503.20783: 3000; DeepScaleR 2025: 8192, then 16384 and 24576; DAPO: 16384 + 4096",
    )


def _reasons(settings: RunSettings) -> bool:
    """Say whether the run is about long reasoning: of a reasoning model, or of a base model paid for thinking first."""
    model = settings.model
    if model.kind == "tiny":
        return False
    if model.variant == "reasoning":
        return model.chat_template_kwargs.get("enable_thinking", True) is not False
    thinks_first = any(component.kind == "think_format" for component in settings.reward.components.values())
    return model.opens_reasoning or (model.variant == "base" and thinks_first)


_RULES: tuple[Rule, ...] = (
    _learning_rate, _priming, _context, _temperature, _group_size, _updates, _length_bias, _truncation, _format_weight,
    _beta, _reasoning_length,
)  # fmt: skip
