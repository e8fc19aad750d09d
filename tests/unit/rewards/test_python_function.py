"""The user's own reward functions."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from grpo_exp.errors import ConfigError, RunError
from grpo_exp.rewards.components import RewardComponent, build_components, function_faults
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward import RewardSettings

MODULE = """
import asyncio
import threading
import time

import numpy

release = threading.Event()

def lengths(prompts, completions, **columns):
    return [len(text) / 10 for text in completions]

async def slowly(prompts, completions, answer, **columns):
    await asyncio.sleep(0.01)
    return [float(text == right) for text, right in zip(completions, answer)]

def with_prompts(prompts, completions, **columns):
    return [float(len(prompt)) for prompt in prompts]

def some_none(prompts, completions, **columns):
    return [None, 1]

def of_numpy(prompts, completions, **columns):
    return numpy.array([0.5, 1.5], dtype=numpy.float32)

def booleans(prompts, completions, **columns):
    return [True, False]

def too_few(prompts, completions, **columns):
    return [1.0]

def text(prompts, completions, **columns):
    return ["1.0", 2.0]

def infinite(prompts, completions, **columns):
    return [1.0, float("inf")]

def nothing(prompts, completions, **columns):
    return None

def raising(prompts, completions, **columns):
    return [1 / 0]

def ending(prompts, completions, **columns):
    raise SystemExit(0)

def interrupted(prompts, completions, **columns):
    raise KeyboardInterrupt

async def cancelled(prompts, completions, **columns):
    raise asyncio.CancelledError

def gigantic(prompts, completions, **columns):
    return [1.0, 10 ** 400]

def gigantic_to_write(prompts, completions, **columns):
    return [10 ** 5000, 1.0]

def waiting(prompts, completions, **columns):
    release.wait(30)
    return [1.0] * len(completions)

