"""Text that people type becomes the value they mean, or is refused; never a string that is true by accident."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.settings.run import RunSettings

Changed = Callable[[dict[str, Any]], RunSettings]
Faults = Callable[[dict[str, Any]], tuple[str, ...]]
Typed = Callable[..., RunSettings]


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("trainer.learning_rate", "1e-6", 1e-6),
        ("trainer.learning_rate", " 3e-6 ", 3e-6),
        ("algorithm.beta", "0.04", 0.04),
        ("algorithm.beta", "0", 0.0),
        ("trainer.max_steps", "7", 7),
        ("seed", "0", 0),
        ("trainer.save_model", "no", False),
        ("trainer.save_model", "off", False),
        ("trainer.save_model", "false", False),
        ("trainer.save_model", "0", False),
        ("trainer.save_model", "yes", True),
        ("trainer.per_device_train_batch_size", "None", None),
        ("trainer.per_device_train_batch_size", "null", None),
        ("trainer.per_device_train_batch_size", "~", None),
        ("trainer.per_device_train_batch_size", "", None),
        ("dataset.system_prompt", "None", None),
        ("launch.main_process_port", "none", None),
        ("algorithm.delta", "None", None),
    ],
)
def test_text_becomes_the_value_that_was_meant(path: str, text: str, value: Any, changed: Changed) -> None:
    found: Any = changed({path: text})
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("path", "value", "wanted"),
    [
        ("trainer.learning_rate", "fast", "a number is wanted"),
        ("trainer.learning_rate", "1e-6x", "a number is wanted"),
        ("trainer.learning_rate", True, "not a boolean"),
        ("trainer.learning_rate", "nan", "finite number is wanted"),
        ("trainer.learning_rate", "inf", "finite number is wanted"),
        ("trainer.learning_rate", None, "a number is wanted"),
        ("trainer.max_steps", "7.5", "a whole number is wanted"),
        ("trainer.max_steps", 7.5, "a whole number is wanted"),
        ("trainer.max_steps", True, "not a boolean"),
        ("trainer.max_steps", "None", "a whole number is wanted"),
        ("trainer.save_model", "maybe", "true or false is wanted"),
        ("trainer.save_model", 2, "true or false is wanted"),
        ("seed", "one", "a whole number is wanted"),
        ("name", 1000.0, "quote it"),
        ("name", 7, "quote it"),
        ("output_dir", 3.1, "quote it"),
        ("dataset.system_prompt", 1000.0, "quote it"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_path(path: str, value: Any, wanted: str, faults: Faults) -> None:
    (fault,) = faults({path: value})
    assert fault.startswith(f"{path}=")
    assert wanted in fault


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("trainer.learning_rate='1e-6'", ("trainer", "learning_rate"), 1e-6),
        ("trainer.learning_rate=1e-6", ("trainer", "learning_rate"), 1e-6),
        ("trainer.max_steps='7'", ("trainer", "max_steps"), 7),
        ("trainer.save_model=no", ("trainer", "save_model"), False),
        ("dataset.system_prompt=None", ("dataset", "system_prompt"), None),
        ("dataset.system_prompt=null", ("dataset", "system_prompt"), None),
        ("dataset.system_prompt='\\boxed{}'", ("dataset", "system_prompt"), "\\boxed{}"),
        ("algorithm.beta='0.04'", ("algorithm", "beta"), 0.04),
        ("seed=1", ("seed",), 1),
        ("name='007'", ("name",), "007"),
    ],
)
def test_words_after_the_command(override: str, path: tuple[str, ...], value: Any, typed: Typed) -> None:
    found: Any = typed(override)
    for name in path:
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


def test_every_float_survives_as_text(changed: Changed) -> None:
    """200 random rates over 9 decades, as Python writes them and as people do: the same float comes out."""
    generator = random.Random(0)
    for _ in range(200):
        rate = 10 ** generator.uniform(-9, -0.001)
        for text in (repr(rate), f"{rate:.17e}", f"  {rate!r}"):
            assert changed({"trainer.learning_rate": text}).trainer.learning_rate == rate


def test_no_text_gets_through_as_a_number(faults: Faults) -> None:
    """Random letters (no digits, and none of inf and nan) are never a learning rate."""
    generator = random.Random(1)
    for _ in range(50):
        text = "".join(generator.choices("bcdghjklmopqrstuvwxyz", k=generator.randint(1, 8)))
        assert faults({"trainer.learning_rate": text})[0].startswith("trainer.learning_rate=")


def test_settings_are_frozen(changed: Changed) -> None:
    settings = changed({})
    with pytest.raises(ValueError, match="frozen"):
        settings.seed = 1  # type: ignore[misc]


def test_resolved_settings_read_back_are_the_same(changed: Changed) -> None:
    """Workers read `config.json`: nothing may change on the way (floats, nulls, tuples)."""
    from grpo_exp.settings.run import RunSettings

    settings = changed({"trainer.learning_rate": "3e-6", "algorithm.delta": 2.5})
    assert RunSettings.model_validate_json(settings.model_dump_json()) == settings
    assert math.isclose(settings.trainer.learning_rate, 3e-6)


def test_fault_from_the_shell_is_a_config_error(typed: Typed) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.learning_rate=fast: a number is wanted"):
        typed("trainer.learning_rate=fast")
