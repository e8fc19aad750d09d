"""Notes on the algorithm: which of its numbers TRL's loss really uses."""

from __future__ import annotations

from grpo_exp.settings.algorithm import AlgorithmSettings
from grpo_exp.settings.run import RunSettings

#: Loss types with a ratio that is clipped on both sides; cispo caps it with epsilon_high alone.
_CLIPPED = {"grpo", "bnpo", "dr_grpo", "dapo", "luspo"}
#: Loss types that sum over tokens, so that a sequence counts by its length.
_SUMMED_OVER_TOKENS = {"bnpo", "dr_grpo", "dapo", "cispo"}
#: Clips that presets state although they update once per batch: (lower, upper).
_USUAL_CLIPS = {(0.2, 0.2), (0.2, 0.28), (10.0, 10.0)}
#: Fields of one loss type: start of their names.
_OF_ONE_LOSS = {"sapo_": "sapo", "vespo_": "vespo"}


def algorithm_notes(settings: RunSettings) -> list[str]:
    """Return what is missing, what has no effect, and what does not go together."""
    algorithm = settings.algorithm
    return [
        *_sampling_notes(algorithm),
        *_kl_notes(algorithm),
        *_reference_notes(settings),
        *_scaling_notes(settings),
        *_clip_notes(algorithm),
        *_level_notes(algorithm),
        *_soft_gate_notes(algorithm),
        *_mask_notes(settings),
    ]


def _sampling_notes(algorithm: AlgorithmSettings) -> list[str]:
    if algorithm.top_p == 1:
        return []
    return [
        f"algorithm.top_p={algorithm.top_p}: samples come from a cut distribution, so ratios are biased; 1.0 is usual"
    ]


def _kl_notes(algorithm: AlgorithmSettings) -> list[str]:
    if algorithm.beta != 0 or not algorithm.use_bias_correction_kl:
        return []
    return ["algorithm.use_bias_correction_kl has no effect: algorithm.beta is 0; leave it out, or raise beta"]


def _reference_notes(settings: RunSettings) -> list[str]:
    """Tell of a refresh that does not happen."""
    algorithm, steps = settings.algorithm, settings.trainer.max_steps
    if not algorithm.sync_ref_model:
        return [
            f"algorithm.{name}={getattr(algorithm, name)} has no effect: the reference model stays as it is; leave it "
            "out, or add algorithm.sync_ref_model=true"
            for name in _changed(algorithm, "ref_model_")
        ]
    if algorithm.beta == 0:
        return [
            "algorithm.sync_ref_model=true has no effect: algorithm.beta is 0, so there is no reference model; leave "
            "it out, or raise beta"
        ]
    if algorithm.ref_model_sync_steps > steps:
        return [
            f"algorithm.ref_model_sync_steps={algorithm.ref_model_sync_steps}: the run ends at step {steps}, so the "
            "reference model is never refreshed; lower it"
        ]
    return []


def _scaling_notes(settings: RunSettings) -> list[str]:
    algorithm, found = settings.algorithm, []
    scale = algorithm.scale_rewards
    if algorithm.multi_objective_aggregation == "normalize_then_sum":
        if scale != "group":
            found.append(
                f"algorithm.scale_rewards={scale} has no effect: normalize_then_sum divides each component by the std "
                "of its group and the sum by that of the batch, always; use sum_then_normalize to choose"
            )
        if len(settings.reward.components) == 1:
            found.append(
                "algorithm.multi_objective_aggregation=normalize_then_sum: the reward has one component, so there is "
                "nothing to balance (arXiv:2601.05242), and advantages are divided twice; use sum_then_normalize, or "
                "add a component"
            )
        return found
    if algorithm.loss_type == "dr_grpo" and scale != "none":
        found.append(
            f"algorithm.scale_rewards={scale} with loss_type=dr_grpo: Dr. GRPO is both, the constant length and "
            "no division (arXiv:2503.20783); use scale_rewards=none"
        )
    return found


