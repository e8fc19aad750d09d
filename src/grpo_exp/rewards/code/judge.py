"""In a sandbox of its own, without the program: run the tests, and ask the program's sandbox through the lines.

A test is a statement at the top level that asserts something (also in a loop); where there is none, a call, as in
`check(candidate)`. All statements run in order, as they would after the program in one file. The report on each test
and the last one carry the secret of this run: text that a test prints, or an early exit, is no report.
"""

from __future__ import annotations

import ast
from typing import Any

from grpo_exp.rewards.code.lines import Lines
from grpo_exp.rewards.code.remote import Stage, UnsupportedTestError
from grpo_exp.rewards.code.tested_names import library_of, names_of_program, open_names


class _ProgramIsGoneError(BaseException):
    """There is nobody to ask any more."""


def main() -> None:
    """Run the tests of the first line."""
    lines = Lines()
    task = lines.read()
    secret = task["secret"]
    try:
        tree = ast.parse(task["tests"])
        used = open_names(task["tests"])
        kinds = [_is_test(statement) for statement in tree.body]
        if not any(kinds):
            kinds = [_is_call(statement) for statement in tree.body]
        code = [compile(ast.Module([statement], []), "tests", "exec") for statement in tree.body]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        lines.write({"unreadable": True, "secret": secret})
        return
    lines.write({"tests": sum(kinds) if used else 0, "secret": secret})
    library = library_of(tree)
    tested = names_of_program(tree, used, set(lines.read()["names"]), set(library))
    if not tested:  # what they call is not there, even where the library has one of that name
        for _ in range(sum(kinds)):
            lines.write({"test": "missing_function", "go_on": True, "secret": secret})
        lines.write({"done": True, "secret": secret})
        return
    namespace = _build_namespace(tested, library, lines)
    try:
        for is_test, statement in zip(kinds, code, strict=True):
            reason = _run(statement, namespace)
            if is_test or reason:
                lines.write({"test": reason or "passed", "go_on": is_test, "secret": secret})
            if reason and not is_test:
                return  # what follows builds on it
    except UnsupportedTestError:
        lines.write({"unreadable": True, "secret": secret})
        return
    lines.write({"done": True, "secret": secret})


def _run(statement: Any, namespace: dict[str, Any]) -> str:
    """Run a statement; return why it failed, or nothing."""
    try:
        exec(statement, namespace)
    except UnsupportedTestError:
        raise
    except AssertionError:
        return "wrong_output"
    except MemoryError:
        return "memory_limit"
    except BaseException:  # whatever it is, the test did not hold
        return "runtime_error"
    return ""


def _build_namespace(tested: set[str], library: dict[str, Any], lines: Lines) -> dict[str, Any]:
    """Return the globals of the tests, with stand-ins for the names that mean the program's."""

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        lines.write({"ask": request})
        reply = lines.read()
        if "gone" in reply:
            raise _ProgramIsGoneError
        return reply

    stage = Stage(ask)
    namespace: dict[str, Any] = {"__name__": "__main__", **library}
    for name in sorted(tested):
        try:
            namespace[name] = stage.value(do="global", name=name)
        except Exception:  # the program does not stand by its own list; the tests that use the name fail
            continue
    return namespace


def _is_test(statement: ast.stmt) -> bool:
    """Tell whether a statement asserts something when it runs, not when a function that it defines is called."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return isinstance(statement, ast.Assert) or any(
        _is_test(child) for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)
    )


def _is_call(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
