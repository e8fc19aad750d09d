"""Every number has bounds, and a message about it names a value that works."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from architecture.settings_walk import MODELS, parts_of
from grpo_exp.settings.fields import bounds_of, example_of, find_field, groups_with, paths_ending_in, spell
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.trainer import TrainerSettings

Changed = Callable[[dict[str, Any]], RunSettings]
Faults = Callable[[dict[str, Any]], tuple[str, ...]]

#: Numbers that may be negative: a component can be a punishment.
SIGNED = {"weight", "right_short", "right_long", "wrong_short", "wrong_long", "over_limit"}


def accepts(field: FieldInfo, value: float) -> bool:
    """Say whether a field takes a value, whatever the rules between fields say."""
    try:
        TypeAdapter(Annotated[field.annotation, *field.metadata, Field()]).validate_python(value)
    except ValidationError:
        return False
    return True


def numbers(model: type[BaseModel], kind: type) -> dict[str, FieldInfo]:
    """Return the fields of a model that hold an int, or those that hold a float."""
    return {name: field for name, field in model.model_fields.items() if kind in set(parts_of(field.annotation))}


@pytest.mark.parametrize("model", MODELS)
def test_every_whole_number_has_both_bounds(model: type[BaseModel]) -> None:
    """A zero too many must be answered at once, not by a machine that hangs."""
    for name, field in numbers(model, int).items():
        assert not accepts(field, -(10**15)), f"{model.__name__}.{name} has no lower bound"
        assert not accepts(field, 10**15), f"{model.__name__}.{name} has no upper bound"


@pytest.mark.parametrize("model", MODELS)
def test_every_float_that_cannot_be_negative_has_both_bounds(model: type[BaseModel]) -> None:
    for name, field in numbers(model, float).items():
        if name not in SIGNED:
            assert not accepts(field, -1e-9), f"{model.__name__}.{name} has no lower bound"
            assert not accepts(field, 1e15), f"{model.__name__}.{name} has no upper bound"


def test_guards_see_numbers_of_every_shape() -> None:
    """A plain one, one that may be null, and one with nested bounds: otherwise the guards look at nothing."""
    seen = {f"{model.__name__}.{name}" for model in MODELS for name in numbers(model, int)}
    assert {"TrainerSettings.max_steps", "TrainerSettings.prompts_per_step", "ColocatedVllm.max_model_length"} <= seen
    seen = {f"{model.__name__}.{name}" for model in MODELS for name in numbers(model, float)}
    assert {"AlgorithmSettings.delta", "TrainerSettings.learning_rate", "MathComponent.weight"} <= seen
    assert accepts(TrainerSettings.model_fields["max_steps"], 5)
    assert accepts(TrainerSettings.model_fields["learning_rate"], 1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_no_number_has_two_bounds_on_one_side(model: type[BaseModel]) -> None:
    """Of `ge=0` and `gt=0` pydantic names the first: `use 0 or more`, and then refuses 0."""
    for name, field in model.model_fields.items():
        bounds = bounds_of(field)
        assert len(bounds.lower) <= 1, f"{model.__name__}.{name}"
        assert len(bounds.upper) <= 1, f"{model.__name__}.{name}"


def number_paths(data: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of the numbers that the defaults hold."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from number_paths(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}"


def test_example_of_every_number_is_accepted(data: dict[str, Any], faults: Faults, changed: Changed) -> None:
    """Whatever number is given as the text `x`, the value that the message names is a right one."""
    paths = list(number_paths(data))
    assert len(paths) > 40
    for path in paths:
        (fault,) = faults({path: "x"})
        match = re.fullmatch(rf"{re.escape(path)}=x: .*; for example {re.escape(path)}=(\S+)", fault)
        assert match, fault
        changed({path: match[1]})


@pytest.mark.parametrize(
    ("path", "example"),
    [
        ("trainer.max_steps", "50"),  # its default
        ("seed", "0"),
        ("trainer.learning_rate", "1e-6"),
        ("launch.main_process_port", "1024"),  # no default: 8, put into 1024 to 65535
        ("algorithm.epsilon_high", "0.28"),
        ("trainer.completions_per_step", "8"),
    ],
)
def test_example_fits_the_field(path: str, example: str, data: dict[str, Any]) -> None:
    assert example_of(find_field(path, data)) == example


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("trainer.max_steps", 10**9, "trainer.max_steps=1000000000: must be at most 1000000; use 1000000 or less"),
        ("model.architecture.num_hidden_layers", 200, "must be at most 64; use 64 or less"),
        ("model.architecture.hidden_size", 19_200, "must be at most 4096; use 4096 or less"),
        ("model.architecture.max_position_embeddings", 5_120_000, "must be at most 32768"),
        ("model.priming.steps", 400_000, "must be at most 20000"),
        ("model.priming.batch_size", 64_000, "must be at most 1024"),
        ("algorithm.num_generations", 8000, "must be at most 1024"),
        ("trainer.prompts_per_step", 3_200_000, "must be at most 16384"),
        ("trainer.eval_samples", 4000, "must be at most 1024"),
        ("trainer.weight_decay", 100, "must be at most 10"),
        ("launch.num_processes", 10_000, "must be at most 1024"),
        ("launch.threads_per_process", 100_000, "must be at most 1024"),
        ("health.rules.truncation.window", 10**7, "must be at most 100000"),
        ("dataset.train_size", 4_000_000, "must be at most 100000"),
        ("trainer.adam_beta1", 1, "must be below 1; use a value below 1, for example trainer.adam_beta1=0.9"),
        ("algorithm.top_p", -1, "must be above 0; use a value above 0, for example algorithm.top_p=1"),
        ("algorithm.num_generations", -1, "must be at least 2; use 2 or more"),
    ],
)
def test_slip_of_the_finger_is_answered_with_the_nearest_value(
    path: str, value: float, message: str, faults: Faults
) -> None:
    (fault,) = faults({path: value})
    assert fault.startswith(f"{path}={value}: ")
    assert message in fault


def test_bounds_that_hold_each_alone_do_not_make_a_giant(faults: Faults, changed: Changed) -> None:
    """64 layers of 4096: each 2 x 4096 x (4096 + 2048) + 3 x 4096 x 576 = 57,409,536; 64 of them are 3,674 million."""
    wide = {"model.architecture.num_hidden_layers": 64, "model.architecture.hidden_size": 4096}
    (fault,) = faults(wide)
    assert "model.architecture.hidden_size" in fault
    assert "make 3,674 million parameters and the built-in policy has at most 100" in fault
    # 4 layers of 1024 with an MLP of 4096 and 2 of 4 heads: 4 x (2 x 1024 x 1536 + 3 x 1024 x 4096) = 62,914,560.
    sizes = {"num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 4096}
    settings = changed({f"model.architecture.{name}": size for name, size in sizes.items()})
    assert settings.model.kind == "tiny"
    assert settings.model.architecture.num_parameters == 62_914_560


def test_head_with_an_odd_size_is_refused_with_the_nearest_width(faults: Faults, changed: Changed) -> None:
    """12 / 4 heads = 3 numbers a head, which do not make pairs; 8 / 4 = 2 and 16 / 4 = 4 do."""
    (fault,) = faults({"model.architecture.hidden_size": 12})
    assert fault.startswith("model.architecture.hidden_size: 12 does not divide by 2 x num_attention_heads (8)")
    assert fault.endswith("use 8 or 16")
    for width in (8, 16):
        changed({"model.architecture.hidden_size": width})


@pytest.mark.parametrize("value", [1e-6, 2.5e-05, 1e16, 0.1, 100.0, True, None, 7])
def test_spelling_reads_back_as_the_value(value: Any) -> None:
    import json

    assert json.loads(spell(value)) == value
    assert "e-0" not in spell(value)


# --------------------------------------------------------------------------- settings of another option or group


@pytest.mark.parametrize(
    ("path", "option"),
    [
        ("model.path", "model=local and model=hub"),
        ("model.dtype", "model=local and model=hub and model=smollm2_bundled"),
        ("vllm.server_port", "vllm=server"),
        ("vllm.importance_sampling_mode", "vllm=colocate and vllm=server"),
        ("dataset.target_column", "dataset=jsonl and dataset=hub"),
    ],
)
def test_setting_of_another_option_names_the_option(path: str, option: str, faults: Faults) -> None:
    """The defaults here are model=tiny, vllm=off, tracker=none and dataset=arithmetic."""
    assert faults({path: 1}) == (f"{path}: is a setting of {option} only; choose that, or leave {path} out",)


def test_setting_of_no_option_belongs_to_none() -> None:
    assert groups_with("model.nonsense") == []
    assert groups_with("trainer.max_steps") == []  # one option: nothing to choose


@pytest.mark.parametrize(
    ("path", "right"),
    [("trainer.num_generations", "algorithm.num_generations"), ("algorithm.max_steps", "trainer.max_steps"),
     ("beta", "algorithm.beta")],
)  # fmt: skip
def test_setting_in_the_wrong_group_names_the_right_one(path: str, right: str, faults: Faults) -> None:
    assert faults({path: 1}) == (f"{path}: there is no such setting; did you mean {right}?",)


def test_nearest_to_the_top_comes_first() -> None:
    assert paths_ending_in("learning_rate") == ["model.learning_rate", "trainer.learning_rate",
                                                "model.priming.learning_rate"]  # fmt: skip
    assert paths_ending_in("kind") == []


# ------------------------------------------------------------------------------------- text that no file can hold


@pytest.mark.parametrize("path", ["output_dir", "name", "dataset.system_prompt"])
@pytest.mark.parametrize("text", ["a\0b", "a\udcffb"], ids=["NUL", "byte that is not UTF-8"])
def test_text_that_no_file_can_hold(path: str, text: str, faults: Faults) -> None:
    (fault,) = faults({path: text})
    assert fault.startswith(f"{path}=")
    assert "holds a NUL or a byte that is not UTF-8" in fault
    fault.encode()  # the message itself can be printed


@pytest.mark.parametrize("path", ["dataset.path", "dataset.eval_path", "model.path"])
def test_path_with_a_nul(path: str, faults: Faults) -> None:
    group = path.partition(".")[0]
    base = {"dataset": {"kind": "jsonl", "path": "rows.jsonl"}, "model": {"kind": "local", "path": "folder"}}[group]
    found = faults({group: base, path: "a\0b"})
    assert any(fault.startswith(f"{path}='a\\x00b': holds a NUL") for fault in found)


@pytest.mark.parametrize("text", ["", "  "])
def test_empty_output_folder(text: str, faults: Faults) -> None:
    (fault,) = faults({"output_dir": text})
    assert fault.startswith(f"output_dir={text!r}: is empty")


def test_home_folder_of_nobody(faults: Faults) -> None:
    (fault,) = faults({"output_dir": "~nobody-has-this-name/runs"})
    assert fault.startswith("output_dir='~nobody-has-this-name/runs': starts with ~ and there is no such user")


# ------------------------------------------------------------------------------------------------ other messages


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("trainer", 5, "trainer=5: is a group of settings and no single value; choose trainer=OPTION"),
        (
            "algorithm.dynamic_sampling",
            True,
            "algorithm.dynamic_sampling=true: is a group of settings and no single value; set what is in it: "
            "algorithm.dynamic_sampling.enabled=VALUE",
        ),
        ("reward.components", 3, "reward.components=3: a mapping is wanted"),
        ("output_dir", ["a"], "output_dir=['a']: text is wanted; for example output_dir=TEXT"),
        ("dataset.operations", "+", "dataset.operations='+': a list is wanted; for example dataset.operations='[A,B]'"),
        ("trainer.max_steps", True, "trainer.max_steps=true: a number is wanted, not a boolean; for example"),
        ("trainer.max_steps", "9" * 5000, "a whole number of fewer digits is wanted; for example trainer.max_steps=50"),
    ],
)
def test_message_has_a_fix(path: str, value: Any, message: str, faults: Faults) -> None:
    assert any(message in fault for fault in faults({path: value}))
