"""The built-in policy: built once, whole or not at all, under a name made of what it is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_exp.models.tiny import build_model, cached_folder, load_tiny
from grpo_exp.settings.model import TinyArchitecture, TinyModel

SHAPE = {
    "num_hidden_layers": 1,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}


def settings(shape: dict[str, int] | None = None, *, learning_rate: float = 1e-4, **priming: Any) -> TinyModel:
    return TinyModel.model_validate(
        {
            "kind": "tiny",
            "learning_rate": learning_rate,
            "architecture": SHAPE | (shape or {}),
            "priming": {"steps": 2, "batch_size": 4, **priming},
        }
    )


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRPO_EXP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_first_use_primes_and_the_second_does_not(cache: Path) -> None:
    steps: list[int] = []
    first, _ = load_tiny(settings(), on_step=lambda step, loss: steps.append(step))
    assert steps == [1, 2]
    second, _ = load_tiny(settings(), on_step=lambda step, loss: steps.append(step))
    assert steps == [1, 2]
    assert same(weights(first), weights(second))
    assert [entry.name for entry in cache.iterdir()] == [cached_folder(settings()).name]


def test_model_is_float32_and_in_evaluation_mode() -> None:
    model, tokenizer = load_tiny(settings())
    assert model.dtype == torch.float32
    assert not model.training
    assert model.config.vocab_size == len(tokenizer)
    assert (model.config.eos_token_id, model.config.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)


def test_same_settings_give_the_same_weights_in_another_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, _ = load_tiny(settings())
    monkeypatch.setenv("GRPO_EXP_CACHE", str(tmp_path / "other"))
    torch.manual_seed(99)  # the global generator has no say in it
    second, _ = load_tiny(settings())
    assert same(weights(first), weights(second))


@pytest.mark.parametrize(
    "other",
    [
        settings({"hidden_size": 32}),
        settings(seed=1),
        settings(steps=3),
        settings(batch_size=5),
        settings(learning_rate=1e-4, max_operand=30),
        settings(fraction_right_boxed=0.3),
    ],
)
def test_other_settings_of_the_network_or_of_priming_have_a_folder_of_their_own(other: TinyModel) -> None:
    assert cached_folder(other) != cached_folder(settings())


def test_settings_of_training_do_not_prime_again() -> None:
    assert cached_folder(settings(learning_rate=3e-4)) == cached_folder(settings())


def test_folder_lies_in_the_cache_that_the_environment_names(cache: Path) -> None:
    assert cached_folder(settings()).parent == cache


def test_priming_that_breaks_off_leaves_nothing(cache: Path) -> None:
    def stop(step: int, loss: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_tiny(settings(), on_step=stop)
    assert not cache.exists() or list(cache.iterdir()) == []


def test_of_two_builders_at_once_the_first_one_wins(cache: Path) -> None:
    """The second builds the whole model while the first is at its last step; nothing is left over."""
    built: list[Any] = []

    def build_another(step: int, loss: float) -> None:
        if step == 2:
            built.append(load_tiny(settings())[0])

    slower, _ = load_tiny(settings(), on_step=build_another)
    assert same(weights(slower), weights(built[0]))
    assert [entry.name for entry in cache.iterdir()] == [cached_folder(settings()).name]


def test_unwritable_cache_is_an_error_before_anything_is_primed(cache: Path) -> None:
    """Priming takes a minute; that it cannot be kept is known at once."""
    cache.write_text("a file")
    steps: list[int] = []
    with pytest.raises(OSError, match="cache"):
        load_tiny(settings(), on_step=lambda step, loss: steps.append(step))
    assert steps == []


def test_building_leaves_the_random_numbers_of_the_run_alone() -> None:
    """A cold cache and a warm one must lead to the same run."""
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    load_tiny(settings())
    assert torch.equal(torch.rand(3), expected)


def test_random_weights_are_a_function_of_the_seed() -> None:
    shape = TinyArchitecture.model_validate(SHAPE)
    first, again, other = (weights(build_model(shape, seed)) for seed in (0, 0, 1))
    assert same(first, again)
    assert not same(first, other)


def test_default_network_has_about_a_million_parameters() -> None:
    """Per layer: Q and O 192 x 192, K and V 192 x 96, MLP 3 x 192 x 576: 442,368; two layers 884,736.

    Beside them the embedding (tied) of about 100 x 192, biases and norms.
    """
    count = sum(parameter.numel() for parameter in build_model(TinyArchitecture(), 0).parameters())
    assert 884_736 < count < 950_000


def test_priming_lowers_the_loss() -> None:
    """60 steps from ln(100) = 4.6 nats a token: the form alone is worth more than two."""
    losses: list[float] = []
    load_tiny(settings(steps=60, batch_size=16), on_step=lambda step, loss: losses.append(loss))
    assert losses[0] == pytest.approx(4.6, abs=0.5)
    assert losses[-1] < losses[0] - 1
