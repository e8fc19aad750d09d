"""`trainer.extra`: fields of TRL's GRPOConfig that no setting here decides."""

from __future__ import annotations

import pytest

from grpo_exp.settings.trl_fields import OWNED, extra_faults, grpo_config_fields


def test_names_are_read_from_the_installed_source() -> None:
    """One of TRL's own, one of its base class, one of transformers; nothing private."""
    fields = grpo_config_fields()
    assert {"scale_rewards", "num_generations", "learning_rate", "log_completions", "sync_ref_model"} <= fields
    assert not any(name.startswith("_") for name in fields)


def test_free_field_passes() -> None:
    assert extra_faults({"log_completions": True, "sync_ref_model": False}) == []
    assert extra_faults({}) == []


def test_unknown_field_names_the_nearest() -> None:
    (fault,) = extra_faults({"log_completion": True})
    assert fault.startswith(
        "trainer.extra.log_completion: is no field of TRL's GRPOConfig; did you mean log_completions?"
    )


@pytest.mark.parametrize(
    ("field", "setting"),
    [
        ("beta", "algorithm.beta"),
        ("learning_rate", "trainer.learning_rate"),
        ("reward_weights", "reward.components.NAME.weight"),
        ("bf16", "launch.mixed_precision"),
        ("seed", "seed"),
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
    assert set(OWNED) - grpo_config_fields() == set()


def test_all_faults_are_reported() -> None:
    assert len(extra_faults({"beta": 1, "nonsense_field": 2, "log_completions": True})) == 2
