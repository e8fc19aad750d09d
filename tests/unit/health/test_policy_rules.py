"""Entropy, KL, clipping, gradients, vLLM, speed."""

from __future__ import annotations

import pytest

from grpo_exp.health.monitor import HealthMonitor
from unit.health.histories import CORRECT, Curves, findings, flat, settings_of, told

ENTROPY = "train/entropy"
COLLAPSE = "entropy_collapse.window=2"
FALLING = [1.0, 1.0, 0.5, 0.2, 0.2]


def test_entropy_that_is_gone_before_the_task_is_learned_is_told() -> None:
    """Medians of two: 1 at first, 0.35 at step 4, 0.2 at step 5: below a quarter of 1, since step 4."""
    (finding,) = findings({ENTROPY: FALLING, CORRECT: flat(0.4, 5)}, COLLAPSE)
    assert (finding.rule, finding.step, finding.verdict.since) == ("entropy_collapse", 5, 4)
    assert finding.text == (
        "entropy fell from 1 to 0.2 nats per token while mean correctness stands at 0.400 (+0.000 over 2 batches)"
    )


@pytest.mark.parametrize("correct", [flat(0.85, 5), [0.1, 0.1, 0.2, 0.3, 0.4]])
def test_entropy_that_falls_as_the_task_is_learned_is_not_told(correct: list[float]) -> None:
    """Solved at 0.8, or still rising: 0.35 over the last two batches against 0.15 over the two before."""
    assert told({ENTROPY: FALLING, CORRECT: correct}, COLLAPSE) == []


def test_entropy_that_falls_slowly_is_not_told() -> None:
    assert told({ENTROPY: [1.0, 1.0, 0.6, 0.4, 0.3], CORRECT: flat(0.4, 5)}, COLLAPSE) == []


# ------------------------------------------------------------------------------------------ KL


@pytest.mark.parametrize("name", ["kl", "kl_from_start"])
def test_kl_above_its_level_is_told_at_once(name: str) -> None:
    (finding,) = findings({f"train/{name}": [0.1, 0.3, 1.2, 1.3]})
    assert (finding.rule, finding.subject, finding.step, finding.verdict.since) == ("kl_drift", name, 3, 3)
    assert finding.text.startswith(f"{name} is 1.2 nats per token")


def test_kl_that_jumps_is_told() -> None:
    """Median of three 0.05: five times that is 0.25, and 0.3 is above it and above 0.2."""
    (finding,) = findings({"train/kl": [0.05, 0.05, 0.05, 0.3, 0.05]}, "kl_drift.window=3")
    assert (finding.step, finding.verdict.since) == (4, 4)
    assert finding.text == "kl jumped to 0.3 nats per token from a median of 0.05 over 3 points"


def test_kl_that_rises_is_not_told() -> None:
    """0.15 is five times 0.03 and too small to count; 0.4 is four times 0.1."""
    assert told({"train/kl": [0.03, 0.03, 0.03, 0.15]}, "kl_drift.window=3") == []
    assert told({"train/kl": [0.1, 0.1, 0.1, 0.4]}, "kl_drift.window=3") == []


def test_kl_that_is_measured_now_and_then_is_judged_when_it_is() -> None:
    curve = [None, 0.2, None, 1.5, None]
    assert told({"train/kl_from_start": curve}) == [("warning", "kl_drift", 4, 4)]


# ------------------------------------------------------------------------------------------ clipping

CLIPPED = "train/clip_ratio/region_mean"
CLIP = ("clip_explosion.window=2", "algorithm.updates_per_batch=2")


def test_clipping_of_a_large_share_is_told() -> None:
    """Means of two: 0.07, 0.15 (step 3); at least 0.1 since step 2."""
    (finding,) = findings({CLIPPED: [0.04, 0.1, 0.2]}, *CLIP)
    assert (finding.rule, finding.step, finding.verdict.since) == ("clip_explosion", 3, 2)
    assert finding.text == "15% of the tokens are clipped (mean of 2 steps)"
    assert "algorithm.updates_per_batch" in finding.verdict.advice


def test_cispo_has_a_curve_of_its_own() -> None:
    words = ("algorithm.loss_type=cispo", "algorithm.epsilon_high=5")
    assert told({"train/cispo_clip_ratio": [0.3, 0.3]}, *CLIP, *words) == [("warning", "clip_explosion", 2, 1)]


def test_clipping_that_is_usual_is_not_told() -> None:
    """Little of it; or ratios of whole completions, of which more are clipped; or one update, where there is none."""
    assert told({CLIPPED: flat(0.05, 5)}, *CLIP) == []
    assert told({CLIPPED: flat(0.3, 5)}, *CLIP, "algorithm.importance_sampling_level=sequence") == []
    assert told({CLIPPED: flat(0.3, 5)}, "clip_explosion.window=2") == []


