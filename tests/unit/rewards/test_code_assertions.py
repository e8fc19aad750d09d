"""Whose names the assertions mean, and who is to blame for what cannot be judged. Expected values are set by hand."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from grpo_exp.rewards.code.tested_names import names_of_program, open_names
from grpo_exp.rewards.code.unit_tests import read_tests
from grpo_exp.rewards.score import Score

from .programs import require_bubblewrap, score


@pytest.fixture(scope="module", autouse=True)
def _bubblewrap() -> None:
    require_bubblewrap()


@pytest.mark.parametrize(
    ("tests", "defined", "tested"),
    [
        ("assert add(1, 2) == 3", {"add", "sum", "helper"}, {"add"}),
        ("assert abs(add(1, 2) - 3) < 1e-6", {"add", "abs"}, {"add"}),
        ("assert sum(1, 2) == 3", {"sum"}, {"sum"}),
        ("assert gcd(4, 6) == 2", {"gcd", "abs"}, {"gcd"}),
        # a name that judges what another returned is ours
        ("assert abs(sqrt(4) - 2.0) < 1e-6", {"sqrt", "abs"}, {"sqrt"}),
        ("assert abs(sum(1, 2) - 3) < 1e-6", {"sum", "abs"}, {"sum"}),
        ("r = sum(1, 2)\nassert abs(r - 3) < 1e-6", {"sum", "abs"}, {"sum"}),
        ("r = sqrt(4)\ns = r\nassert isclose(s, 2)", {"sqrt", "isclose"}, {"sqrt"}),
        ("for r in [sqrt(4)]:\n    assert isclose(r, 2)", {"sqrt", "isclose"}, {"sqrt"}),
        ("assert all(map(isclose, map(sqrt, [4]), [2]))", {"sqrt", "isclose", "all", "map"}, {"sqrt"}),
        # two that may judge each other
        ("assert sqrt(4) == floor(2.5)", {"sqrt", "floor"}, set()),
        # names of the tests themselves are not the program's
        ("x = 5\nassert gcd(x, 10) == 5", {"x"}, set()),
        ("def check(candidate):\n    assert candidate(4, 6) == 2\ncheck(gcd)", {"candidate"}, set()),
        ("def check(candidate):\n    assert candidate(4) == 2\ncheck(root)", {"root", "candidate"}, {"root"}),
        ("from math import gcd\nassert gcd(4, 6) == f(2)", {"f", "gcd"}, {"f"}),
        ("assert f(1) == 1", set(), set()),
    ],
)
def test_name_that_means_the_programs(tests: str, defined: set[str], tested: set[str]) -> None:
    library = {"sqrt", "floor", "isclose", "gcd"}
    assert names_of_program(ast.parse(tests), open_names(tests), defined, library) == tested


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def sqrt(x): return 1.0\ndef abs(x): return 0", "assert abs(sqrt(4)-2.0)<1e-6"),
        ("def sqrt(x): return 1.0\ndef isclose(a, b): return True", "assert isclose(sqrt(4), 2.0)"),
        ("def sqrt(x): return 1.0\ndef isclose(a, b): return True", "r = sqrt(4)\nassert isclose(r, 2.0)"),
        ("def sum(a, b): return 1\ndef abs(x): return 0", "r = sum(2, 2)\nassert abs(r - 4) < 1e-6"),
        ("def sqrt(x): return -1\ndef floor(x): return -1", "assert sqrt(4) == floor(2.5)"),
        # the library's own function is not the program's work
        ("pass", "assert gcd(12, 18) == 6"),
        ("x = 1", "x = 12\nassert gcd(x, 18) == 6"),
        ("abs = len", "assert abs(gcd(12, 18)) == 6"),
    ],
)
def test_program_cannot_judge_itself(program: str, tests: str) -> None:
    assert score(program, tests, "assert").value == 0.0


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def sqrt(x): return x ** 0.5\ndef abs(x): return 9", "assert abs(sqrt(4)-2.0)<1e-6"),
        ("from math import *\ndef sqrt(x): return x ** 0.5", "assert isclose(sqrt(4), 2.0)"),
        ("def gcd(a, b): return a if b == 0 else gcd(b, a % b)", "assert gcd(12, 18) == 6\nassert gcd(3, 5) == 1"),
        ("def max(a, b): return a if a > b else b", "assert max(1, 2) == 2"),
    ],
)
def test_function_called_like_one_of_the_library_can_pass(program: str, tests: str) -> None:
    assert score(program, tests, "assert") == Score(1.0, "passed")


def test_tests_that_could_call_no_program_are_unreadable() -> None:
    assert score("def f(): pass", "assert True", "assert") == Score(None, "unreadable_tests")


DEEP = "def f(x):\n    x = 0\n    for _ in range(55): x = [x]\n    return x\ndef g(x): return 1"
DEEP_IN_PLACE = "def f(x):\n    v = 0\n    for _ in range(58): v = [v]\n    x.append(v)"
HANDLE_ERROR = """
def check():
    try:
        f(1)
    except ValueError as error:
        return f([error])
