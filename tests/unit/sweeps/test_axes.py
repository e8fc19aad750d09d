"""From words with several values to points."""

from __future__ import annotations

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.settings import load
from grpo_exp.sweeps.axes import build_grid


def test_axes_are_crossed_with_the_last_one_changing_fastest() -> None:
    grid = build_grid({"a": "1,2"}, ["b=x,y", "c=7"])
    assert grid.size == 4
    assert grid.points() == [
        ("a=1", "b=x", "c=7"), ("a=1", "b=y", "c=7"), ("a=2", "b=x", "c=7"), ("a=2", "b=y", "c=7")
    ]  # fmt: skip


def test_points_are_those_of_the_basic_sweeper() -> None:
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    words = [
        "seed=range(0,3)", "algorithm=grpo,dapo", "+trainer.extra.top_k=5,10", "name=x", "~experiment",
        "dataset.system_prompt='a,b'", "trainer.learning_rate=1e-6,3e-6",
    ]  # fmt: skip
    (expected,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(words), max_batch_size=None)
    found = build_grid({}, words).points()
    # Hydra writes the deletion with a value that means none.
    assert [[word.replace("~experiment=null", "~experiment") for word in point] for point in expected] == [
        list(point) for point in found
    ]


def test_a_typed_axis_replaces_that_of_the_file() -> None:
    grid = build_grid({"seed": "0,1,2", "algorithm.beta": "0.0,0.01"}, ["seed=7"])
    assert grid.points() == [("seed=7", "algorithm.beta=0.0"), ("seed=7", "algorithm.beta=0.01")]
    assert [axis.key for axis in grid.axes] == ["algorithm.beta"]


def test_paired_axes_move_together() -> None:
    """2 pairs x 3 seeds are 6 points instead of 2 x 2 x 3 = 12."""
    words = ["algorithm.num_generations=4,8", "seed=0,1,2", "trainer.prompts_per_step=64,32"]
    grid = build_grid({}, words, paired=[["algorithm.num_generations", "trainer.prompts_per_step"]])
    assert grid.size == 6
    assert {(point[0], point[2]) for point in grid.points()} == {
        ("algorithm.num_generations=4", "trainer.prompts_per_step=64"),
        ("algorithm.num_generations=8", "trainer.prompts_per_step=32"),
    }


def test_glob_takes_the_options_of_a_group() -> None:
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    from grpo_exp import paths

    load.announce_sweeps()
    with initialize_config_dir(config_dir=str(paths.config_dir()), version_base="1.3"):
        grid = build_grid({}, ["tracker=glob(*,exclude=w*)"], loader=GlobalHydra.instance().config_loader())
    assert grid.points() == [("tracker=mlflow",), ("tracker=none",), ("tracker=tensorboard",)]


@pytest.mark.parametrize(
    ("words", "paired", "message"),
    [
        (["algorithm.beta=interval(0,1)"], [], "an interval has no list of values"),
        (["+sweeps=loss_types,quick_cpu"], [], "+sweeps=loss_types,quick_cpu: cannot be swept"),
        (["name=a,b"], [], "name=a,b: cannot be swept, since the sweep's name is that of its folder"),
        (["output_dir=a,b"], [], "output_dir=a,b: cannot be swept"),
        (["seed=0,1"], [["seed", "algorithm.beta"]], "algorithm.beta is no axis; the axes are seed"),
        (
            ["seed=0,1,2", "algorithm.beta=0.0,0.1"],
            [["seed", "algorithm.beta"]],
            "seed has 3, algorithm.beta has 2 values",
        ),
        (["seed=range(0,200000)"], [], "200000 points: a sweep has at most 100000"),
    ],
)
def test_what_cannot_be_an_axis_is_told(words: list[str], paired: list[list[str]], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_grid({}, words, paired=paired)
    assert message in str(caught.value)
