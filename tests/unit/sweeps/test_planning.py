"""All points of a sweep are checked, as Hydra would compose them, before anything is started."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.settings import load
from grpo_exp.settings.absolute_paths import absolute_paths
from grpo_exp.sweeps.axes import Grid, build_grid
from grpo_exp.sweeps.plan_text import describe_faults_by_cause
from grpo_exp.sweeps.planning import Plan, build_plan
from grpo_exp.sweeps.rules import SweepRules, check_settings

SMALL = ("tracker=none", "launch=inline", "dataset.train_size=64", "dataset.eval_size=8")


def plan_of(folder: Path, *words: str, **rules: Any) -> tuple[Plan, Grid]:
    checked = check_settings(SweepRules, rules, prefix=("hydra", "sweeper"))
    grid = build_grid({}, [*SMALL, *words], paired=checked.paired)
    return build_plan(grid, checked, folder=folder / "sweeps" / "s"), grid


def without_place(data: dict[str, Any]) -> dict[str, Any]:
    """Leave out what only a run of a sweep has: its folder, and the group of its trackers."""
    tracker = {key: value for key, value in data["tracker"].items() if key != "group"}
    return {**{key: value for key, value in data.items() if key not in {"name", "output_dir"}}, "tracker": tracker}


def check_against_hydra(plan: Plan, folder: Path) -> None:
    """Hydra composes the words of each point from nothing."""
    for point in plan.points:
        composed = absolute_paths(load.to_settings(load.compose(point.words)), folder)
        assert without_place(composed.model_dump()) == without_place(point.settings.model_dump())


def test_points_are_what_hydra_composes(tmp_path: Path) -> None:
    """Groups, values, interpolations of changed values, additions and a mapping: 2 x 2 points."""
    plan, _ = plan_of(
        tmp_path, "algorithm=dapo,grpo", "+trainer.extra.adam_epsilon=1e-6", "model.learning_rate=1e-4,2e-4",
        "algorithm.dynamic_sampling={max_rounds: 3}", "experiment=smoke",
    )  # fmt: skip
    assert not plan.faults
    assert {p.settings.trainer.learning_rate for p in plan.points} == {1e-4, 2e-4}  # ${model.learning_rate}
    assert len(plan.points) == 4
    check_against_hydra(plan, tmp_path)


@pytest.mark.long
def test_fifty_points_are_what_hydra_composes(tmp_path: Path) -> None:
    """5 presets x 5 betas x 2 rewards = 50."""
    words = ("algorithm=dapo,grpo,dr_grpo,bnpo,r1", "algorithm.beta=0.0,0.001,0.01,0.02,0.04", "reward=math,r1")
    plan, _ = plan_of(tmp_path, *words)
    assert len(plan.points) == 50
    check_against_hydra(plan, tmp_path)


def test_runs_lie_in_the_sweeps_folder_and_share_the_trackers_database(tmp_path: Path) -> None:
    words = ("tracker=mlflow", f"output_dir={tmp_path}", "seed=0,1", "algorithm.beta=0.0,0.1")
    plan, _ = plan_of(tmp_path, *words)
    for point in plan.points:
        assert (point.settings.output_dir, point.settings.name) == (str(tmp_path / "sweeps"), "s")
        assert point.settings.tracker.group == "s"
        assert point.settings.tracker.mlflow is not None
        assert point.settings.tracker.mlflow.tracking_uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert len({point.run_id for point in plan.points}) == 4
    assert len({point.point_id for point in plan.points}) == 2  # the seeds of a point share its id


def test_faults_of_many_points_are_told_once_by_cause(tmp_path: Path) -> None:
    """3 seeds x 3 betas: -1 is wrong in 3 points, the learning rate in all 9."""
    plan, grid = plan_of(tmp_path, "seed=0,1,2", "algorithm.beta=0.0,0.1,-1", "trainer.learning_rate=-2")
    told = describe_faults_by_cause(plan, grid.size)
    assert len(told) == 2
    (beta,) = [line for line in told if line.startswith("algorithm.beta=-1: must be at least 0")]
    assert "(3 of 9 points: seed=0 algorithm.beta=-1, seed=1 algorithm.beta=-1, ...)" in beta
    (rate,) = [line for line in told if line.startswith("trainer.learning_rate=-2")]
    assert rate.endswith("(all 9 points)")


def test_faults_between_groups_and_of_composition_are_found_too(tmp_path: Path) -> None:
    """64 training prompts are too few for 100 a step; an unknown setting is Hydra's own fault."""
    plan, _ = plan_of(tmp_path, "trainer.prompts_per_step=8,100")
    (fault,) = plan.faults
    assert "64 training prompts are fewer than the 100 of one step" in fault
    plan, _ = plan_of(tmp_path, "trainer.max_step=8,100")
    (fault,) = plan.faults
    assert "did you mean trainer.max_steps" in fault


