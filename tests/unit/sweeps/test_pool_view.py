"""What a terminal shows of the runs of a pool."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from grpo_exp.sweeps.local import view
from grpo_exp.sweeps.states import read_statuses
from unit.sweeps.sweep_folder import a_sweep, finish


@pytest.mark.parametrize("is_terminal", [True, False])
def test_running_points_are_shown_with_step_and_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    """The last step measured is 2 of 5, with a mean reward of 0.2."""
    monkeypatch.setattr(view, "_TABLE_SECONDS", 0.0)
    monkeypatch.setattr(view, "_LINE_SECONDS", 0.0)
    sweep = a_sweep(tmp_path / "s", seeds=2)
    first, second = sweep.read_entries()
    out = io.StringIO()
    shown = view.build_view(sweep, 2, Console(file=out, width=200, force_terminal=is_terminal))
    assert isinstance(shown, view.TableView) is is_terminal
    with shown:
        shown.started(first)
        finish(sweep.run(first), exit_code=None)
        shown.refresh([(first, 1)], 1)
        finish(sweep.run(first), eval={"before": {"accuracy": 0.25}, "after": {"accuracy": 0.5}})
        shown.ended(read_statuses(sweep)[0], 0)
        shown.started(second)
        shown.ended(read_statuses(sweep)[1], 130)
    told = out.getvalue()
    assert "step 2/2" in told
    assert "reward 0.200" in told
    assert ("1 running, 1 waiting, 0 of 2 ended, 0 failed" in told) is is_terminal
    assert "2 steps, accuracy 0.250 -> 0.500 [1/2]" in told
    assert "it ended with code 130 before it began" in told
