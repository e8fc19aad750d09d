"""The words of `grpo-exp check`, sorted out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grpo_exp.errors import ConfigError
from grpo_exp.settings.faults import did_you_mean

_SWITCHES = ("--deep", "--signal")
_OF_HYDRA = ("--multirun", "-m")
_MOST_COMPLETIONS = 1_000_000


@dataclass(slots=True)
class CheckWords:
    """What was typed."""

    overrides: list[str] = field(default_factory=list)
    """Words as `train` takes them."""
    deep: bool = False
    signal: bool = False
    num_prompts: int = 64
    """Prompts of the pilot."""
    num_samples: int = 16
    """Samples of each."""
    sizes: tuple[int, ...] = (2, 4, 8, 16, 32)
    """Numbers of samples per prompt that are predicted."""
    pass_rates: Path = Path("pass_rates.jsonl")

    @property
    def is_sweep(self) -> bool:
        """Whether several runs are asked for."""
        return any(word in _OF_HYDRA or word.startswith("+sweeps=") for word in self.overrides)


def sort_words(words: Sequence[str]) -> CheckWords:
    """Sort the switches of `check` from the words of a run.

    Raises:
        ConfigError: A switch is unknown, or its value is out of range.
    """
    found, given = CheckWords(), set[str]()
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in _SWITCHES and not equals:
            found.deep, found.signal = found.deep or name == "--deep", found.signal or name == "--signal"
        elif name in _VALUES:
            if not equals:
                if not left:
                    raise ConfigError(f"{name}: needs a value behind it")
                value = left.pop(0)
            _VALUES[name](found, name, value)
            given.add(name)
        elif word.startswith("-") and word not in _OF_HYDRA:
            raise ConfigError(f"{word}: is no switch of check{did_you_mean(name, [*_SWITCHES, *_VALUES, *_OF_HYDRA])}")
        else:
            found.overrides.append(word)
    if given and not found.signal:
        raise ConfigError(f"{sorted(given)[0]}: has no effect without --signal; add that, or leave it out")
    if found.num_prompts * found.num_samples > _MOST_COMPLETIONS:
        raise ConfigError(
            f"--prompts {found.num_prompts} --samples {found.num_samples}: are "
            f"{found.num_prompts * found.num_samples} completions, and at most {_MOST_COMPLETIONS} are sampled; use "
            "fewer"
        )
    return found


def _number(name: str, text: str, at_least: int) -> int:
    if not text.isdecimal() or int(text) < at_least:
        raise ConfigError(f"{name} {text}: must be a whole number of at least {at_least}")
    return int(text)


def _set_prompts(found: CheckWords, name: str, text: str) -> None:
    found.num_prompts = _number(name, text, 1)


def _set_samples(found: CheckWords, name: str, text: str) -> None:
    found.num_samples = _number(name, text, 2)


def _set_sizes(found: CheckWords, name: str, text: str) -> None:
    found.sizes = tuple(sorted({_number(name, part.strip(), 2) for part in text.split(",")}))


def _set_pass_rates(found: CheckWords, name: str, text: str) -> None:
    found.pass_rates = Path(text).expanduser()


_VALUES = {
    "--prompts": _set_prompts,
    "--samples": _set_samples,
    "--sizes": _set_sizes,
    "--pass-rates": _set_pass_rates,
}
