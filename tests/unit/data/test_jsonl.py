"""Rows from the user's own file: mapped, checked, counted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.data.jsonl import load_jsonl
from grpo_exp.data.load import load_prompts
from grpo_exp.data.prompts import PromptData, build_prompt
from grpo_exp.errors import DataError
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.dataset import JsonlDataset

Load = Callable[..., PromptData]

FILE = Path(__file__).parents[2] / "cases" / "dataset.jsonl"
CASES = {case["id"]: case for line in FILE.read_text().splitlines() if (case := json.loads(line))}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return `load(rows, **settings)`: rows are objects, or text or bytes of a whole file."""

    def run(rows: Any, **fields: Any) -> PromptData:
        path = tmp_path / "train.jsonl"
        if isinstance(rows, bytes):
            path.write_bytes(rows)
        else:
            text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
            path.write_text(text, encoding="utf-8", newline="")
        return load_jsonl(JsonlDataset.model_validate({"kind": "jsonl", "path": str(path), **fields}))

    return run


def refusal(load: Load, rows: Any, **fields: Any) -> str:
    with pytest.raises(DataError) as caught:
        load(rows, **fields)
    return str(caught.value)


def sums(count: int) -> list[dict[str, str]]:
    return [{"prompt": f"{i}+1?", "target": str(i + 1)} for i in range(count)]


def all_rows(data: PromptData) -> list[Any]:
    return [*data.train, *data.evaluation]


# ------------------------------------------------------------------------------------------ the case file

#: Case -> (row, settings): the case's config on our keys; two presets are our `target_format`.
ONE_ROW: dict[str, dict[str, str]] = {
    "i001": {"prompt_column": "question", "target_column": "answer"},
    "i004": {"prompt_column": "problem", "target_column": "answer"},
    "i008": {"prompt_column": "question", "target_column": "answer", "target_format": "gsm8k"},
    "i012": {"target_column": "answer", "system_prompt": "S"},
    "i014": {"target_column": "answer"},
}
DROPPED: dict[str, tuple[dict[str, str], str]] = {
    "i006": ({"prompt_column": "problem", "target_column": "answer"}, "without a target"),
    "i009": ({"prompt_column": "question", "target_column": "answer", "target_format": "gsm8k"}, "without a target"),
    "i011": ({"prompt_column": "problem", "target_column": "solution", "target_format": "boxed"}, "without a target"),
    "i016": ({"target_column": "answer"}, "without a prompt"),
}
MISSING_COLUMN: dict[str, tuple[dict[str, str], str]] = {
    "i002": (
        {"prompt_column": "problem", "target_column": "answer"},
        r"prompt_column=problem: .* no column 'problem'; its columns are answer, question; name one of them with "
        r"dataset\.prompt_column=COLUMN",
    ),
    "i003": (
        {"prompt_column": "problem", "target_column": "solution"},
        r"target_column=solution: .* no column 'solution'; its columns are answer, problem",
    ),
}
OWN_TEST = {"i019"}
NO_COUNTERPART = {"i017": "nothing is streamed: a file is read whole, so its length is known and max_steps is never -1"}


def test_every_case_is_accounted_for() -> None:
    tables: list[Any] = [ONE_ROW, DROPPED, MISSING_COLUMN, OWN_TEST, NO_COUNTERPART]
    assert sorted(case for table in tables for case in table) == sorted(CASES)


@pytest.mark.parametrize("case_id", ONE_ROW)
def test_case_that_gives_a_row(case_id: str, load: Load) -> None:
    case = CASES[case_id]
    (row,) = load([case["input"]["row"]], **ONE_ROW[case_id]).train
    expected = case["expected"] if isinstance(case["expected"], dict) else {"gold": "5"}
    if "prompt" in expected:
        assert row.to_dict()["prompt"] == expected["prompt"]
    if "gold" in expected:
        assert row.target == expected["gold"]


@pytest.mark.parametrize("case_id", DROPPED)
def test_case_that_drops_the_row(case_id: str, load: Load) -> None:
    """Beside a usable row it is counted; alone it is an error."""
    fields, reason = DROPPED[case_id]
    row = CASES[case_id]["input"]["row"]
    prompt, target = fields.get("prompt_column", "prompt"), fields.get("target_column", "target")
    good = {prompt: "1+1?", target: r"\boxed{2} #### 2"}
    data = load([row, good, row], **fields)
    assert dict(data.dropped) == {reason: 2}
    assert len(all_rows(data)) == 1
    assert f"none of its 1 rows can be used (1 {reason})" in refusal(load, [row], **fields)