# ------------------------------------------------------------------------------------------ gradients and NaN

NORM = "train/grad_norm"


def test_gradient_of_ten_times_its_median_is_told() -> None:
    (finding,) = findings({NORM: [0.2, 0.3, 0.2, 2.5, 0.2]}, "gradient_spike.window=3")
    assert (finding.rule, finding.step, finding.verdict.since) == ("gradient_spike", 4, 4)
    assert finding.text == "grad_norm 2.5 against a median of 0.2 over 3 steps"


def test_larger_gradient_that_is_not_clipped_is_no_spike() -> None:
    """Eighteen times the median, and below trainer.max_grad_norm=1; or above it, and six times the median."""
    assert told({NORM: [0.05, 0.05, 0.05, 0.9]}, "gradient_spike.window=3") == []
    assert told({NORM: [0.2, 0.2, 0.2, 1.2]}, "gradient_spike.window=3") == []


@pytest.mark.parametrize("names", [["train/loss"], ["train/loss", "train/grad_norm"]])
def test_loss_that_is_not_finite_is_critical_at_once(names: list[str]) -> None:
    monitor = HealthMonitor(settings_of())
    assert monitor.observe(1, {"train/loss": 0.5}) == []
    (finding,) = monitor.observe(2, {}, names)
    assert (finding.severity, finding.rule, finding.action, finding.step) == ("critical", "not_finite", "stop", 2)
    assert finding.text.startswith(", ".join(names))
    assert "not finite" in finding.text


# ------------------------------------------------------------------------------------------ vLLM

RATIO = "train/sampling/importance_sampling_ratio/mean"


@pytest.mark.parametrize("outside", [[1.0, 0.7, 0.75], [1.0, 1.3, 1.25]])
def test_mean_ratio_that_stays_outside_is_told(outside: list[float]) -> None:
    (finding,) = findings({RATIO: outside}, "sampling_mismatch.window=2", "vllm=colocate")
    assert (finding.rule, finding.step, finding.verdict.since) == ("sampling_mismatch", 3, 2)
    assert f"{outside[-1]:.3f}, outside 0.8 to 1.2" in finding.text


def test_mean_ratio_that_comes_back_is_not_told() -> None:
    assert told({RATIO: [0.7, 0.9, 0.7, 1.0, 1.3, 0.8]}, "sampling_mismatch.window=2", "vllm=colocate") == []


# ------------------------------------------------------------------------------------------ speed


def speed(seconds: list[float], tokens: list[float | None]) -> Curves:
    return {"time/step": seconds, "train/num_tokens": tokens}


def test_run_that_becomes_slower_is_told() -> None:
    """The first step has nothing before it; 100 tokens a second at steps 2 and 3, then 25 at steps 4 and 5."""
    (finding,) = findings(speed([9, 1, 1, 4, 4], [100, 200, 300, 400, 500]), "throughput.window=2")
    assert (finding.rule, finding.step, finding.verdict.since) == ("throughput", 5, 4)
    assert finding.text == "64 completions and 25 tokens per second, after 256 and 100 at the start"


def test_longer_completions_at_the_same_speed_are_not_told() -> None:
    """Four times the time for four times the tokens: fewer completions a second, and as many tokens."""
    assert told(speed([9, 1, 1, 4, 4], [100, 200, 300, 700, 1100]), "throughput.window=2") == []


def test_steps_that_reuse_a_batch_count_into_its_time() -> None:
    """Batches at steps 1, 3, 5, 7 and 9, each of 2 s with the step that reuses it, whatever the single steps take."""
    seconds = [1.0, 1.9, 0.1, 1.9, 0.1, 0.1, 1.9, 0.1, 1.9]
    tokens: list[float | None] = [100, None, 200, None, 300, None, 400, None, 500]
    assert told(speed(seconds, tokens), "throughput.window=2", "algorithm.updates_per_batch=2") == []


GENERATION = {"time/step": flat(1.0, 3), "time/generate": [0.85, 0.9, 0.9]}


def test_generation_that_takes_most_of_the_time_is_noted() -> None:
    assert told(GENERATION, "generation_share.window=2") == [("info", "generation_share", 2, 1)]
    (finding,) = findings(GENERATION, "generation_share.window=2")
    assert "88% of the time" in finding.text  # (0.85 + 0.90) / 2 = 0.875
    assert "vllm=colocate" in finding.verdict.advice


def test_whoever_asks_to_be_alerted_gets_a_warning() -> None:
    words = ("generation_share.window=2", "generation_share.action=alert")
    assert told(GENERATION, *words) == [("warning", "generation_share", 2, 1)]


def test_generation_that_takes_half_of_the_time_is_not_told() -> None:
    assert told({"time/step": flat(1.0, 3), "time/generate": flat(0.5, 3)}, "generation_share.window=2") == []
