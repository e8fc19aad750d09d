"""DAPO's soft overlong punishment becomes a component of the reward, in one place and with the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings

Typed = Callable[..., RunSettings]


def overlong(settings: RunSettings) -> dict[str, Any]:
    return settings.reward.components["overlong"].model_dump()


def test_dapo_has_the_component_behind_those_of_the_reward(typed: Typed) -> None:
    settings = typed("algorithm=dapo", "reward=math")
    assert list(settings.reward.components) == ["correctness", "format", "overlong"]
    assert settings.reward.primary == "correctness"


def test_numbers_of_the_paper(typed: Typed) -> None:
    """Section 4.1: L_max 20480 tokens, L_cache 4096 of them; the punishment is added as it is."""
    found = overlong(typed("algorithm=dapo", "model=local", "model.path=x", "trainer.max_completion_length=20480"))
    assert found["kind"] == "overlong"
    assert (found["max_completion_tokens"], found["cache_tokens"], found["weight"]) == (20480, 4096, 1.0)


@pytest.mark.parametrize(
    ("length", "fraction", "tokens"),
    [(20, 0.2, 4), (20, 0.05, 1), (20, 0.01, 1), (20, 1.0, 20), (1, 0.2, 1), (300, 0.5, 150)],
)
def test_cache_is_a_share_of_the_longest_completion(length: int, fraction: float, tokens: int, typed: Typed) -> None:
    """Rounded, and at least the last token: without any, nothing that is generated would be punished."""
    words = [f"trainer.max_completion_length={length}", f"algorithm.overlong.cache_fraction={fraction}"]
    found = overlong(typed("algorithm=dapo", *words))
    assert (found["max_completion_tokens"], found["cache_tokens"]) == (length, tokens)


@pytest.mark.parametrize("words", [["algorithm=grpo"], ["algorithm=dr_grpo"], ["algorithm=dapo", "~off"]])
def test_other_presets_have_none(words: list[str], typed: Typed) -> None:
    words = [word.replace("~off", "algorithm.overlong.enabled=false") for word in words]
    assert "overlong" not in typed(*words).reward.components


def test_any_preset_can_have_it(typed: Typed) -> None:
    found = overlong(typed("algorithm=grpo", "algorithm.overlong.enabled=true", "algorithm.overlong.weight=0.5"))
    assert (found["weight"], found["cache_tokens"]) == (0.5, 4)


def test_component_of_the_users_own_stays_as_it_is(typed: Typed) -> None:
    own = "+reward.components.overlong={kind: overlong, max_completion_tokens: 512, cache_tokens: 128, weight: 0.1}"
    found = overlong(typed("algorithm=dapo", own))
    assert (found["max_completion_tokens"], found["cache_tokens"], found["weight"]) == (512, 128, 0.1)


def test_completing_twice_changes_nothing(typed: Typed) -> None:
    """`config.json` holds the completed settings, and is read again."""
    settings = typed("algorithm=dapo")
    assert load.validate(settings.model_dump(mode="json")) == settings


def test_longest_completion_that_is_allowed_can_be_punished(typed: Typed) -> None:
    found = overlong(typed("algorithm=dapo", "trainer.max_completion_length=1048576"))
    assert (found["max_completion_tokens"], found["cache_tokens"]) == (1_048_576, 209_715)  # x 0.2 = 209715.2
