"""Where the fast step is off: what TRL 1.16 takes over a micro-batch as a whole."""

from __future__ import annotations

import pytest

from grpo_exp.settings import load
from grpo_exp.settings.fast_step import fast_step_fault


def fault(*words: str) -> str | None:
    return fast_step_fault(load.to_settings(load.compose(["tracker=none", "algorithm=dapo", *words])))


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo", "vespo"])
def test_other_losses_are_sums_over_rows(loss: str) -> None:
    assert fault(f"algorithm.loss_type={loss}", "algorithm.epsilon_high=5", "algorithm.beta=0.1") is None


@pytest.mark.parametrize(
    ("word", "start"),
    [
        ("algorithm.loss_type=bnpo", "algorithm.loss_type=bnpo divides by the tokens of each micro-batch"),
        ("+trainer.extra.top_entropy_quantile=0.2", "trainer.extra.top_entropy_quantile=0.2 takes its quantile"),
        ("+trainer.extra.entropy_coef=0.01", "trainer.extra.entropy_coef=0.01 adds the mean entropy"),
        ("+trainer.extra.use_adaptive_entropy=true", "trainer.extra.use_adaptive_entropy=True adds the mean entropy"),
        ("+trainer.extra.neftune_noise_alpha=5.0", "trainer.extra.neftune_noise_alpha=5.0 draws its noise"),
        ("+trainer.extra.pad_to_multiple_of=8", "trainer.extra.pad_to_multiple_of=8 asks for padding"),
    ],
)
def test_reason_is_named(word: str, start: str) -> None:
    found = fault(word)
    assert found is not None
    assert found.startswith(start)


@pytest.mark.parametrize(
    "word",
    [
        "+trainer.extra.top_entropy_quantile=1.0",
        "+trainer.extra.entropy_coef=0.0",
        "+trainer.extra.use_adaptive_entropy=false",
        "+trainer.extra.neftune_noise_alpha=null",
        "+trainer.extra.off_policy_mask_threshold=0.5",  # looks at one sequence at a time
    ],
)
def test_field_at_its_neutral_value_does_not_matter(word: str) -> None:
    assert fault(word) is None
