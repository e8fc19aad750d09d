"""Ten thousand hostile answers: nothing raises, hangs or grows, and later answers are still right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from grpo_exp.rewards.components import RewardComponent, build_components
from grpo_exp.rewards.worker_pool import shared_pool
from grpo_exp.settings.reward import RewardSettings

from .reward_cases import descendants

#: Seconds for one answer; a hanging one costs this much, so it is short here.
LIMIT = 0.5
#: Answers of one batch; they share the checkers.
BATCH = 50

ATOMS = st.sampled_from(
    [
        "0", "1", "-1", "7", "0.5", "1,000", "10^{9}", "x", "y", "e", "i", r"\pi", r"\infty", r"\emptyset", "½", "²",
        r"\text{ cm}", r"\%", r"\$5", r"90^\circ", "2_8", "1:2", r"\mathbb{R}", "\u2212", "\x00", "\ud800", "\u202e",
        "NaN", "1e308", "1e-400", r"0.\overline{3}", "", " ", "__import__('os')", "lambda: 0", "{", "}", "$", "&", "\\",
    ]
)  # fmt: skip


def _grow(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Build larger LaTeX out of smaller, right and wrong alike."""
    two = st.tuples(parts, parts)
    return st.one_of(
        two.map(lambda p: rf"\frac{{{p[0]}}}{{{p[1]}}}"),
        two.map(lambda p: f"{p[0]}^{{{p[1]}}}"),
        two.map(lambda p: rf"\binom{{{p[0]}}}{{{p[1]}}}"),
        two.map(lambda p: rf"\sum_{{k={p[0]}}}^{{{p[1]}}} k"),
        two.map(lambda p: rf"\int_{{{p[0]}}}^{{{p[1]}}} x\,dx"),
        two.map(lambda p: f"{p[0]}, {p[1]}"),
        two.map(lambda p: f"{p[0]} = {p[1]}"),
        two.map(lambda p: rf"\left({p[0]}, {p[1]}\right]"),
        two.map(lambda p: f"{p[0]}+{p[1]}"),
        two.map(lambda p: rf"{p[0]} \le x < {p[1]}"),
        parts.map(lambda p: rf"\sqrt{{{p}}}"),
        parts.map(lambda p: f"({p})!"),
        parts.map(lambda p: rf"\log_{{{p}}} {p}"),
        parts.map(lambda p: rf"\begin{{pmatrix}} {p} & {p} \\ {p} & {p} \end{{pmatrix}}"),
        parts.map(lambda p: rf"\{{{p}\}}"),
        parts.map(lambda p: rf"\boxed{{{p}"),
        parts.map(lambda p: f"<think>{p}</think>"),
    )


LATEX = st.recursive(ATOMS, _grow, max_leaves=12)
TOWERS = st.lists(st.integers(2, 99), min_size=3, max_size=6).map(
    lambda numbers: "^{".join(map(str, numbers)) + "}" * (len(numbers) - 1)
)
HUGE = st.one_of(
    st.tuples(st.integers(6, 12), st.integers(5, 11)).map(lambda p: rf"\binom{{10^{{{p[0]}}}}}{{10^{{{p[1]}}}}}"),
    st.integers(5, 9).map(lambda power: rf"(10^{{{power}}})!"),
    st.integers(1_000, 100_000).map(lambda count: "9" * count),
    st.integers(10, 5_000).map(lambda depth: "(" * depth + "x" + ")" * depth),
    st.integers(10, 5_000).map(lambda depth: r"\sqrt{" * depth + "x" + "}" * depth),
    st.integers(10, 5_000).map(lambda depth: r"\frac{1}{" * depth + "x" + "}" * depth),
    st.integers(10, 400).map(lambda count: "+".join("x" * count)),
    st.integers(2, 60).map(lambda power: f"(x+y+z)^{{{power}}}"),
)
#: Mostly what is cheap: towers and huge numbers cost their whole time limit.
ANSWERS = st.one_of(*[LATEX] * 12, *[st.text(max_size=60)] * 4, TOWERS.map(lambda tower: f"x+{tower}"), HUGE)