@pytest.mark.parametrize("case_id", MISSING_COLUMN)
def test_case_with_a_missing_column(case_id: str, load: Load) -> None:
    fields, message = MISSING_COLUMN[case_id]
    with pytest.raises(DataError, match=message):
        load([CASES[case_id]["input"]["row"]], **fields)


def test_i019_three_prompts_are_fewer_than_the_four_of_one_step(tmp_path: Path) -> None:
    """16 completions a step in groups of 4 are 4 prompts; 15 more updates a batch would need 4 x 2."""
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in sums(3)))
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text(json.dumps({"prompt": "held out", "target": "1"}))
    settings = JsonlDataset(kind="jsonl", path=str(path), eval_path=str(held_out))
    plan = {"num_generations": 4, "num_processes": 1, "per_device_train_batch_size": 16,
            "gradient_accumulation_steps": 1, "num_iterations": 1}  # fmt: skip
    with pytest.raises(DataError, match=r"3 training prompts are fewer than the 4 of one step .*prompts_per_step=3 or"):
        load_prompts(settings, seed=0, plan=BatchPlan(prompts_per_step=4, updates_per_batch=1, **plan))
    with pytest.raises(DataError, match=r"fewer than the 8 of one step \(4 prompts a step x 2 updates per batch\)"):
        load_prompts(settings, seed=0, plan=BatchPlan(prompts_per_step=4, updates_per_batch=2, **plan))
    assert (
        len(load_prompts(settings, seed=0, plan=BatchPlan(prompts_per_step=3, updates_per_batch=1, **plan)).train) == 3
    )


# ------------------------------------------------------------------------------------------ reading


def test_both_missing_columns_are_reported_at_once(load: Load) -> None:
    with pytest.raises(DataError) as caught:
        load([{"q": "1", "a": "2"}])
    assert len(caught.value.faults) == 2


def test_reasons_are_counted_apart(load: Load) -> None:
    rows = [*sums(3), {"prompt": " ", "target": "1"}, {"prompt": "a", "target": None}, {"prompt": "b", "target": " "}]
    assert dict(load(rows).dropped) == {"without a prompt": 1, "without a target": 2}


def test_row_in_the_middle_without_the_columns_is_dropped_and_counted(load: Load) -> None:
    data = load([*sums(2), {"other": 1}, *sums(2)])
    assert dict(data.dropped) == {"without a prompt": 1}
    assert len(all_rows(data)) == 4


@pytest.mark.parametrize("newline", ["\r\n", "\n\n\n", "\n  \n", "\r\n\r\n"])
def test_line_ends_and_blank_lines_change_nothing(newline: str, load: Load) -> None:
    text = newline.join(json.dumps(row) for row in sums(5)) + newline
    assert load(text).fingerprint() == load(sums(5)).fingerprint()


def test_last_line_without_an_end_counts(load: Load) -> None:
    assert len(all_rows(load("\n".join(json.dumps(row) for row in sums(3))))) == 3


def test_byte_order_mark_is_no_part_of_the_data(load: Load) -> None:
    """Windows editors write one; json.loads stops at it."""
    plain = load(sums(5)).fingerprint()
    assert load(b"\xef\xbb\xbf" + "".join(json.dumps(row) + "\n" for row in sums(5)).encode()).fingerprint() == plain


def test_letters_of_all_scripts_come_through(load: Load) -> None:
    text = "π ≈ 3; 二加三? Größe 🙂 \u2028 x"
    (row,) = load([{"prompt": text, "target": "√8"}]).train
    assert row.prompt[0]["content"] == text
    assert row.target == "√8"


def test_line_separator_inside_a_text_does_not_end_the_line(load: Load) -> None:
    """U+2028 and U+0085 are no line ends in JSON lines, though str.splitlines says so."""
    line = json.dumps({"prompt": "a\u2028b\u0085c", "target": "1"}, ensure_ascii=False) + "\n"
    (row,) = load(line).train
    assert row.prompt[0]["content"] == "a\u2028b\u0085c"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (5, "5"),
        (5.5, "5.5"),
        (-3, "-3"),
        (0, "0"),
        (" 7 ", "7"),
        (["1/2", "0.5"], ("1/2", "0.5")),
        (["1/2", None, " "], ("1/2",)),
        ([4, "four"], ("4", "four")),
    ],
)
def test_target_becomes_text_or_spellings(target: Any, expected: Any, load: Load) -> None:
    (row,) = load([{"prompt": "q", "target": target}]).train
    assert row.target == expected


@pytest.mark.parametrize("target", [None, True, {}, {"a": 1}, "", "  ", [], [None], math.nan])
def test_target_that_is_no_answer_drops_the_row(target: Any, load: Load) -> None:
    assert dict(load([{"prompt": "q", "target": target}, *sums(1)]).dropped) == {"without a target": 1}