assert check()
"""


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        (DEEP, "assert g([[[[[[[f(1)]]]]]]]) == 1"),  # 55 + 7 levels; 60 can be handed over
        (DEEP, "assert g({1: {1: {1: {1: {1: {1: f(1)}}}}}}) == 1"),
        (DEEP_IN_PLACE, "x = []\nf(x)\nf([x, [[x]]])\nassert x == []"),
        ("def f(x): return [0] * 600_000", "assert f(f(1) + f(2)) == 1"),
        ("def f(x): return 1 / 0", "try:\n    r = f(1)\nexcept Exception as error:\n    r = f(error)\nassert r == 1"),
        ("def f(x): raise ValueError", HANDLE_ERROR),
    ],
)
def test_what_the_program_sent_is_no_fault_of_the_tests(program: str, tests: str) -> None:
    found = score(program, tests, "assert", timeout_seconds=15)
    assert found.value == 0.0, found
    assert found.reason in {"runtime_error", "wrong_output"}


RAW = """
import os
def f(*a):
    line = {line}
    for fd in range(3, 30):
        try:
            if not os.get_inheritable(fd): os.write(fd, line + b"\\n")
        except OSError: pass
    return 1
"""


@pytest.mark.parametrize(
    "line",
    [
        "b'{\"value\": ' + b'[' * 900 + b']' * 900 + b'}'",
        "b'{\"value\": {\"object\": ' + b'[' * 900 + b']' * 900 + b'}}'",
        "b'{\"value\": {\"set\": [' + b'[' * 900 + b']' * 900 + b']}}'",
        "b'[' * 100000",
        'b\'{"value": null, "arguments": 5}\'',
        'b\'{"value": null, "arguments": [[], [], []]}\'',
        "b'{\"raised\": 5}'",
        "b'{\"raised\": []}'",
        'b\'{"value": {"object": [1]}}\'',
        "b'{}'",
    ],
)
@pytest.mark.parametrize(
    ("mode", "tests"),
    [
        ("assert", "assert f([1]) == 2\nassert f(f([1])) == 3"),
        ("call", {"fn_name": "f", "inputs": [[[1]]], "outputs": [[2]]}),
        ("call", {"fn_name": "f", "inputs": [[[1]]], "outputs": [{"a": [2]}]}),
    ],
)
def test_line_that_the_program_wrote_itself_is_worth_nothing(line: str, mode: str, tests: Any) -> None:
    found = score(RAW.replace("{line}", line), tests, mode, timeout_seconds=3)
    assert found.value == 0.0, found


@pytest.mark.parametrize(
    ("tests", "mode"),
    [
        ("assert f(1)", ["assert"]),
        ("assert f(1)", {"mode": "assert"}),
        ("assert f(1)", 3),
        ({"fn_name": "f", "inputs": [[1], [2]], "outputs": "ab"}, "call"),
        ({"fn_name": "f", "inputs": {"a": 1}, "outputs": {"a": 1}}, "call"),
    ],
)
def test_tests_of_no_known_form_are_unreadable(tests: Any, mode: Any) -> None:
    assert read_tests(tests, mode) == Score(None, "unreadable_tests")