@pytest.fixture(scope="module")
def component() -> Iterator[RewardComponent]:
    """Return the mathematics reward with a short time limit."""
    fields = {"components": {"correctness": {"kind": "math"}}, "engine": {"timeout_seconds": LIMIT}}
    (built,) = build_components(RewardSettings.model_validate(fields))
    yield built
    shared_pool().close()


@pytest.fixture(autouse=True)
def _usual_limits() -> None:
    """Keep the short limit over all tests of this file."""


def num_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def assert_still_right(component: RewardComponent) -> None:
    scores = component.score([r"\boxed{\frac{2x}{2}}", r"\boxed{x+1}", r"\boxed{2\sqrt{3}}"], {"target": ["x"] * 3})
    assert [score.value for score in scores] == [1.0, 0.0, 0.0]
    assert {score.reason for score in scores} == {"match", "mismatch"}


def bombard(component: RewardComponent, num_answers: int) -> None:
    """Score hostile answers and assert what must hold whatever they are."""
    num_batches = num_answers // BATCH
    assert_still_right(component)  # all processes are started
    pool = shared_pool()
    component.score([rf"\boxed{{x+{i}y}}" for i in range(8)], {"target": ["z"] * 8})
    processes, descriptors = len(descendants()), num_descriptors()
    reasons: set[str] = set()

    @seed(0)
    @settings(
        max_examples=num_batches,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(ANSWERS, min_size=BATCH, max_size=BATCH))
    def run(answers: list[str]) -> None:
        started = time.monotonic()
        scores = component.score([rf"so \boxed{{{answer}}}" for answer in answers], {"target": ["271828x"] * BATCH})
        elapsed = time.monotonic() - started
        assert [score.value for score in scores] == [0.0] * BATCH
        hanging = sum(score.reason == "timeout" for score in scores)
        # what does not hang is fast; ten seconds are for a machine that is busy elsewhere
        assert elapsed < -(-hanging // pool.num_workers) * LIMIT + 10
        reasons.update(score.reason for score in scores)

    run()
    assert {"timeout", "mismatch", "unparsable", "too_long"} <= reasons  # the answers were as hostile as meant
    assert len(descendants()) <= max(processes, 2 * pool.num_workers)
    assert num_descriptors() <= descriptors + 3 * pool.num_workers
    assert_still_right(component)


def test_sample_of_hostile_answers(component: RewardComponent) -> None:
    bombard(component, 300)


@pytest.mark.long
def test_ten_thousand_hostile_answers(component: RewardComponent) -> None:
    bombard(component, 10_000)


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{" + "x+" * 500_000 + "x}",
        r"\boxed{" + "{" * 100_000 + "}" * 100_000 + "}",
        r"\boxed{" + "}" * 100_000,
        r"\boxed{" + r"\frac{" * 100_000,
        r"\boxed{" + "\x00" * 1_000_000 + "}",
        r"\boxed{" + "$" * 1_000_000 + "}",
        r"\boxed{" + r"\text{" * 50_000 + "}" * 50_000 + "}",
        "#" * 1_000_000,
        "<answer>" * 100_000,
    ],
    ids=["sum", "braces", "closing", "fractions", "zeros", "dollars", "texts", "markers", "tags"],
)
@pytest.mark.parametrize("kind", ["math", "gsm8k", "letter", "exact", "numeric"])
def test_megabytes_are_read_in_linear_time(text: str, kind: str) -> None:
    fields = {"components": {"correctness": {"kind": kind}}}
    (built,) = build_components(RewardSettings.model_validate(fields))
    started = time.monotonic()
    (score,) = built.score([text], {"target": ["B" if kind == "letter" else "7"]})
    assert score.value == 0.0
    assert time.monotonic() - started < 3