@pytest.mark.parametrize("prompt", [None, 5, "", " \n", [], ["text"], [{"role": "user"}], [{"content": "q"}]])
def test_prompt_that_is_none_drops_the_row(prompt: Any, load: Load) -> None:
    assert dict(load([{"prompt": prompt, "target": "1"}, *sums(1)]).dropped) == {"without a prompt": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("so 1,200+250\n#### 1,450", "1450"),
        ("#### 3 #### -4", "-4"),
        ("a #### 0.5 ", "0.5"),
    ],
)
def test_gsm8k_answer_stands_after_the_last_marker(text: str, expected: str, load: Load) -> None:
    (row,) = load([{"prompt": "q", "target": text}], target_format="gsm8k").train
    assert row.target == expected


def test_boxed_answer_is_the_last_balanced_box(load: Load) -> None:
    text = r"first \boxed{1}, then \boxed{\frac{1}{2}}."
    (row,) = load([{"prompt": "q", "target": text}], target_format="boxed").train
    assert row.target == r"\frac{1}{2}"


# ------------------------------------------------------------------------------------------ faults


def test_line_that_is_not_json_is_named_by_its_number(load: Load) -> None:
    """Line 3, though line 2 is blank: the number is the editor's."""
    assert "line 3 is not JSON" in refusal(load, json.dumps(sums(1)[0]) + "\n\n{oops\n")


def test_line_that_is_no_object(load: Load) -> None:
    assert "line 1 is a list, not an object" in refusal(load, "[1]\n")


def test_empty_file(load: Load) -> None:
    assert "none of its 0 rows can be used (the file is empty)" in refusal(load, "")
    assert "none of its 0 rows can be used (the file is empty)" in refusal(load, "\n\n")


def test_file_that_is_no_text(load: Load) -> None:
    assert "is not UTF-8 text" in refusal(load, b"\xff\xfe\x00{")


def test_file_that_is_missing_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dataset\.path=.* cannot be read .*; give an existing file"):
        load_jsonl(JsonlDataset(kind="jsonl", path=str(tmp_path / "nothing.jsonl")))
    with pytest.raises(DataError, match=r"dataset\.path=.* is not a file; give a file"):
        load_jsonl(JsonlDataset(kind="jsonl", path=str(tmp_path)))


