"""Programs that want to pass without solving anything. The honest twin of each test passes, the cheat does not."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_exp.rewards.score import Score

from .programs import Leaks, require_bubblewrap, score
from .reward_cases import CHECKOUT

ASSERTS = "assert add(2,3)==5\nassert add(-4,4)==0\nassert add(10,1)==11"
CALLS = {"fn_name": "add", "inputs": [[2, 3], [-4, 4], [10, 1]], "outputs": [5, 0, 11]}
STDIN = [{"input": "2 3\n", "output": "5\n"}, {"input": "-4 4\n", "output": "0\n"}]

ALWAYS_EQUAL = """
class Anything:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __hash__(self): return 5
    def __instancecheck__(self, kind): return True
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __sub__(self, other): return 0.0
    __rsub__ = __add__ = __radd__ = __truediv__ = __sub__
    def __abs__(self): return 0.0
    def __contains__(self, item): return True
    def issubset(self, other): return True
    def __iter__(self): return iter([self])
    def __len__(self): return 1
    def __getattr__(self, name): return lambda *a, **k: True
    __class__ = int
"""


def load_cheats() -> dict[str, str]:
    """Return programs by name."""
    sections = (CHECKOUT / "tests" / "cases" / "code_cheats.txt").read_text().split("### ")[1:]
    named = dict(section.split("\n", 1) for section in sections)
    return {name: program.replace("ALWAYS_EQUAL", ALWAYS_EQUAL) for name, program in named.items()}


CHEATS = load_cheats()


@pytest.fixture(scope="module", autouse=True)
def _bubblewrap() -> None:
    require_bubblewrap()


@pytest.mark.parametrize(("mode", "tests"), [("assert", ASSERTS), ("call", CALLS)], ids=["assert", "call"])
def test_honest_program_passes(mode: str, tests: Any) -> None:
    """Guards the cheats below: the tests can be passed."""
    assert score("def add(a, b): return a + b", tests, mode) == Score(1.0, "passed")


@pytest.mark.parametrize(("mode", "tests"), [("assert", ASSERTS), ("call", CALLS)], ids=["assert", "call"])
@pytest.mark.parametrize("name", CHEATS)
def test_cheat_does_not_pay(name: str, mode: str, tests: Any) -> None:
    leaks = Leaks()
    found = score(CHEATS[name], tests, mode, timeout_seconds=3, scoring="fraction")
    assert found.value is not None
    if name == "hostile_hello":
        assert found.value < 1  # its answer to the first test may be right
    else:
        assert found.value == 0.0, found
    leaks.assert_none()


@pytest.mark.parametrize(
    "tests",
    [
        "assert f(1) == 2",
        "assert not f(1) != 2",
        "assert 2 == f(1)",
        "assert f(1) in [2]",
        "assert 2 in f(1)",
        "assert abs(f(1) - 2.5) < 1e-6",
        "assert abs(2.5 - f(1)) < 1e-6",
        "assert f(1) <= 2 <= f(1)",
        "assert f(1).issubset({2})",
        "assert set(f(1)) == {2}",
        "assert sorted(f(1)) == [2]",
        "assert isinstance(f(1), int) and f(1) == 2",
        "assert all(f(x) == y for x, y in [(1, 2)])",
        "import math\nassert math.isclose(f(1), 2)",
        "assert math.isclose(f(1), 2)",
        "assert isclose(f(1), 2)",
        "assert Counter(f(1)) == Counter([2])",
        "assert [*f(1)] == [2]",
        "assert {f(1): 1} == {2: 1}",
        "assert str(f(1)) == '2'",
        "assert f(1) is None",
    ],
)
def test_object_that_agrees_with_everything_decides_nothing(tests: str) -> None:
    program = f"""{ALWAYS_EQUAL}
    def __str__(self): return 'x'
def f(x): return Anything()
class math:
    isclose = staticmethod(lambda *a: True)
isclose = all = abs = sorted = set = Counter = isinstance = lambda *a: True
"""
    found = score(program.replace("    __class__ = int\n", ""), tests, "assert")
    assert found.value == 0.0, found


@pytest.mark.parametrize(
    "error", ["StopIteration", "StopAsyncIteration", "GeneratorExit", "type('Mine', (StopIteration,), {})"]
)
def test_exception_that_ends_a_loop_early_fails_the_test(error: str) -> None:
    """In one process, `map` would take StopIteration for the end of its input, and all of nothing is true."""
    tests = "assert all(map(lambda pair: f(pair[0]) == pair[1], [(1, 2), (2, 3)]))"
    assert score(f"def f(x): raise {error}", tests, "assert") == Score(0.0, "runtime_error")


def test_arguments_of_a_call_that_returns_something_stay_as_they_are() -> None:
    """In one process, emptying the argument would make both sides the empty list."""
    program = "def f(x):\n    x.clear()\n    return []"
    assert score(program, "x = [3, 1]\nassert f(x) == sorted(x)", "assert").value == 0.0


@pytest.mark.parametrize(
    "program",
    [
        "import os\nos._exit(0)",
        "print(5)",
        "import sys\nprint(sys.argv, open('/proc/self/cmdline').read())",
        "import glob\nfor name in glob.glob('/*/*'):\n    try: print(open(name).read())\n    except OSError: pass",
        "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'ended {\"code\": 0}\\n')\n    except OSError: 0",
    ],
)
def test_stdin_program_that_does_not_solve_does_not_pass(program: str) -> None:
    assert score(program, STDIN, "stdin").value == 0.0


def test_tests_leave_nothing_for_the_next_program() -> None:
    """The folder of one run is not that of the next, so a program cannot count its tests in a file."""
    program = (
        "import os\nn = len(os.listdir('.')) + len(os.listdir('/dev/shm')) + len(os.listdir('/tmp'))\n"
        "open('seen', 'w').write('x')\nprint([5, 0][min(n, 1)])"
    )
    assert score(program, STDIN, "stdin") == Score(0.0, "wrong_output")
