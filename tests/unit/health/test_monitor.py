"""The monitor: each finding once, again after long, and the same after a resume."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_exp.health.finding import Finding
from grpo_exp.health.monitor import HealthMonitor
from grpo_exp.settings.run import RunSettings
from unit.health.histories import CORRECT, CUT, FORMAT, ZERO_STD, flat, settings_of, told, with_rules

SHORT = ("truncation.window=1", "no_signal.window=1", "constant_component.window=1")


def test_a_finding_that_stays_is_told_once() -> None:
    assert told({CUT: flat(0.9, 300)}, "truncation.window=1") == [("warning", "truncation", 1, 1)]


def test_a_finding_that_wavers_is_told_once() -> None:
    """Away for one step at a time, far less than 100."""
    assert len(told({CUT: [0.9, 0.0] * 150}, "truncation.window=1")) == 1


@pytest.mark.parametrize(("away", "steps"), [(99, [1]), (100, [1, 102])])
def test_a_finding_that_comes_back_after_long_is_told_again(away: int, steps: list[int]) -> None:
    """It holds at step 1 and again behind `away` steps without it; more than 100 steps must lie between the two."""
    curve = [0.9, *flat(0.0, away), 0.9]
    assert [step for _, _, step, _ in told({CUT: curve}, "truncation.window=1")] == steps


def test_a_finding_that_becomes_more_serious_is_told_again() -> None:
    """The form is at its best at step 1, and at its worst from step 2 on."""
    curves = {FORMAT: [1.0, 0.0, 0.0], "train/rewards/format/std": flat(0.0, 3)}
    found = [(severity, step) for severity, _, step, _ in told(curves, "constant_component.window=1")]
    assert found == [("info", 1), ("warning", 2)]


def test_two_rules_can_speak_at_one_step() -> None:
    assert [rule for _, rule, _, _ in told({CUT: [0.9], ZERO_STD: [1.0]}, *SHORT)] == ["no_signal", "truncation"]


def test_a_rule_that_is_ignored_says_nothing_and_the_others_do() -> None:
    words = (*SHORT, "truncation.action=ignore")
    assert [rule for _, rule, _, _ in told({CUT: [0.9], ZERO_STD: [1.0]}, *words)] == ["no_signal"]


def test_nothing_is_said_when_health_is_off() -> None:
    monitor = HealthMonitor(settings_of("health=off"))
    assert monitor.observe(1, {CUT: 1.0}, ["train/loss"]) == []


def test_strict_looks_at_the_same_rules_with_other_numbers() -> None:
    """Truncation of 0.2 over 10 steps is below the 0.25 of the default and above the 0.1 of strict."""
    assert told({CUT: flat(0.2, 10)}) == []
    assert told({CUT: flat(0.2, 10)}, "health=strict") == [("warning", "truncation", 10, 1)]


def test_steps_that_go_back_forget_what_came_after() -> None:
    """Truncation at steps 1 and 2, then step 2 once more without it, then at step 3: never two in a row."""
    monitor = HealthMonitor(with_rules(settings_of(), "truncation.window=2"))
    assert monitor.observe(1, {CUT: 0.0}) == []
    assert monitor.observe(2, {CUT: 0.9}) == []
    assert monitor.observe(2, {CUT: 0.0}) == []
    assert monitor.observe(3, {CUT: 0.9}) == []
    (finding,) = monitor.observe(4, {CUT: 0.9})
    assert (finding.step, finding.verdict.since) == (4, 3)


# ------------------------------------------------------------------------------------------ resume


def history(num_steps: int) -> list[dict[str, Any]]:
    """Return records in which rules fire, fall silent, come back and become more serious."""
    records = []
    for step in range(1, num_steps + 1):
        metrics = {
            "train/loss": 0.01,
            "train/grad_norm": 5.0 if step in {23, 41} else 0.2,
            CUT: 0.9 if step in {3, 4, 5, 30, 31, 32} else 0.0,
            ZERO_STD: 1.0 if 10 <= step < 20 else 0.2,
            CORRECT: 0.6 if step < 25 else 0.2,
            "train/reward": 0.6 if step < 25 else 0.2,
            FORMAT: 1.0 if step < 35 else 0.0,
            "train/rewards/format/std": 0.0,
            "train/rewards/correctness/timeout": 90.0 if step == 12 else 0.0,
            "train/num_tokens": 1000.0 * step,
            "time/step": 1.0 if step < 33 else 5.0,
        }
        records.append({"step": step, "time": float(step), "metrics": metrics})
    records[43] |= {"non_finite": ["train/kl"]}
    return records


REPLAYED = with_rules(
    settings_of("health.again_after_steps=15"),
    "truncation.window=2", "no_signal.window=3", "constant_component.window=4", "reward_collapse.window=5",
    "throughput.window=5", "gradient_spike.window=8", "not_finite.action=alert",
)  # fmt: skip


def observe(monitor: HealthMonitor, records: Sequence[Mapping[str, Any]]) -> list[Finding]:
    found: list[Finding] = []
    for record in records:
        found += monitor.observe(record["step"], record["metrics"], record.get("non_finite", ()))
    return found


def as_events(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return what the run directory gives back."""
    return [json.loads(json.dumps({"kind": f.severity, "text": f.text, **f.fields()})) for f in found]


