"""What stays constant while the group size G is swept: prompts or completions per optimizer step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_exp.errors import ConfigError
from grpo_exp.sweeps.rules import SweepRules

GROUP_SIZE = "algorithm.num_generations"
_PROMPTS, _COMPLETIONS = "trainer.prompts_per_step", "trainer.completions_per_step"


def held_words(rules: SweepRules, base: Mapping[str, Any], axes: Sequence[str]) -> tuple[str, ...]:
    """Return the words that hold the size of a step for all points with one choice of groups.

    Args:
        rules: Of the sweep.
        base: The plain settings without the axes that set values.
        axes: Keys of the axes.

    Raises:
        ConfigError: What is to be held is swept, or cannot be derived.
    """
    if rules.hold is None or GROUP_SIZE not in axes:
        return ()
    swept = [key for key in (_PROMPTS, _COMPLETIONS) if key in axes]
    if swept:
        raise ConfigError(
            f"hydra.sweeper.hold={rules.hold}: {swept[0]} is an axis, so that the size of a step is not held; leave "
            "out the axis, or set hydra.sweeper.hold=null"
        )
    prompts, completions = base["trainer"]["prompts_per_step"], base["trainer"]["completions_per_step"]
    if None not in {prompts, completions}:
        return ()  # one of them was typed beside the other, which is a fault of the points: none is thrown away here
    group_size = base["algorithm"]["num_generations"]
    if not isinstance(group_size, int) or not isinstance(completions if prompts is None else prompts, int):
        return ()  # a value that is no number is told with the faults of the points
    if rules.hold == "completions_per_step":
        held = completions if prompts is None else prompts * group_size
        return (f"{_PROMPTS}=null", f"{_COMPLETIONS}={held}")
    if prompts is None:
        if completions % group_size:
            raise ConfigError(
                f"hydra.sweeper.hold=prompts_per_step: {_COMPLETIONS}={completions} does not divide by "
                f"{GROUP_SIZE}={group_size} of the configuration, so there is no number of prompts to hold; give "
                f"{_PROMPTS} instead"
            )
        prompts = completions // group_size
    return (f"{_PROMPTS}={prompts}", f"{_COMPLETIONS}=null")


def describe_held(rules: SweepRules, points: Sequence[Mapping[str, Any]]) -> str | None:
    """Say what is held while G is swept and what grows with it, or return None where G is the same everywhere.

    Args:
        rules: Of the sweep.
        points: The plain settings of the points.
    """
    sizes = sorted({point["algorithm"]["num_generations"] for point in points})
    if len(sizes) < 2:
        return None
    key = "prompts_per_step" if points[0]["trainer"]["prompts_per_step"] is not None else "completions_per_step"
    values = sorted({point["trainer"][key] for point in points if point["trainer"][key] is not None})
    if len(values) != 1 or any(point["trainer"][key] is None for point in points):
        return "nothing: the size of a step differs between the points"
    other = "completions" if key == "prompts_per_step" else "prompts"
    grown = [values[0] * g if other == "completions" else values[0] // g for g in sizes]
    why = "" if rules.hold else " (the configuration says so; hydra.sweeper.hold decides)"
    pairs = ", ".join(f"{number} at G {size}" for size, number in zip(sizes, grown, strict=True))
    return f"trainer.{key}={values[0]}{why}; {other} a step: {pairs}"
