"""All components of a batch at once, their limits, their sum, their counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.rewards.components import RewardComponent, build_components
from grpo_exp.rewards.engine import score_components, total_rewards
from grpo_exp.rewards.score import OutcomeCounts, Score, outcome_counts
from grpo_exp.rewards.scorers import LastBatch
from grpo_exp.rewards.worker_pool import PoolLimits, limit_shared_pool, shared_pool
from grpo_exp.settings.reward import RewardSettings

from .reward_cases import descendants


def test_components_run_at_the_same_time() -> None:
    """Each waits for the other, so one after another would end in BrokenBarrierError."""
    meeting = threading.Barrier(2, timeout=20)

    def scorer(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        meeting.wait()
        return [Score(1.0, name)] * len(completions)

    components = [RewardComponent("first", 1.0, scorer), RewardComponent("second", 1.0, scorer)]
    results = score_components(components, ["a", "b"], {})
    assert list(results) == ["first", "second"]
    assert results["second"].scores == [Score(1.0, "second")] * 2
    assert results["first"].seconds >= 0


def test_component_that_raises_raises_after_the_others_have_ended() -> None:
    ended, meeting = threading.Event(), threading.Barrier(2, timeout=20)

    def good(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        meeting.wait()
        time.sleep(0.2)
        ended.set()
        return [Score(1.0, "match")]

    def bad(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        meeting.wait()
        raise ZeroDivisionError(name)

    with pytest.raises(ZeroDivisionError, match="bad"):
        score_components([RewardComponent("bad", 1.0, bad), RewardComponent("good", 1.0, good)], ["a"], {})
    assert ended.is_set()


def test_total_leaves_out_rows_whose_primary_component_has_no_value() -> None:
    scores = {
        "correctness": [Score(1.0, "match"), Score(0.0, "mismatch"), Score(None, "no_target")],
        "format": [Score(1.0, "well_formed"), Score(None, "no_value"), Score(1.0, "well_formed")],
    }
    # 2 * 1 + 0.5 * 1; 2 * 0 + nothing; no value
    assert total_rewards({"correctness": 2.0, "format": 0.5}, scores, primary="correctness") == [2.5, 0.0, None]


def test_what_went_wrong_is_counted_apart() -> None:
    scores = [
        Score(1.0, "match"), Score(0.4, "short_text"), Score(0.0, "within_limit"),  # right
        Score(0.0, "mismatch"), Score(-0.5, "near_limit"), Score(0.0, "no_box"), Score(0.0, "no_letters"),  # wrong
        Score(0.0, "timeout"), Score(0.0, "timeout"), Score(0.0, "crash"),
        Score(None, "no_target"), Score(None, "target_timeout"),
    ]  # fmt: skip
    assert outcome_counts(scores) == OutcomeCounts(right=3, wrong=4, timeout=2, crash=1, unjudgeable=2)
    assert outcome_counts([]) == OutcomeCounts()


def test_judge_of_the_cosine_works_once_per_batch() -> None:
    calls: list[int] = []

    def scorer(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        calls.append(len(completions))
        return [Score(1.0, "match")] * len(completions)

    judge = LastBatch(scorer)
    completions, targets = ["a", "b"], ["1", "2"]
    for _ in range(2):  # a new mapping of the same columns is the same batch
        assert judge("c", completions, {"target": targets}) == [Score(1.0, "match")] * 2
    assert calls == [2]
    judge("c", completions, {"target": list(targets)})
    judge("c", list(completions), {"target": targets})
    judge("c", completions, {"target": targets})
    assert calls == [2, 2, 2, 2]


def test_limits_of_the_settings_reach_the_checkers() -> None:
    settings = RewardSettings.model_validate(
        {
            "components": {"correctness": {"kind": "math"}},
            "engine": {"timeout_seconds": 1.5, "num_workers": 1, "memory_gib": 2},
        }
    )
    build_components(settings)
    pool = shared_pool()
    assert (pool.limit, pool.num_workers, pool.memory_bytes) == (1.5, 1, 2 * 2**30)
    (component,) = build_components(settings)  # no process so far
    assert shared_pool() is pool  # the same limits keep the processes
    before, columns = descendants(), {"target": ["2x", "2x"]}
    scores = component.score([r"\boxed{x+7^{7^{7^{7}}}}", r"\boxed{x+x}"], columns)
    assert scores == [Score(0.0, "timeout"), Score(1.0, "match")]
    started = [Path(f"/proc/{process}/limits").read_text() for process in descendants() - before]
    allowed = [line.split()[3] for text in started for line in text.splitlines() if "Max address space" in line]
    assert len(allowed) == 2  # the supervisor and the fork that works
    assert str(2 * 2**30) in allowed


def test_other_limits_end_the_processes_of_the_old_ones() -> None:
    shared_pool().close()
    before = descendants()
    assert shared_pool().ask("x", r"\frac{2x}{2}") == "match"
    assert descendants() > before
    limit_shared_pool(PoolLimits(timeout_seconds=2.0))
    assert descendants() == before
    assert shared_pool().ask("x", r"\frac{2x}{2}") == "match"