def test_replay_and_rest_say_what_an_uninterrupted_run_says_wherever_it_is_cut() -> None:
    records = history(50)
    whole = observe(HealthMonitor(REPLAYED), records)
    rules = [(finding.rule, finding.severity, finding.step) for finding in whole]
    # Told twice: cut off at 4 and, 26 steps after 5, at 31; the gradient at 23 and, 18 steps later, at 41.
    assert [step for rule, _, step in rules if rule == "truncation"] == [4, 31]
    assert [step for rule, _, step in rules if rule == "gradient_spike"] == [23, 41]
    assert [(s, step) for rule, s, step in rules if rule == "constant_component"] == [("info", 4), ("warning", 38)]
    assert {"reward_collapse", "no_signal", "checker", "throughput", "not_finite"} <= {rule for rule, _, _ in rules}
    for cut in range(51):
        monitor = HealthMonitor(REPLAYED)
        monitor.replay(records[:cut], as_events([finding for finding in whole if finding.step <= cut]))
        assert observe(monitor, records[cut:]) == [finding for finding in whole if finding.step > cut], cut


def test_replay_takes_what_was_measured_last_and_no_evaluation() -> None:
    """Step 2 stands there twice, and steps 0 and 3 have records of an evaluation."""
    records = [
        {"step": 0, "metrics": {"eval/accuracy": 0.5}},
        {"step": 1, "metrics": {"train/loss": 0.1, CUT: 0.9}},
        {"step": 2, "metrics": {"train/loss": 0.1, CUT: 0.9}},
        {"step": 2, "metrics": {"train/loss": 0.1, CUT: 0.0}},
        {"step": 3, "metrics": {"eval/accuracy": 0.5}},
    ]
    monitor = HealthMonitor(with_rules(settings_of(), "truncation.window=2"))
    monitor.replay(records, [])
    assert monitor.observe(3, {CUT: 0.9}) == []
    assert [finding.step for finding in monitor.observe(4, {CUT: 0.9})] == [4]


def test_what_was_found_and_not_told_is_told_after_the_resume() -> None:
    """A crash between the two; the finding still holds at the next step."""
    monitor = HealthMonitor(with_rules(settings_of(), "truncation.window=2"))
    monitor.replay([{"step": step, "metrics": {"train/loss": 0.1, CUT: 0.9}} for step in (1, 2)], [])
    assert [(f.step, f.verdict.since) for f in monitor.observe(3, {CUT: 0.9})] == [(3, 1)]


def test_a_return_that_an_attempt_has_told_behind_the_checkpoint_is_not_told_again() -> None:
    """Told at 1, 112 and 233, each behind more than 100 steps without it; wherever it is killed and goes on."""
    settings = with_rules(settings_of(), "truncation.window=1")
    values = [0.9, *flat(0.0, 110), 0.9, *flat(0.0, 120), *flat(0.9, 3), *flat(0.0, 20)]
    records = [{"step": n, "metrics": {"train/loss": 0.1, CUT: value}} for n, value in enumerate(values, start=1)]
    for killed in range(5, 260, 25):
        for checkpoint in range(0, killed, 20):
            found = observe(HealthMonitor(settings), records[:killed])
            monitor = HealthMonitor(settings)
            monitor.replay(records[:checkpoint], as_events(found))
            found += observe(monitor, records[checkpoint:])
            assert [finding.step for finding in found] == [1, 112, 233], (killed, checkpoint)