def test_invalid_points_are_skipped_with_their_reason_where_asked_for(tmp_path: Path) -> None:
    """256 completions divide by 4 and 8 and not by 6."""
    words = ("algorithm.num_generations=4,6,8", "trainer.prompts_per_step=null", "trainer.completions_per_step=256")
    plan, _ = plan_of(tmp_path, *words, on_invalid="skip")
    assert [point.settings.algorithm.num_generations for point in plan.points] == [4, 8]
    (skipped,) = plan.skipped
    assert "algorithm.num_generations=6: trainer.completions_per_step=256 does not divide by it" in skipped.reason


def test_held_completions_are_derived_in_every_point(tmp_path: Path) -> None:
    """32 prompts x the preset's G 8 = 256 completions, for G 4 and 16."""
    plan, _ = plan_of(tmp_path, "algorithm.num_generations=4,16", hold="completions_per_step")
    sizes = [(p.settings.algorithm.num_generations, p.settings.trainer.completions_per_step) for p in plan.points]
    assert sizes == [(4, 256), (16, 256)]
    check_against_hydra(plan, tmp_path)


def test_skip_if_leaves_points_out(tmp_path: Path) -> None:
    entry = {"algorithm.num_generations": 8, "algorithm.beta": ">0", "because": "too large"}
    plan, _ = plan_of(tmp_path, "algorithm.num_generations=4,8", "algorithm.beta=0.0,0.1", skip_if=[entry])
    assert len(plan.points) == 3
    assert [(each.values, each.reason) for each in plan.skipped] == [
        ({"algorithm.num_generations": 8, "algorithm.beta": 0.1}, "too large")
    ]


def test_two_points_that_compute_the_same_are_one_run(tmp_path: Path) -> None:
    """Health rules do not change what is computed."""
    plan, _ = plan_of(tmp_path, "health=default,off")
    assert len(plan.points) == 1
    assert plan.skipped[0].reason == "computes the same as the point health=default"


def test_of_two_points_that_differ_in_length_the_longer_one_is_run(tmp_path: Path) -> None:
    plan, _ = plan_of(tmp_path, "trainer.max_steps=5,9,7")
    assert [point.settings.trainer.max_steps for point in plan.points] == [9]
    assert [(each.values, each.reason) for each in plan.skipped] == [
        ({"trainer.max_steps": steps}, "is the beginning of the point trainer.max_steps=9") for steps in (5, 7)
    ]


def test_a_run_of_a_sweep_may_have_several_trackers(tmp_path: Path) -> None:
    plan, _ = plan_of(tmp_path, "tracker=[mlflow,tensorboard]", "seed=0,1")
    assert not plan.faults
    assert {each.settings.tracker.tensorboard is not None for each in plan.points} == {True}
    assert {each.settings.tracker.mlflow is not None for each in plan.points} == {True}


def test_what_was_typed_beside_what_is_held_is_a_fault_and_not_thrown_away(tmp_path: Path) -> None:
    """trainer.prompts_per_step is 32 by default; without `hold` both together are a fault, too."""
    for hold in ("prompts_per_step", "completions_per_step"):
        words = ("algorithm.num_generations=4,8", "trainer.completions_per_step=64")
        plan, _ = plan_of(tmp_path, *words, hold=hold)
        assert ["2 of them are set" in fault for fault in plan.faults] == [True]


def test_a_condition_knows_the_option_that_is_the_same_for_all_points(tmp_path: Path) -> None:
    condition = {"reward": "math_only", "seed": 1}
    plan, _ = plan_of(tmp_path, "seed=0,1", "reward=math_only", skip_if=[condition])
    assert [point.settings.seed for point in plan.points] == [0]
    plan, _ = plan_of(tmp_path, "seed=0,1", skip_if=[condition])
    assert next(iter(plan.faults)).startswith("hydra.sweeper.skip_if: reward holds several settings")


def test_a_sweep_of_new_runs_each_time_is_refused(tmp_path: Path) -> None:
    plan, _ = plan_of(tmp_path, "resume=never", "seed=0,1")
    assert next(iter(plan.faults)).startswith("resume=never: a sweep finds its runs again")


@pytest.mark.long
def test_a_thousand_points_are_checked_within_a_minute_of_the_processor(tmp_path: Path) -> None:
    """10 seeds x 10 group sizes x 10 betas."""
    betas = ",".join(f"0.{number:02}" for number in range(10))
    counts: list[int] = []
    started = time.thread_time()  # other work on the machine stretches the clock
    grid = build_grid({}, ["seed=range(0,10)", "algorithm.num_generations=range(3,13)", f"algorithm.beta={betas}"])
    plan = build_plan(grid, SweepRules(), folder=tmp_path / "s", on_point=counts.append)
    assert time.thread_time() - started < 60
    assert len(plan.points) == 1000
    assert counts == list(itertools.accumulate([1] * 1000))