def test_fault_in_the_held_out_file_names_the_held_out_setting(load: Load, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dataset\.eval_path="):
        load(sums(5), eval_path=str(tmp_path / "nothing.jsonl"))


def test_unusable_held_out_file_is_judged_by_its_own_rows(load: Load, tmp_path: Path) -> None:
    """Two training rows are left out; the held-out file has one row, and that without a target."""
    path = tmp_path / "eval.jsonl"
    path.write_text(json.dumps({"prompt": "q", "target": None}) + "\n")
    rows = [*sums(5), {"prompt": "", "target": "1"}, {"prompt": "", "target": "2"}]
    with pytest.raises(DataError, match=r"none of its 1 rows can be used \(1 without a target\)"):
        load(rows, eval_path=str(path))


# ------------------------------------------------------------------------------------------ held-out rows


def test_held_out_rows_are_a_fifth_and_disjoint(load: Load) -> None:
    """100 different prompts: 20 held out, 80 left."""
    data = load(sums(100))
    train, held_out = ({str(row.prompt) for row in rows} for rows in (data.train, data.evaluation))
    assert (len(train), len(held_out)) == (80, 20)
    assert not train & held_out


def test_held_out_rows_are_at_most_eval_size(load: Load) -> None:
    data = load(sums(100), eval_size=7)
    assert (len(data.train), len(data.evaluation)) == (93, 7)


def test_prompt_that_comes_twice_lies_on_one_side(load: Load) -> None:
    """Each of 50 prompts three times: 10 prompts held out, once each, so 20 rows are left out; 40 x 3 rows stay."""
    data = load(sums(50) * 3)
    assert (len(data.train), len(data.evaluation)) == (120, 10)
    assert data.dropped == {"that are held out, too,": 20}
    assert not {str(row.prompt) for row in data.train} & {str(row.prompt) for row in data.evaluation}


def test_prompts_that_differ_in_case_and_blanks_lie_on_one_side(load: Load) -> None:
    """50 questions in four spellings: 10 held out, once each, the 30 other spellings left out, 40 x 4 to train on."""
    rows = sums(50)
    spellings = [lambda text: f"WHAT is {text}", lambda text: f"what is {text}", lambda text: f"what  is {text} ",
                 lambda text: f"\twhat is\n{text}"]  # fmt: skip
    data = load([{**row, "prompt": spell(row["prompt"])} for spell in spellings for row in rows])
    assert (len(data.train), len(data.evaluation)) == (160, 10)
    assert not {row.question_key for row in data.train} & {row.question_key for row in data.evaluation}
    assert data.dropped == {"that are held out, too,": 30}


def test_system_message_of_a_row_makes_no_other_question(load: Load) -> None:
    def ask(row: dict[str, Any], system: str) -> dict[str, Any]:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": row["prompt"]}]
        return {**row, "prompt": messages}

    data = load([ask(row, system) for system in ("Be brief.", "Reason.") for row in sums(50)])
    assert (len(data.train), len(data.evaluation)) == (80, 10)
    assert not {row.question_key for row in data.train} & {row.question_key for row in data.evaluation}


@pytest.mark.parametrize("prompt", [
    [{"role": "user", "content": " \n"}], [{"role": "system", "content": "Be brief."}],
    [{"role": None, "content": "1+1?"}], [{"role": "", "content": "1+1?"}],
])  # fmt: skip
def test_conversation_in_which_nobody_asks_anything_is_no_prompt(prompt: Any, load: Load) -> None:
    assert load([*sums(10), {"prompt": prompt, "target": "1"}]).dropped == {"without a prompt": 1}


@pytest.mark.parametrize("where", ["prompt", "target"])
def test_half_of_an_emoji_drops_the_row(where: str, load: Load) -> None:
    r"""JSON can hold `\ud83d` alone, which no tokenizer takes: it would end the run in its first step."""
    row = {"prompt": "1+1?", "target": "2", where: "cut \ud83d"}
    assert load([*sums(10), row]).dropped == {"with text that is no Unicode": 1}


def test_choice_does_not_depend_on_the_order_of_the_file(load: Load) -> None:
    first, second = load(sums(60)), load(sums(60)[::-1])
    assert {str(row.prompt) for row in first.evaluation} == {str(row.prompt) for row in second.evaluation}


def test_held_out_rows_are_not_the_first_ones(load: Load) -> None:
    """A file is often sorted by difficulty: 20 of 100 by place would be one end of it."""
    places = [int(row.prompt[0]["content"].partition("+")[0]) for row in load(sums(100)).evaluation]
    assert min(places) < 25
    assert max(places) > 75


def test_held_out_file_of_its_own(load: Load, tmp_path: Path) -> None:
    """Then nothing is taken off the training file; eval_size cuts the other one."""
    path = tmp_path / "eval.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"e{i}", "target": "1"}) + "\n" for i in range(30)))
    data = load(sums(10), eval_path=str(path), eval_size=25)
    assert (len(data.train), len(data.evaluation)) == (10, 25)


def test_train_size_cuts_the_file(load: Load) -> None:
    """10 rows: 2 of them held out, 8 left."""
    data = load(sums(100), train_size=10)
    assert (len(data.train), len(data.evaluation)) == (8, 2)


def test_file_too_small_to_hold_anything_out_is_refused(tmp_path: Path) -> None:
    """A fifth of 4 prompts is none."""
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in sums(4)))
    plan = BatchPlan(1, 2, 1, 2, 1, 1, 1)
    with pytest.raises(DataError, match=r"no held-out prompts are left .*dataset\.eval_path=FILE"):
        load_prompts(JsonlDataset(kind="jsonl", path=str(path)), seed=0, plan=plan)


# ------------------------------------------------------------------------------------------ prompts


def test_system_prompt_comes_first_and_once() -> None:
    assert build_prompt("q", "S") == ({"role": "system", "content": "S"}, {"role": "user", "content": "q"})
    own = [{"role": "system", "content": "own"}, {"role": "user", "content": "q"}]
    assert build_prompt(own, "S") == tuple(own)
    assert build_prompt("q", None) == ({"role": "user", "content": "q"},)


def test_rows_of_both_kinds_of_targets_make_one_data_set_column(load: Load) -> None:
    """Where one target is a list, all are: a column has one type."""
    rows = load([{"prompt": "a", "target": ["1", "2"]}, {"prompt": "b", "target": "3"}]).train
    assert [row.to_dict()["target"] for row in rows] == [["1", "2"], "3"]


def test_rows_of_the_held_out_file_are_not_trained_on(load: Load, tmp_path: Path) -> None:
    """10 training rows, of which the held-out file repeats 4: 6 are left, and 4 are counted."""
    path = tmp_path / "held_out.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in sums(10)[:4]))
    data = load(sums(10), eval_path=str(path))
    assert (len(data.train), len(data.evaluation)) == (6, 4)
    assert sum(data.dropped.values()) == 4
    assert not {row.prompt[0]["content"] for row in data.train} & {row.prompt[0]["content"] for row in data.evaluation}
