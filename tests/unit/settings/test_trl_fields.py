"""`trainer.extra`: fields of TRL's GRPOConfig that no setting here decides."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from grpo_exp.settings.trl_fields import OWNED, extra_faults, grpo_config_fields
from grpo_exp.settings.typed_text import type_fault


def test_names_are_read_from_the_installed_source() -> None:
    """One of TRL's own, one of its base class, one of transformers; nothing private."""
    fields = grpo_config_fields()
    assert {"scale_rewards", "num_generations", "learning_rate", "log_completions", "entropy_coef"} <= fields.keys()
    assert not any(name.startswith("_") for name in fields)


def test_free_field_passes() -> None:
    assert extra_faults({"log_completions": True, "use_adaptive_entropy": False}) == []
    assert extra_faults({}) == []


def test_unknown_field_names_the_nearest() -> None:
    (fault,) = extra_faults({"log_completion": True})
    assert fault.startswith(
        "trainer.extra.log_completion: is no field of TRL's GRPOConfig; did you mean trainer.extra.log_completions?"
    )


@pytest.mark.parametrize(
    ("field", "setting"),
    [
        ("beta", "algorithm.beta"),
        ("learning_rate", "trainer.learning_rate"),
        ("reward_weights", "reward.components.NAME.weight"),
        ("bf16", "launch.mixed_precision"),
        ("seed", "seed"),
        ("sync_ref_model", "algorithm.sync_ref_model"),
        ("vespo_k_pos", "algorithm.vespo_k_pos"),
        # transformers' newer name of the same switch: it wins over the older one.
        ("activation_checkpointing", "trainer.gradient_checkpointing"),
    ],
)
def test_field_that_a_setting_decides_names_the_setting(field: str, setting: str) -> None:
    (fault,) = extra_faults({field: 1})
    assert fault.startswith(f"trainer.extra.{field}: is decided elsewhere; set {setting} instead")


def test_fixed_field_says_why() -> None:
    (fault,) = extra_faults({"logging_steps": 10})
    assert fault == "trainer.extra.logging_steps: is decided elsewhere; it is fixed (every step is logged)"


def test_every_owned_name_is_a_field() -> None:
    """A name that TRL drops (max_prompt_length went that way) would protect nothing."""
    assert set(OWNED) - grpo_config_fields().keys() == set()


def test_all_faults_are_reported() -> None:
    assert len(extra_faults({"beta": 1, "nonsense_field": 2, "log_completions": True})) == 2


# ------------------------------------------------------------------------------------------------ types of values


def test_annotation_of_the_derived_class_counts() -> None:
    """Class TrainingArguments declares `remove_unused_columns: bool`, GRPOConfig `bool | None`."""
    assert ast.unparse(grpo_config_fields()["remove_unused_columns"]) == "bool | None"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("adam_epsilon", 1e-6),  # float
        ("adam_epsilon", 1),  # a whole number is a number
        ("dataloader_num_workers", 2),  # int
        ("log_completions", False),  # bool
        ("log_level", "error"),  # str
        ("min_p", None),  # float | None
        ("chat_template_kwargs", {"enable_thinking": False}),  # dict | str | None
        ("chat_template_kwargs", "{}"),
        ("include_for_metrics", ["loss"]),  # list[str]
        ("trackio_static_space_id", False),  # str | None | Literal[False]
        ("repetition_penalty", 1.1),
    ],
)
def test_value_of_the_right_type_passes(field: str, value: Any) -> None:
    assert extra_faults({field: value}) == []


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("adam_epsilon", "1e-6", "='1e-6': a number is wanted; for example +trainer.extra.adam_epsilon=1e-6"),
        ("adam_epsilon", "tiny", "='tiny': a number is wanted; for example +trainer.extra.adam_epsilon=0.1"),
        ("adam_epsilon", True, "=True: a number is wanted"),
        ("adam_epsilon", None, "=None: a number is wanted"),
        ("adam_epsilon", float("nan"), "=nan: a number is wanted"),
        ("dataloader_num_workers", 2.5, "=2.5: a whole number is wanted"),
        ("dataloader_num_workers", "2", "='2': a whole number is wanted; for example +trainer.extra.dataloader_num_w"),
        ("ddp_timeout", 1800.0, "=1800.0: a whole number is wanted; for example +trainer.extra.ddp_timeout=1800"),
        ("log_completions", "no", "='no': true or false is wanted; for example +trainer.extra.log_completions=false"),
        ("log_completions", 1, "=1: true or false is wanted; for example +trainer.extra.log_completions=true"),
        ("min_p", "None", "='None': a number or null is wanted; for example +trainer.extra.min_p=null"),
        ("run_name", "None", "='None': text or null is wanted; for example +trainer.extra.run_name=null"),
        ("run_name", 7, "=7: text or null is wanted"),
        ("chat_template_kwargs", 3, "=3: a mapping or text or null is wanted"),
        ("include_for_metrics", "loss", "='loss': a list, each of it text is wanted"),
        ("include_for_metrics", ["loss", 3], "=['loss', 3]: a list, each of it text is wanted"),
        ("trackio_static_space_id", True, "=True: text or null or false is wanted"),
        ("parallelism_config", {"a": 1}, "={'a': 1}: null is wanted"),  # an object of Python: no text makes one
        ("min_p", 1.5, "=1.5: is a probability, from 0 to 1"),
        ("repetition_penalty", 0.0, "=0.0: must be a number above 0"),
        ("repetition_penalty", 2, "=2: must be a number above 0, written with a point"),  # transformers wants a float
    ],
)
def test_value_of_a_wrong_type_names_the_right_spelling(field: str, value: Any, message: str) -> None:
    (fault,) = extra_faults({field: value})
    assert fault.startswith(f"trainer.extra.{field}{message}")


@pytest.mark.parametrize(
    ("annotation", "right", "wrong"),
    [
        ("Optional[int]", None, 1.5),
        ("Union[int, str]", "a", 1.5),
        ("'int | None'", 3, "3"),
        ("Literal['a', 2]", 2, "2"),
        ("List[int]", [1], ["1"]),
        ("Dict[str, Any]", {}, []),
        ("list", ["a", 1], "a"),
        ("typing.Optional[int]", 3, "3"),
        ("list[int | None]", [1, None], [1, "a"]),
    ],
)
def test_every_way_to_write_a_type(annotation: str, right: Any, wrong: Any) -> None:
    tree = ast.parse(annotation, mode="eval").body
    assert type_fault("x", right, tree) is None
    assert type_fault("x", wrong, tree) is not None


def test_any_takes_everything() -> None:
    assert type_fault("x", object(), ast.parse("Any", mode="eval").body) is None


def test_every_annotation_of_the_installed_version_can_be_read() -> None:
    """A field whose type nobody can read would refuse every value: each takes one of these."""
    samples = [1, 0.5, True, "a", None, {}, ["a"]]
    for name, annotation in grpo_config_fields().items():
        assert any(type_fault(name, sample, annotation) is None for sample in samples), ast.unparse(annotation)
