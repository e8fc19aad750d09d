"""Programs that broke other runners, and the rules for tests and programs. Expected values are set by hand."""

from __future__ import annotations

import time
from typing import Any

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.rewards.code.plain import NotPlainError, from_plain, to_plain
from grpo_exp.rewards.code.program_text import extract_program
from grpo_exp.rewards.code.same_value import is_same_value
from grpo_exp.rewards.code.scorer import build_code_scorer
from grpo_exp.rewards.code.unit_tests import read_tests
from grpo_exp.rewards.extraction import Extraction
from grpo_exp.rewards.score import Score

from .programs import ADD, Leaks, component, fenced, require_bubblewrap, score
from .reward_cases import load_cases

ADDER = "a,b=map(int,input().split())\nprint(a+b)"


@pytest.fixture(scope="module", autouse=True)
def _bubblewrap() -> None:
    require_bubblewrap()


@pytest.mark.parametrize("case", load_cases("code.jsonl"), ids=lambda case: case["id"])
def test_collected_case(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    scorer, leaks, started = build_code_scorer(component()), Leaks(), time.monotonic()
    found = scorer("code", [case["completion"]], {"tests": [case["tests"]], "mode": [case["mode"]]})[0]
    elapsed = time.monotonic() - started
    assert found.value == case["expected"], (found, case["note"])
    assert elapsed < case["max_seconds"]
    leaks.assert_none()


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na=1\n```\nand\n```\nb=2\n```", "b=2\n"),
        ("```python\na=1\n```\nOutput:\n```text\n3\n```", "a=1\n"),
        ("```python\na=1\n```\n```bash\npython a.py\n```", "a=1\n"),
        ("~~~python\na=1\n~~~", "a=1\n"),
        ("````python\ns='```'\n```\n````", "s='```'\n```\n"),
        ("1. So:\n   ```python\n   if x:\n     y\n   ```", "if x:\n  y\n"),
        ("```python\r\na=1\r\n```\r\n", "a=1\n"),
        ("```Python3\na=1\n```", "a=1\n"),
        ("<think>\n```python\nx\n```\n</think>\n```python\na=1\n```", "a=1\n"),
        ("<think>\n```python\nx\n</think>\n```python\na=1\n```", "a=1\n"),
        # only assertions: tests of its own, whatever they look like
        ("```python\na=1\n```\n```python\nassert a==1; assert a!=2\n```", "a=1\n"),
        ('```python\na=1\n```\n```python\n# check\nassert f("""\nx\n""") == [\n1]\n```', "a=1\n"),
        ("```python\na=1\n```\n```python\nfrom program import a\nassert a\n```", "a=1\n"),
        ("```python\na=1\n```\n```python\nb=2\nassert b\n```", "b=2\nassert b\n"),
        ("```python\na=1\n```\n```python\n\n```", "a=1\n"),
    ],
)
def test_last_block_that_is_not_only_assertions_is_the_program(text: str, program: str) -> None:
    assert extract_program(text).content == program


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a=1", "no_code"),
        ("`a=1`", "no_code"),
        ("```python\nassert f(1)\n```", "no_code"),
        ("```cpp\nint main() {}\n```", "no_code"),
        ("```python\na=1\n```\n```python\nb=", "cut_code"),
        ("<think>```python\na=1\n```", "unclosed_reasoning"),
        ("```\n" + "a" * 200_001 + "\n```", "too_long"),
    ],
)
def test_why_there_is_no_program(text: str, reason: str) -> None:
    assert extract_program(text) == Extraction(None, reason)


def test_prompt_may_end_inside_the_reasoning() -> None:
    columns = {"tests": [ADD, ADD], "mode": ["stdin", "stdin"], "prefilled": [True, False]}
    scores = build_code_scorer(component())("code", [fenced(ADDER), fenced(ADDER)], columns)
    assert scores == [Score(0.0, "unclosed_reasoning"), Score(1.0, "passed")]


@pytest.mark.parametrize("hostile", ["~" * 300_000 + "`", "`" * 300_000, " " * 300_000 + "x", "```\n" * 50_000])
def test_finding_the_program_takes_linear_time(hostile: str) -> None:
    started = time.monotonic()
    extract_program(hostile)
    assert time.monotonic() - started < 2  # a quadratic search needs 300,000**2 / 10**8 = 900 seconds