def test_a_return_long_after_one_that_only_an_earlier_attempt_met_is_told() -> None:
    """The first attempt met it at 150, the second one, from step 20 on, does not; at 400 it is news."""
    settings = with_rules(settings_of(), "truncation.window=1")

    def records(*steps: int, first: int, last: int) -> list[dict[str, Any]]:
        of = range(first, last + 1)
        return [{"step": n, "metrics": {"train/loss": 0.1, CUT: 0.9 if n in steps else 0.0}} for n in of]

    found = observe(HealthMonitor(settings), records(1, 150, first=1, last=160))
    monitor = HealthMonitor(settings)
    monitor.replay(records(1, first=1, last=20), as_events(found))
    assert [finding.step for finding in observe(monitor, records(400, first=21, last=420))] == [400]


def test_what_was_told_behind_the_checkpoint_is_not_told_again() -> None:
    """Told at step 3; the run was killed and goes on behind step 1."""
    monitor = HealthMonitor(with_rules(settings_of(), "truncation.window=2"))
    events = [{"kind": "warning", "rule": "truncation", "step": 3}]
    monitor.replay([{"step": 1, "metrics": {"train/loss": 0.1, CUT: 0.9}}], events)
    assert observe(monitor, [{"step": step, "metrics": {CUT: 0.9}} for step in (2, 3, 4)]) == []


def test_a_rule_that_ends_runs_ends_one_that_goes_on_too() -> None:
    """It was told, by a run that ended there; whoever lets it go on under the same rule must meet it again."""
    monitor = HealthMonitor(with_rules(settings_of(), "truncation.window=1", "truncation.action=stop"))
    events = [{"kind": "warning", "rule": "truncation", "step": 2}]
    monitor.replay([{"step": 1, "metrics": {"train/loss": 0.1, CUT: 0.0}}], events)
    (finding,) = monitor.observe(2, {CUT: 0.9})
    assert finding.action == "stop"


# ------------------------------------------------------------------------------------------ robustness and cost

NAMES = [
    ZERO_STD, CORRECT, FORMAT, CUT, "train/reward", "train/loss", "train/grad_norm", "train/entropy", "train/kl",
    "train/kl_from_start", "train/completion_length/mean", "train/rewards/format/std", "train/num_tokens", "time/step",
    "time/generate", "train/clip_ratio/region_mean", "train/sampling/importance_sampling_ratio/mean",
    "train/rewards/correctness/timeout", "train/dynamic_sampling/filled_groups", "train/dynamic_sampling/reward",
    "train/dynamic_sampling/acceptance_rate", "train/dynamic_sampling/rewards/correctness/mean",
    "train/dynamic_sampling/completion_length/mean", "train/dynamic_sampling/discarded_completions", "of my own",
]  # fmt: skip
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.dictionaries(st.sampled_from(NAMES), st.floats(allow_nan=False, allow_infinity=False), max_size=12),
        st.lists(st.sampled_from([*NAMES, "nan", ""]), max_size=2),
    ),
    max_size=15,
)


def all_short(settings: RunSettings) -> RunSettings:
    """Return settings in which every rule judges by one or two points."""
    rules = [name for name, rule in settings.health.rules if "window" in type(rule).model_fields]
    return with_rules(settings, *(f"{name}.window={1 + index % 2}" for index, name in enumerate(rules)))


@pytest.mark.parametrize(
    "words", [(), ("algorithm=dapo", "health=strict"), ("algorithm.updates_per_batch=2", "vllm=colocate")]
)
def test_no_rule_raises_whatever_is_measured(words: tuple[str, ...]) -> None:
    """Metrics that are missing or absurd, names that are NaN, one step, steps that repeat or go back."""
    run = all_short(settings_of(*words))

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(RECORDS)
    def never_raises(records: list[tuple[int, dict[str, float], list[str]]]) -> None:
        monitor = HealthMonitor(run)
        for step, metrics, non_finite in records:
            for finding in monitor.observe(step, metrics, non_finite):
                assert finding.verdict.since <= finding.step == step
                assert finding.text
                assert finding.verdict.why
                assert finding.verdict.advice

    never_raises()


def test_monitor_costs_less_than_a_millisecond_a_step() -> None:
    """40 curves over 1000 steps, of which 25 are looked at; a step of 0.5 s has 10 ms for monitor and trackers."""
    monitor = HealthMonitor(settings_of("algorithm=dapo"))
    names = [*NAMES, *(f"train/further/{index}" for index in range(40 - len(NAMES)))]
    steps = [{name: 0.5 + 0.1 * math.sin(step + index) for index, name in enumerate(names)} for step in range(1000)]
    before = time.thread_time()
    for step, metrics in enumerate(steps, start=1):
        monitor.observe(step, metrics)
    assert (time.thread_time() - before) / len(steps) < 1e-3
