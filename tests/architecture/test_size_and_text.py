"""Limits on size, and what no file may mention."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from architecture.checkout import CHECKOUT, project_files, source_files

MAX_MODULE_LINES = 300
MAX_FUNCTION_LINES = 60

#: Index hosts: which one is used is the machine's choice.
REGISTRY = re.compile(r"\b(pypi|pythonhosted|npmjs|anaconda|rubygems)\.(org|com|io)\b")
INDEX_OPTION = re.compile(r"--(extra-)?index-url|--find-links|--trusted-host")
#: Folders of one machine.
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/(work|root|home/\w+)(/|\b)")


@pytest.mark.parametrize("path", source_files(), ids=lambda path: path.relative_to(CHECKOUT).as_posix())
def test_module_and_its_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_MODULE_LINES
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node.name: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    assert not {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES}


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """Return `file:line: text` for every text line of the project that matches."""
    found = []
    for path in project_files():
        if path == Path(__file__):
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:  # a picture
            continue
        hits = [(number, line) for number, line in enumerate(lines, 1) if pattern.search(line)]
        found += [f"{path.relative_to(CHECKOUT)}:{number}: {line[:120]}" for number, line in hits]
    return found


def test_patterns_find_what_they_are_for() -> None:
    assert REGISTRY.search(".".join(["https://pypi", "org/simple"]))
    assert INDEX_OPTION.search("pip install --extra-index-url X")
    assert MACHINE_PATH.search("see /home/ann/runs")
    assert not MACHINE_PATH.search("the framework/root of it, ~/work and $HOME/work")


def test_no_file_names_a_package_registry() -> None:
    assert lines_with(REGISTRY) == []
    assert lines_with(INDEX_OPTION) == []


def test_no_file_names_a_folder_of_one_machine() -> None:
    assert lines_with(MACHINE_PATH) == []