@pytest.mark.parametrize(
    ("tests", "mode", "reason"),
    [
        ("", "stdin", "no_tests"),
        ("null", "stdin", "no_tests"),
        ("[]", "call", "no_tests"),
        ({"inputs": [], "outputs": []}, "stdin", "no_tests"),
        ({"fn_name": "f", "inputs": [], "outputs": []}, "call", "no_tests"),
        ([" "], "assert", "no_tests"),
        ("{", "stdin", "unreadable_tests"),
        ("[" * 100_000, "stdin", "unreadable_tests"),
        ([{"input": "1"}], "stdin", "unreadable_tests"),
        ([{"input": 1, "output": "1"}], "stdin", "unreadable_tests"),
        ({"inputs": ["1", "2"], "outputs": ["1"]}, "stdin", "unreadable_tests"),
        ({"fn_name": "f", "inputs": [1], "outputs": [1]}, "call", "unreadable_tests"),
        ({"inputs": [[1]], "outputs": [1]}, "call", "unreadable_tests"),
        (3, "assert", "unreadable_tests"),
        (ADD, "exam", "unreadable_tests"),
        (ADD, None, "unreadable_tests"),
    ],
)
def test_tests_that_cannot_be_used(tests: Any, mode: Any, reason: str) -> None:
    assert read_tests(tests, mode) == Score(None, reason)


@pytest.mark.parametrize(
    ("tests", "value"),
    [
        ("assert add(", None),  # not Python
        ("x = 1", None),  # nothing is asserted and nothing is called
        ("def check(f):\n    assert f(2, 3) == 5\ncheck(add)", 1.0),
        ("def check(f):\n    assert f(2, 3) == 6\ncheck(add)", 0.0),
        ("def check(f):\n    assert f(2, 3) == 5", None),
        ("for x in range(3):\n    assert add(x, 1) == x + 1", 1.0),
        (["assert add(1, 1) == 2", "assert add(1, 1) == 3"], 0.0),
        ("assert add(lambda: 1, 2) == 3", None),  # a function cannot be handed over
        ("assert math.isclose(add(0.1, 0.2), 0.3)", 1.0),
        ("assert missing(1) == 2", 0.0),
        ("assert add([1], [2]) == [1, 2]", 1.0),
        ("assert add((1,), (2,)) == [1, 2]", 0.0),  # (1, 2) is no list
        ("try:\n    add(1, 'a')\n    assert False\nexcept TypeError:\n    pass", 1.0),
        ("r = add(1, 1)\nassert r == 2", 1.0),
        ("if __name__ == '__main__':\n    assert add(1, 1) == 2", 1.0),
        ("assert add(2**70, 1) == 2**70 + 1", 1.0),
    ],
)
def test_assertions(tests: Any, value: float | None) -> None:
    assert score("def add(a, b):\n    return a + b", tests, "assert").value == value


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        (
            "class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n"
            "    def pop(self): return self.items.pop()\n    def __len__(self): return len(self.items)",
            "s = Stack()\ns.push(4)\ns.push([5])\nassert s.pop() == [5]\nassert len(s) == 1\nassert s.items == [4]",
        ),
        ("def evens(n):\n    yield from range(0, n, 2)", "assert list(evens(5)) == [0, 2, 4]"),
        ("def sort(x):\n    x.sort()", "x = [3, 1, 2]\nsort(x)\nassert x == [1, 2, 3]"),
        ("def sum(a, b):\n    return a + b", "assert sum(10, 15) == 25"),
        (
            "class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return self.x == o.x\n"
            "    def __add__(self, o): return P(self.x + o.x)",
            "assert P(1) + P(2) == P(3)\nassert P(1) != P(2)",
        ),
        (
            "from collections import Counter\ndef count(s):\n    return Counter(s)",
            "assert count('aab') == {'a': 2, 'b': 1}",
        ),
        ("if __name__ == '__main__':\n    print(input())\ndef one():\n    return 1", "assert one() == 1"),
    ],
)
def test_objects_of_the_program_work_in_assertions(program: str, tests: str) -> None:
    assert score(program, tests, "assert") == Score(1.0, "passed")


@pytest.mark.parametrize(
    ("mode", "program", "tests", "found"),
    [
        ("stdin", "a,b=map(int,input().split())\nprint(5)", ADD, Score(0.5, "wrong_output")),
        (
            "call",
            "def f(x):\n    if x == 2:\n        import os\n        os._exit(0)\n    return x",
            {"fn_name": "f", "inputs": [[1], [2], [3], [4]], "outputs": [1, 2, 3, 4]},
            Score(0.75, "runtime_error"),  # the program is started again: 3 of 4
        ),
        (
            "assert",
            "def f(x):\n    return 1",
            "assert f(1)==1\nassert f(2)==2\nassert f(3)==1",
            Score(2 / 3, "wrong_output"),
        ),
        ("assert", "def f(x):\n    raise SystemExit", "assert f(1)==1\nassert f(2)==2", Score(0.0, "runtime_error")),
    ],
)
def test_fraction_counts_the_tests_that_pass(mode: str, program: str, tests: Any, found: Score) -> None:
    assert score(program, tests, mode, scoring="fraction") == found
    assert score(program, tests, mode) == Score(0.0, found.reason)