def _clip_notes(algorithm: AlgorithmSettings) -> list[str]:
    """Tell of clips that cannot act: unknown to the loss, or around a ratio that is always 1."""
    loss, unused = algorithm.loss_type, []
    if loss not in _CLIPPED:
        unused = _unusual(algorithm) if loss in {"sapo", "vespo"} else _unusual_besides_cap(algorithm)
    if unused:
        return [
            f"{', '.join(unused)}: no effect, loss_type={loss} does not clip that way; leave out, or "
            "choose another loss_type"
        ]
    if loss in _CLIPPED and algorithm.epsilon >= 1 and (algorithm.epsilon, algorithm.clip_high) not in _USUAL_CLIPS:
        return [
            f"algorithm.epsilon={algorithm.epsilon}: 1 - epsilon is not above 0, so ratios are never clipped from "
            "below; use a value below 1 to clip them"
        ]
    updates = algorithm.updates_per_batch * algorithm.num_iterations
    unusual = _unusual(algorithm) if loss in _CLIPPED and updates == 1 else []
    if not unusual:
        return []
    return [
        f"{', '.join(unusual)}: no effect, each batch is used for one update, so the ratio is 1 and never clipped; "
        "raise algorithm.updates_per_batch or num_iterations to make it count"
    ]


def _unusual(algorithm: AlgorithmSettings) -> list[str]:
    """Return the clips as typed, where somebody set them on purpose."""
    names = [] if algorithm.delta is None else [f"algorithm.delta={algorithm.delta}"]
    if (algorithm.epsilon, algorithm.clip_high) in _USUAL_CLIPS:
        return names
    return [f"algorithm.epsilon={algorithm.epsilon}", f"algorithm.epsilon_high={algorithm.clip_high}", *names]


def _unusual_besides_cap(algorithm: AlgorithmSettings) -> list[str]:
    names = [] if algorithm.delta is None else [f"algorithm.delta={algorithm.delta}"]
    default = AlgorithmSettings.model_fields["epsilon"].default
    return names if algorithm.epsilon == default else [f"algorithm.epsilon={algorithm.epsilon}", *names]


def _level_notes(algorithm: AlgorithmSettings) -> list[str]:
    level, loss = algorithm.importance_sampling_level, algorithm.loss_type
    given = f"algorithm.importance_sampling_level={level}"
    if level == "sequence" and loss == "vespo":
        return [f"{given} has no effect on loss_type=vespo, which weighs sequences by itself; use token"]
    if level == "sequence" and loss in _SUMMED_OVER_TOKENS:
        return [
            f"{given} with loss_type={loss}: the loss sums over tokens, so a sequence counts by its length; GSPO is "
            "loss_type=grpo (arXiv:2507.18071)"
        ]
    if level == "token" and loss == "luspo":
        return [f"{given} with loss_type=luspo: the paper's ratio is one per sequence; use sequence"]
    return []


def _soft_gate_notes(algorithm: AlgorithmSettings) -> list[str]:
    """Tell of gates and kernels of another loss, and of a gate that is steeper for rewards than for punishments."""
    found = [
        f"algorithm.{name}={getattr(algorithm, name)} has no effect: algorithm.loss_type is not {loss}; leave it out"
        for start, loss in _OF_ONE_LOSS.items()
        if loss != algorithm.loss_type
        for name in _changed(algorithm, start)
    ]
    positive, negative = algorithm.sapo_temperature_pos, algorithm.sapo_temperature_neg
    if algorithm.loss_type == "sapo" and negative < positive:
        found.append(
            f"algorithm.sapo_temperature_neg={negative}: below sapo_temperature_pos ({positive}), and the paper wants "
            "tokens that are punished to fade faster (arXiv:2511.20347); raise it"
        )
    return found


def _changed(algorithm: AlgorithmSettings, start: str) -> list[str]:
    """Return the fields whose names start so and that are not at their default."""
    fields = type(algorithm).model_fields
    return [name for name in fields if name.startswith(start) and getattr(algorithm, name) != fields[name].default]


def _mask_notes(settings: RunSettings) -> list[str]:
    if not settings.algorithm.mask_truncated_completions or settings.trainer.max_completion_length > 1:
        return []
    return [
        "trainer.max_completion_length=1: with algorithm.mask_truncated_completions every completion but the empty one "
        "is truncated and left out of the loss; raise it"
    ]