number = 5
"""


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RewardComponent]]:
    """Return `build(function, **fields)`: a component of a function of a module in the current folder."""
    (tmp_path / "own_rewards_of_test.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(name: str, **fields: Any) -> RewardComponent:
        (built,) = build_components(settings(f"own_rewards_of_test:{name}", **fields))
        return built

    yield run
    sys.modules.pop("own_rewards_of_test", None)


def settings(function: str, **fields: Any) -> RewardSettings:
    component = {"kind": "python", "function": function, **fields}
    return RewardSettings.model_validate({"components": {"mine": component}, "primary": "mine"})


Build = Callable[..., RewardComponent]


def values(component: RewardComponent, **columns: Any) -> list[float | None]:
    return [score.value for score in component.score(["ab", "abcd"], columns)]


def test_plain_function_is_called_with_trls_signature(build: Build) -> None:
    assert values(build("lengths")) == [0.2, 0.4]


def test_async_function_gets_the_columns(build: Build) -> None:
    assert values(build("slowly"), answer=["ab", "x"]) == [1.0, 0.0]


def test_prompts_are_handed_over(build: Build) -> None:
    assert values(build("with_prompts"), prompts=["p", "pp"]) == [1.0, 2.0]


def test_numbers_of_other_kinds_count(build: Build) -> None:
    assert values(build("of_numpy")) == [0.5, 1.5]
    assert values(build("booleans")) == [1.0, 0.0]


def test_none_is_a_target_that_cannot_be_judged(build: Build) -> None:
    assert build("some_none").score(["a", "b"], {}) == [Score(None, "no_value"), Score(1.0, "value")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("too_few", "returned 1 values for 2 completions"),
        ("text", "returned '1.0' for completion 0"),
        ("infinite", "returned inf for completion 1"),
        ("nothing", "returned a NoneType"),
        (
            "gigantic",
            "returned an integer of 1329 bits, beyond every float, for completion 1",
        ),  # 400 / log10(2) = 1328.8
        ("gigantic_to_write", "returned an integer of 16610 bits, beyond every float, for completion 0"),  # 16609.6
    ],
)
def test_wrong_answer_is_refused_with_function_and_rule(build: Build, name: str, message: str) -> None:
    with pytest.raises(RunError, match=f"components.mine: own_rewards_of_test:{name} {message}; a reward function ret"):
        values(build(name))


def test_exception_comes_through_with_its_traceback_and_the_name(build: Build) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        values(build("raising"))
    assert caught.value.__notes__ == ["raised by own_rewards_of_test:raising, the function of reward.components.mine"]
    assert "raising" in [entry.name for entry in caught.traceback]


@pytest.mark.parametrize(
    ("name", "error"), [("ending", "SystemExit"), ("interrupted", "KeyboardInterrupt"), ("cancelled", "CancelledError")]
)
def test_function_that_would_end_the_command_is_an_error_of_it(build: Build, name: str, error: str) -> None:
    message = rf"reward\.components\.mine: own_rewards_of_test:{name} raised {error}\(.*\); .*; take out what raises"
    with pytest.raises(RunError, match=message) as caught:
        values(build(name))
    assert type(caught.value.__cause__).__name__ == error


def test_slow_function_scores_zero_and_is_not_called_twice_at_once(build: Build) -> None:
    component = build("waiting", timeout_seconds=0.2)
    started = time.monotonic()
    assert component.score(["a", "b"], {}) == [Score(0.0, "timeout")] * 2
    assert time.monotonic() - started < 5
    with pytest.raises(RunError, match=r"is still busy with an earlier batch that ran over 0\.2 s"):
        component.score(["a", "b"], {})
    sys.modules["own_rewards_of_test"].release.set()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            assert component.score(["a"], {}) == [Score(1.0, "value")]
            return
        except RunError:
            time.sleep(0.05)
    pytest.fail("the function has returned and is still called busy")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("own_rewards_of_test:lenghts", "has no function 'lenghts'; it has .*lengths.*; correct the name"),
        ("no_such_module_x:f", "there is no module 'no_such_module_x'"),
        ("no_such_module_x.y:f", "there is no module 'no_such_module_x.y'"),
    ],
)
def test_function_that_is_missing_is_told_without_running_its_module(build: Build, function: str, message: str) -> None:
    (fault,) = function_faults(settings(function))
    assert fault.startswith("reward.components.mine.function=")
    with pytest.raises(ConfigError, match=message):
        build_components(settings(function))
    assert "own_rewards_of_test" not in sys.modules


def test_module_that_cannot_be_imported_is_told(build: Build, tmp_path: Path) -> None:
    (tmp_path / "broken_rewards_of_test.py").write_text("import no_such_module_x\ndef f(): ...\n")
    start = r"^reward\.components\.mine\.function=broken_rewards_of_test:f: "
    reason = r".* cannot be imported .ModuleNotFoundError: No module named 'no_such_module_x'"
    with pytest.raises(ConfigError, match=start + reason):
        build_components(settings("broken_rewards_of_test:f"))
    (tmp_path / "ending_rewards_of_test.py").write_text("def f(): ...\nraise SystemExit(0)\n")
    with pytest.raises(ConfigError, match=r"cannot be imported .SystemExit: 0"):
        build_components(settings("ending_rewards_of_test:f"))
    (tmp_path / "broken_rewards_of_test.py").write_text("def f(:\n")
    assert "is not Python" in function_faults(settings("broken_rewards_of_test:f"))[0]


def test_name_that_is_no_function_is_told(build: Build) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^reward\.components\.mine\.function=own_rewards_of_test:number: .* has no function 'number'",
    ):
        build("number")


@pytest.mark.parametrize("text", ["", "f", "module.f", "a:b:c", "a b:c", "a/b.py:f", ":f", "m:"])
def test_function_is_named_with_its_module(text: str) -> None:
    with pytest.raises(ValidationError, match="is not of the form module:function"):
        settings(text)
