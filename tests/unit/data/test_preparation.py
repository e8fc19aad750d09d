"""What stands between a source and training: lengths, benchmarks, pass rates, templates, tasks that can be judged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.data.exclusion import leave_out_excluded
from grpo_exp.data.pass_rates import filter_by_pass_rate, read_pass_rates, write_pass_rates
from grpo_exp.data.preparation import leave_out_long, leave_out_unjudgeable
from grpo_exp.data.prompt_tokens import TokenCounter
from grpo_exp.data.prompts import PromptData, PromptRow, build_prompt
from grpo_exp.errors import ConfigError, DataError
from grpo_exp.preflight import prepare
from grpo_exp.settings import load
from grpo_exp.settings.dataset_preparation import PassRates
from grpo_exp.settings.reward import RewardSettings


def data_of(*questions: str, **fields: Any) -> PromptData:
    rows = tuple(PromptRow(build_prompt(question, "S"), "1", **fields) for question in questions)
    return PromptData(rows, (PromptRow(build_prompt("held out", "S"), "1"),))


def questions(data: PromptData) -> list[str]:
    return [row.prompt[-1]["content"] for row in data.train]


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


# ------------------------------------------------------------------------------------------ length


def test_long_prompts_are_left_out_of_both_splits_and_counted() -> None:
    """A counter of characters: S and the question; `held out` has 1 + 8."""
    counter = TokenCounter("characters", lambda prompts: [sum(len(m["content"]) for m in p) for p in prompts])
    data = leave_out_long(data_of("123456", "1234567", "12345678"), counter, 8)
    assert questions(data) == ["123456", "1234567"]
    assert (data.evaluation, dict(data.dropped)) == ((), {"with more than 8 tokens": 2})


def test_limit_of_a_run_is_in_tokens_of_its_model(tmp_path: Path) -> None:
    """`<user>12+3?<assistant>` has 1 + 5 + 1 tokens for the built-in policy, `1+3?` has 6."""
    path = write_lines(tmp_path / "rows.jsonl", [{"prompt": f"{i}+3?", "target": str(i + 3)} for i in range(3, 40)])
    words = ["tracker=none", "trainer.prompts_per_step=2", "dataset=jsonl", f"dataset.path={path}"]
    prepared = prepare(load.to_settings(load.compose([*words, "dataset.max_prompt_length=6"])))
    assert len(prepared.data.train) + len(prepared.data.evaluation) == 7  # 3 to 9
    assert "dataset: 30 rows with more than 6 tokens are left out" in prepared.notes


# ------------------------------------------------------------------------------------------ template


def test_template_goes_around_the_last_message_of_the_user() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    built = build_prompt(messages, None, r"Q: {prompt} \boxed{}")
    assert [message["content"] for message in built] == ["a", "b", r"Q: c \boxed{}"]
    assert build_prompt("{prompt}", "S", "<{prompt}>")[1]["content"] == "<{prompt}>"


@pytest.mark.parametrize(("template", "count"), [("no place", 0), ("{prompt} {prompt}", 2)])
def test_template_without_exactly_one_place_is_refused(template: str, count: int) -> None:
    with pytest.raises(ConfigError, match=rf"dataset.prompt_template=.*holds \{{prompt\}} {count} times"):
        load.to_settings(load.compose(["tracker=none", f"dataset.prompt_template='{template}'"]))


# ------------------------------------------------------------------------------------------ benchmarks


def test_prompts_of_benchmarks_are_left_out_whatever_case_blanks_and_column(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "bench.jsonl", [{"problem": "What  is\n2?"}, {"question": "C"}, {"prompt": "x"}])
    data = leave_out_excluded(data_of("what is 2?", "b", "c", "What is 3?"), [path], None)
    assert questions(data) == ["b", "What is 3?"]
    assert dict(data.dropped) == {"that stand in dataset.exclude": 2}


def test_template_of_the_run_is_put_around_the_benchmark_too(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "bench.jsonl", [{"problem": "2?"}])
    rows = (PromptRow(build_prompt("2?", None, "Solve {prompt}"), "1"),)
    assert leave_out_excluded(PromptData(rows, ()), [path], "Solve {prompt}").train == ()


def test_benchmark_without_a_prompt_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "bench.jsonl", [{"text": "2?"}])
    with pytest.raises(DataError, match="line 1 has no text in any of prompt, question, problem"):
        leave_out_excluded(data_of("a"), [path], None)


# ------------------------------------------------------------------------------------------ pass rates


def test_rates_are_found_by_id_by_messages_and_by_text(tmp_path: Path) -> None:
    data = data_of("a", "b", "c", "d")
    path = write_lines(
        tmp_path / "rates.jsonl",
        [
            {"id": data.train[0].id, "pass_rate": 0.0},
            {"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "b"}], "pass_rate": 0.5},
            {"prompt": "C", "pass_rate": 0.25},
            {"prompt": "c", "pass_rate": 0.75},  # the mean of both is 0.5
        ],
    )
    kept = filter_by_pass_rate(data, PassRates(path=path, min_rate=0.1, max_rate=0.9))
    assert [(row.prompt[-1]["content"], row.pass_rate) for row in kept.train] == [("b", 0.5), ("c", 0.5), ("d", None)]
    assert dict(kept.dropped) == {"with a pass rate below 0.1": 1}
    assert len(kept.evaluation) == 1
    strict = filter_by_pass_rate(data, PassRates(path=path, min_rate=0.5, max_rate=0.5, unknown="drop"))
    assert questions(strict) == ["b", "c"]  # both bounds are inside
    assert dict(strict.dropped) == {"with a pass rate below 0.5": 1, "without a pass rate": 1}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    data = data_of("a", "b")
    write_pass_rates(tmp_path / "rates.jsonl", [(data.train[0], 0.25), (data.train[1], 1.0)])
    assert read_pass_rates(tmp_path / "rates.jsonl") == {data.train[0].id: 0.25, data.train[1].id: 1.0}
    kept = filter_by_pass_rate(data, PassRates(path=str(tmp_path / "rates.jsonl"), max_rate=0.9))
    assert (questions(kept), dict(kept.dropped)) == (["a"], {"with a pass rate above 0.9": 1})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "x", "pass_rate": 1.5}, "line 1 has pass_rate 1.5, and a number from 0 to 1 is wanted"),
        ({"id": "x", "pass_rate": True}, "has pass_rate True"),
        ({"id": "x"}, "has pass_rate None"),
        ({"pass_rate": 0.5}, "line 1 says neither `id` nor `prompt`"),
        ({"id": "x", "pass_rate": 0.5}, "none of its 1 prompts is one of the 2 training prompts"),
    ],
)
def test_rates_that_fit_nothing_are_refused(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rates.jsonl", [row])
    with pytest.raises(DataError, match=message):
        filter_by_pass_rate(data_of("a", "b"), PassRates(path=path))


def test_rates_enter_the_fingerprint_of_the_data() -> None:
    """A run must not go on with another curriculum."""
    assert data_of("a").fingerprint() != data_of("a", pass_rate=0.5).fingerprint()
    assert data_of("a", pass_rate=0.4).fingerprint() != data_of("a", pass_rate=0.5).fingerprint()


# ------------------------------------------------------------------------------------------ tasks that can be judged


@pytest.mark.parametrize(
    ("kind", "good", "bad", "reason"),
    [
        ("code", {"tests": {"inputs": ["1"], "outputs": ["2"]}, "mode": "stdin"}, {"tests": [], "mode": "stdin"},
         "no_tests"),
        ("countdown", {"nums": [1, 2]}, {"nums": [1, "x"]}, "no_numbers"),
    ],
)  # fmt: skip
def test_rows_without_what_the_reward_needs_are_left_out(
    kind: str, good: dict[str, Any], bad: dict[str, Any], reason: str
) -> None:
    reward = RewardSettings.model_validate({"components": {"correctness": {"kind": kind}}})
    rows = tuple(PromptRow(build_prompt(f"q{i}", None), "3", bad if i == 7 else good) for i in range(40))
    kept = leave_out_unjudgeable(PromptData(rows, ()), reward)
    assert len(kept.train) == 39
    assert kept.dropped == {f"whose target correctness cannot judge ({reason})": 1}


# ------------------------------------------------------------------------------------------ what is told


def notes_of(*words: str) -> list[str]:
    return list(prepare(load.to_settings(load.compose(["tracker=none", *words]))).notes)


def test_settings_without_effect_are_told() -> None:
    found = notes_of("dataset.pass_rates.min_rate=0.1", "dataset.curriculum.stages=3", "dataset.curriculum.memory=0.1")
    assert any(note.startswith("dataset.pass_rates.min_rate=0.1 has no effect: no pass rates") for note in found)
    assert any(note.startswith("dataset.curriculum.stages=3 has no effect") for note in found)
    assert any(note.startswith("dataset.curriculum.memory=0.1 has no effect") for note in found)


def test_run_that_ends_among_the_easy_prompts_is_told() -> None:
    """10 steps of 32 prompts are 320 of 4000."""
    found = notes_of("dataset.curriculum.order=easy_to_hard", "trainer.max_steps=10")
    assert any("takes 320 prompts, the easiest 8% of 4000" in note for note in found)


def test_easy_to_hard_without_difficulties_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [{"prompt": f"{i}?", "target": "1"} for i in range(60)])
    words = ["dataset=jsonl", f"dataset.path={path}", "dataset.curriculum.order=easy_to_hard"]
    with pytest.raises(ConfigError, match="nobody knows how difficult the prompts are"):
        notes_of(*words)
