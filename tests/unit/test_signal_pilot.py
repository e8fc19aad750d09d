"""The pilot of `check --signal`: counts, predictions, the file of pass rates; an engine answers by rule."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from grpo_exp.check_words import CheckWords
from grpo_exp.data.pass_rates import filter_by_pass_rate, read_pass_rates
from grpo_exp.data.prompts import PromptData, PromptRow, build_prompt
from grpo_exp.evaluation.held_out import Completion
from grpo_exp.models.tiny import cached_folder
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings
from grpo_exp.signal_pilot import pilot_of, predict, print_signal

#: Three prompts, of whose four samples 0, 1 and 4 are right.
ROWS = [PromptRow(build_prompt(f"{n}+1?", None), str(n + 1)) for n in (1, 2, 3)]
RIGHT = {"1+1?": 0, "2+1?": 1, "3+1?": 4}


def answer(prompts: Sequence[Any], num_samples: int, *, greedy: bool = False) -> list[list[Completion]]:
    """Write as many right answers as the table says, then wrong ones; all in the right form but the last one."""
    groups = []
    for prompt in prompts:
        question = prompt[-1]["content"]
        right = int(question[0]) + 1
        texts = [
            f"<think>x</think>\\boxed{{{right if place < RIGHT[question] else 0}}}" for place in range(num_samples)
        ]
        if question == "1+1?":
            texts[-1] = "0"
        groups.append([Completion(text, len(text), False) for text in texts])
    return groups


@pytest.fixture
def settings() -> RunSettings:
    return load.to_settings(load.compose(["tracker=none", "algorithm.num_generations=4"]))


def test_shares_are_those_of_the_counts(settings: RunSettings) -> None:
    """Of 4 samples taken 2 by 2: 0 of 6, 3 of 6, 0 of 6 pairs differ, a mean of 1/6; all four: 0, 1, 0, so 1/3.

    The reward also pays for form, which one wrong answer lacks: its three pairs differ, so (3 + 3 + 0)/18 = 1/3.
    """
    pilot = pilot_of(settings, ROWS, answer, CheckWords(num_samples=4, sizes=(2, 4, 8)))
    assert list(pilot.num_right) == [0, 1, 4]
    assert [s.share for s in pilot.verdicts[:2]] == pytest.approx([1 / 6, 1 / 3])
    assert pilot.verdicts[2].extrapolated
    assert [s.share for s in pilot.rewards] == pytest.approx([1 / 3, 2 / 3])


def test_file_is_what_the_difficulty_filter_reads(settings: RunSettings, tmp_path: Path) -> None:
    asked = CheckWords(num_samples=4, sizes=(4,), pass_rates=tmp_path / "rates.jsonl")
    text = StringIO()
    print_signal(pilot_of(settings, ROWS, answer, asked), settings, asked, Console(file=text, width=120))
    rates = read_pass_rates(asked.pass_rates)
    assert [rates[row.id] for row in ROWS] == [0.0, 0.25, 1.0]
    assert "1 were never right, 1 always, 1 in between" in text.getvalue()
    assert "<- algorithm.num_generations" in text.getvalue()


def test_the_words_that_are_printed_keep_the_prompts_in_between(
    settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path alone keeps all: the bounds are 0 and 1 by default. Of 0, 1 and 4 right of 4 the middle one is kept."""
    monkeypatch.chdir(tmp_path)
    asked, text = CheckWords(num_samples=4, sizes=(4,), pass_rates=Path("new/rates.jsonl")), StringIO()
    print_signal(pilot_of(settings, ROWS, answer, asked), settings, asked, Console(file=text, width=120))
    words = re.findall(r"dataset\.pass_rates\.\w+_rate=\S+|dataset\.pass_rates\.path=\S+", text.getvalue())
    filtered = load.to_settings(load.compose(["tracker=none", *words])).dataset.pass_rates
    kept = filter_by_pass_rate(PromptData(tuple(ROWS), ()), filtered).train
    assert [row.id for row in kept] == [ROWS[1].id]


def test_rates_of_another_pilot_are_not_overwritten(settings: RunSettings, tmp_path: Path) -> None:
    asked = CheckWords(num_samples=4, sizes=(4,), pass_rates=tmp_path / "rates.jsonl")
    pilot = pilot_of(settings, ROWS, answer, asked)
    asked.pass_rates.write_text("hours of work")
    for number in (2, 3):
        print_signal(pilot, settings, asked, Console(file=StringIO()))
        assert len(read_pass_rates(tmp_path / f"rates-{number}.jsonl")) == 3
    assert asked.pass_rates.read_text() == "hours of work"


def test_priming_is_announced(settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_EXP_CACHE", str(tmp_path))
    monkeypatch.setattr("grpo_exp.signal_pilot.build_engine", lambda *_: answer)
    prepared = SimpleNamespace(data=PromptData(tuple(ROWS), ()))
    text = StringIO()
    predict(settings, prepared, CheckWords(num_samples=4, sizes=(4,)), Console(file=text))  # pyright: ignore[reportArgumentType]
    assert "builds the built-in model first" in text.getvalue()
    cached_folder(settings.model).mkdir()  # pyright: ignore[reportArgumentType]
    text = StringIO()
    predict(settings, prepared, CheckWords(num_samples=4, sizes=(4,)), Console(file=text))  # pyright: ignore[reportArgumentType]
    assert "builds" not in text.getvalue()


def test_prompts_that_are_all_alike_leave_the_share_uncertain(settings: RunSettings, tmp_path: Path) -> None:
    """None right of 4 prompts: not 0 ± 0. Wilson's range of 0 of 4 goes up to z²/(4 + z²) = 3.8415/7.8415 = 0.490."""
    rows = [PromptRow(build_prompt("1+1?", None), "7")] * 4
    asked, text = CheckWords(num_samples=4, sizes=(4, 8), pass_rates=tmp_path / "rates.jsonl"), StringIO()
    print_signal(pilot_of(settings, rows, answer, asked), settings, asked, Console(file=text, width=120))
    assert "0.000 (0.000 to 0.490)" in text.getvalue()
    assert "0.000 (fitted, error not known)" in text.getvalue()
    assert "0.000 ± 0.000" not in text.getvalue()