@pytest.mark.parametrize(
    ("mode", "program", "tests", "reason"),
    [
        ("stdin", "print(", ADD, "syntax_error"),
        ("call", "def f(:", {"fn_name": "f", "inputs": [[1]], "outputs": [1]}, "syntax_error"),
        ("call", "def g(): pass", {"fn_name": "f", "inputs": [[1]], "outputs": [1]}, "missing_function"),
        ("call", "def f(x):\n  while True: pass", {"fn_name": "f", "inputs": [[1]], "outputs": [1]}, "timeout"),
        ("call", "while True: pass", {"fn_name": "f", "inputs": [[1]], "outputs": [1]}, "timeout"),
        ("call", "def f(x): return [0] * 10**9", {"fn_name": "f", "inputs": [[1]], "outputs": [1]}, "memory_limit"),
        ("call", "def f(x): return 'a' * 10**7", {"fn_name": "f", "inputs": [[1]], "outputs": [1]}, "output_limit"),
        ("assert", "def f(x):\n  while True: pass", "assert f(1) == 1", "timeout"),
        ("assert", "def f(x): return range(10**12)", "assert list(f(1)) == [1]", "memory_limit"),
        ("stdin", "print(5)\nraise SystemExit(1)", [ADD[0]], "runtime_error"),
        ("stdin", "print('x' * 10**8)", ADD, "output_limit"),
    ],
)
def test_reason(mode: str, program: str, tests: Any, reason: str) -> None:
    assert score(program, tests, mode, timeout_seconds=2) == Score(0.0, reason)


@pytest.mark.parametrize(
    ("expected", "returned", "same"),
    [
        (5, 5, True),
        (5, 5.0, False),
        (1, True, False),
        (True, 1, False),
        (5.0, 5, True),
        (0.3, 0.1 + 0.2, True),
        (0.3, 0.30000001, False),  # 0.3 * (1 + 3.3e-8)
        ("5", 5, False),
        (None, None, True),
        (None, 0, False),
        ([1, 2], (1, 2), True),
        ([1, 2], {1, 2}, False),
        ([1, [2]], [1, [2]], True),
        ([1, 2], [1, 2, 3], False),
        ({"1": "a"}, {1: "a"}, True),
        ({"1": "a"}, {"1": "b"}, False),
        ({"1": "a", "2": "a"}, {"1": "a"}, False),
        ({1, 2}, {2, 1}, True),
        (2**80, 2**80, True),
        (2.0**80, 2**80, False),  # sent as text: too large to be read without a thought
        (float("nan"), float("nan"), True),
        (b"a", b"a", True),
    ],
)
def test_returned_value_has_the_expected_type(expected: Any, returned: Any, same: bool) -> None:
    assert is_same_value(expected, to_plain(returned)) is same


@pytest.mark.parametrize(
    "forged", [{"dict": [[{}, 1]]}, {"dict": [[[], 1]]}, {"dict": 3}, {"tuple": {"range": []}}, {}]
)
def test_forged_value_equals_nothing_and_raises_nothing(forged: Any) -> None:
    assert not any(is_same_value(expected, forged) for expected in (1, [1], {"a": 1}, {1}, None, 0.5))


def test_plain_data_survives_the_way_there_and_back() -> None:
    value = {"a": [1, -(2**90), 1.5, None, True], (1, "b"): {1, 2}, 3: frozenset({b"x"}), "r": range(3), "c": 1 + 2j}
    back = from_plain(to_plain(value))
    assert back == value
    assert [type(item) for item in back["a"]] == [int, int, float, type(None), bool]
    with pytest.raises(NotPlainError):
        to_plain(object())


def test_missing_columns_are_named() -> None:
    scorer = build_code_scorer(component())
    with pytest.raises(ConfigError, match=r"components.code: .* 'tests' and no column 'mode' .*'prompt'.*add them"):
        scorer("code", ["x"], {"prompt": ["x"]})


def test_batch_keeps_its_order_and_runs_concurrently() -> None:
    """Four programs of one second each: 4 s one after another, 1 s and the starts with four workers."""
    programs = [fenced(f"import time\ntime.sleep(1)\nprint({number})") for number in range(4)]
    columns = {"tests": [[{"input": "", "output": str(n % 2)}] for n in range(4)], "mode": ["stdin"] * 4}
    started = time.monotonic()
    scores = build_code_scorer(component(num_workers=4))("code", programs, columns)
    assert [found.value for found in scores] == [1.0, 1.0, 0.0, 0.0]
    assert time.monotonic() - started < 3.5
