"""A run of two processes of which one waits for ever: it ends by itself, with the stacks of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration.command import QUICK_MODEL, only_run, run_train

#: A reward that never comes back on the second process, from its sixth call on.
REWARD = """
import os, time

calls = 0

def waits(completions, **_):
    global calls
    calls += 1
    while calls > 5 and os.environ.get("RANK") == "1":
        time.sleep(1)
    return [float(len(text) % 2) for text in completions]
"""


@pytest.mark.long
def test_process_that_sleeps_for_ever_is_found_with_the_stack_that_shows_where(tmp_path: Path) -> None:
    """One process sleeps in its reward, the other one waits for it in a collective, for 20 s."""
    (tmp_path / "sleepy.py").write_text(REWARD)
    done = run_train(
        *QUICK_MODEL, "launch=ddp", "launch.num_processes=2", "tracker=none", "trainer.max_steps=9",
        "dataset.eval_size=5", "trainer.prompts_per_step=2", "algorithm.num_generations=4", "trainer.eval_before=false",
        "reward=math", "+reward.components.own.kind=python", "+reward.components.own.function=sleepy:waits",
        "+reward.components.own.timeout_seconds=86400", "launch.watchdog.min_seconds=20",
        "launch.watchdog.factor=2",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 1, done.output
    run = only_run(tmp_path / "outputs")
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["steps"]) == ("failed", 5)
    assert result["reason"].startswith("no step for 20 s, where the median takes ")
    assert result["reason"] in done.output
    stacks = [(run / "logs" / "attempt-1" / f"stacks-{rank}.txt").read_text() for rank in (0, 1)]
    assert "in waits" in stacks[1]
    assert "_calculate_rewards" in stacks[0]
    assert "in waits" not in stacks[0]
