"""Each data set preset on ten rows of ours with the columns of the real table: prompts, targets, counts.

Where the columns are documented stands in docs/datasets.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_exp.data.load import load_rows
from grpo_exp.data.prompts import PromptData, PromptRow
from grpo_exp.settings import load

TABLES = Path(__file__).parents[2] / "cases" / "tables"
BOXED = "Please reason step by step, and put your final answer within \\boxed{}."
#: Preset -> held-out table, and further words.
PRESETS: dict[str, tuple[str | None, list[str]]] = {
    "gsm8k": ("gsm8k_test", []),
    "math": ("math500", []),
    "deepmath": ("deepmath_test", []),
    "openr1_math": (None, []),
    "dapo_math_17k": (None, ["reward=dapo"]),
    "big_math": (None, []),
    "tldr": ("tldr_test", ["reward=text_quality"]),
    "code_contests": ("code_contests_valid", ["reward=code"]),
    "countdown": (None, ["reward=countdown"]),
    "hub": (None, []),
    "jsonl": (None, []),
}
#: The columns of the real tables.
COLUMNS = {
    "gsm8k": "question answer",
    "math": "problem level type solution",
    "math500": "problem solution answer subject level unique_id",
    "deepmath": "prompt solution",
    "openr1_math": "problem solution answer problem_type question_type source uuid is_reasoning_complete generations "
    "correctness_math_verify correctness_llama finish_reasons correctness_count messages",
    "dapo_math_17k": "data_source prompt ability reward_model extra_info",
    "big_math": "problem answer source domain llama8b_solve_rate",
    "tldr": "prompt completion",
    "code_contests": "name description public_tests private_tests generated_tests source difficulty solutions "
    "incorrect_solutions cf_contest_id cf_index cf_points cf_rating cf_tags is_description_translated "
    "untranslated_description time_limit memory_limit_bytes input_file output_file",
    "countdown": "target nums",
}


def load_preset(name: str, *more: str) -> PromptData:
    evaluation, words = PRESETS[name]
    paths = [f"dataset.path={TABLES / name}.jsonl"]
    paths += [] if evaluation is None else [f"dataset.eval_path={TABLES / evaluation}.jsonl"]
    settings = load.to_settings(load.compose(["tracker=none", f"dataset={name}", *words, *paths, *more]))
    return load_rows(settings.dataset, seed=0, reward=settings.reward, model=settings.model)


def question(row: PromptRow) -> str:
    return row.prompt[-1]["content"]


def targets(rows: tuple[PromptRow, ...]) -> list[object]:
    return [row.target for row in rows]


def test_every_preset_that_reads_a_table_is_tried() -> None:
    presets = {path.stem for path in (Path(__file__).parents[3] / "conf" / "dataset").glob("*.yaml")}
    assert presets - {"arithmetic", "reasoning_gym"} == set(PRESETS)


@pytest.mark.parametrize("name", COLUMNS)
def test_ten_rows_have_the_columns_of_the_real_table(name: str) -> None:
    rows = [json.loads(line) for line in (TABLES / f"{name}.jsonl").read_text().splitlines()]
    assert len(rows) == 10
    assert {tuple(row) for row in rows} == {tuple(COLUMNS[name].split())}


def test_gsm8k() -> None:
    """Of ten rows one has no `####` and one is held out; 40 * 36 = 1,440 loses its comma."""
    data = load_preset("gsm8k")
    assert targets(data.train) == ["17", "19", "21", "1440", "25", "27", "29", "31"]
    assert dict(data.dropped) == {"without a target": 1, "that are held out, too,": 1}
    assert len(data.evaluation) == 10
    first = data.train[0]
    assert first.prompt == (
        {"role": "system", "content": BOXED},
        {"role": "user", "content": "Mira has 13 coins and buys 4 more. How many coins does she have?"},
    )
    assert first.solution == "Mira has 13 + 4 = 17 coins."  # without the calculator's note and the last line


def test_math() -> None:
    """One has no box, one comes twice (two blanks), one is held out (another case); levels are numbers."""
    data = load_preset("math")
    expected = [r"\frac{3}{4}", r"\sqrt{5}", "(1,2)", "24", "1", "3", "x>2"]
    assert targets(data.train) == expected
    assert [row.difficulty for row in data.train] == [1, 2, 2, 3, 3, 4, 5]
    assert dict(data.dropped) == {
        "without a target": 1,
        "that repeat an earlier prompt": 1,
        "that are held out, too,": 1,
    }
    assert targets(data.evaluation)[:3] == ["5", "10", "17"]  # 2^2+1, 3^2+1, 4^2+1


def test_levels_of_math() -> None:
    """Of the eight that are left once levels 1 and 2 go: 24, 1, 3, x>2; the one without a box has no level, either."""
    data = load_preset("math", "dataset.min_difficulty=3", "dataset.max_difficulty=4")
    assert targets(data.train) == ["24", "1", "3"]
    assert data.dropped["with a difficulty below 3"] == 4  # 81, which is held out, 3/4, the root and the point
    assert data.dropped["with a difficulty above 4"] == 1
    assert len(data.evaluation) == 10  # a benchmark stays whole


def test_deepmath() -> None:
    data = load_preset("deepmath")
    assert targets(data.train) == [*(f"${i}$" for i in range(1, 8)), "Yes", "No", r"$\dfrac{1}{2}$"]
    assert data.train[7].prompt[1] == {"role": "user", "content": "Is every finite field commutative?"}
    assert not data.dropped


def test_openr1_math() -> None:
    """Twice the distance of half an hour; a fifth is held out."""
    data = load_preset("openr1_math")
    assert (len(data.train), len(data.evaluation)) == (8, 2)
    assert sorted(map(str, targets((*data.train, *data.evaluation))), key=int) == [str(60 + 2 * i) for i in range(10)]


def test_dapo_math_17k() -> None:
    """The sums of the first 3 to 10 odd numbers are squares; two rows repeat others; no system prompt is added."""
    data = load_preset("dapo_math_17k")
    assert sorted(int(str(target)) for target in targets((*data.train, *data.evaluation))) == [
        i * i for i in range(3, 11)
    ]
    assert dict(data.dropped) == {"that repeat an earlier prompt": 2}
    assert [message["role"] for message in data.train[0].prompt] == ["user"]
    assert question(data.train[0]).startswith("Solve the following math problem step by step.")


def test_big_math() -> None:
    """Solve rates are 0/8 to 8/8 and one unknown; those from 1/8 to 7/8 are kept, and the unknown one."""
    data = load_preset("big_math", "dataset.pass_rates.min_rate=0.1", "dataset.pass_rates.max_rate=0.9")
    left_out = sum(count for reason, count in data.dropped.items() if "pass rate" in reason)
    held_out = [row.pass_rate for row in data.evaluation]
    assert len(held_out) == 2
    assert left_out == 2 - sum(rate in {0.0, 1.0} for rate in held_out)  # held-out rows are not filtered
    assert all(row.pass_rate is None or 0.1 <= row.pass_rate <= 0.9 for row in data.train)


def test_tldr() -> None:
    data = load_preset("tldr")
    assert (len(data.train), len(data.evaluation)) == (10, 10)
    assert question(data.train[0]).endswith("\n\nTL;DR:")
    assert (data.train[0].target, data.train[0].solution) == ("", "Parrot wakes me 1 times a night, need advice.")


def test_code_contests() -> None:
    """2 public, 1 private and the first 29 of 40 generated tests make 32; one row has none."""
    data = load_preset("code_contests")
    assert dict(data.dropped) == {"without tests": 1}
    assert (len(data.train), len(data.evaluation)) == (9, 10)
    tests = data.train[0].columns["tests"]
    assert (len(tests["inputs"]), tests["inputs"][:4]) == (32, ["1\n", "2\n", "10\n", "0\n"])
    assert tests["outputs"][:4] == ["1\n", "2\n", "10\n", "0\n"]  # the program prints n + 0
    assert data.train[0].columns["mode"] == "stdin"


def test_countdown() -> None:
    """Nine different tasks, 3, 7, 5 -> 16 twice; a tenth of all possible tasks is held out by a hash of the task."""
    data = load_preset("countdown")
    assert dict(data.dropped) == {"that repeat an earlier prompt": 1}
    assert len(data.train) + len(data.evaluation) == 9
    row = next(row for row in (*data.train, *data.evaluation) if row.target == "16")
    assert row.columns == {"nums": [3, 7, 5]}
    assert question(row).startswith("Make 16 out of the numbers 3, 7, 5.")


@pytest.mark.parametrize(("name", "value"), [("hub", lambda i: i * i), ("jsonl", lambda i: 2 * i)])
def test_own_tables(name: str, value: object) -> None:
    data = load_preset(name)
    assert (len(data.train), len(data.evaluation)) == (8, 2)
    assert sorted(int(str(t)) for t in targets((*data.train, *data.evaluation))) == [
        value(i)  # type: ignore[operator]
        for i in range(1, 11)
    ]
