"""Find the program of a completion: the last fenced block that is not only assertions."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass

from grpo_exp.rewards.extraction import Extraction, after_reasoning

MAX_CHARACTERS = 200_000

_NO_STATEMENT = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_LANGUAGES = {"", "python", "python3", "py", "py3", "{python}", "{.python}"}


def extract_program(text: str, *, reasoning_open: bool = False) -> Extraction:
    """Return the program after the reasoning, or why there is none.

    Fences are those of Markdown: three or more backticks or tildes, closed by at least as many on a line of their own.
    Blocks in another language than Python (output, shell) do not count; blocks of assertions, with or without imports,
    are tests that the model wrote for itself. A last block that is never closed is a program that was cut.

    Args:
        text: The completion.
        reasoning_open: The prompt ended with the opening tag, so that the text starts inside the reasoning.
    """
    tail = after_reasoning(text, reasoning_open=reasoning_open)
    if tail is None:
        return Extraction(None, "unclosed_reasoning")
    blocks, is_cut = _python_blocks(tail)
    if is_cut:
        return Extraction(None, "cut_code")
    for block in reversed(blocks):
        if len(block) > MAX_CHARACTERS:
            return Extraction(None, "too_long")
        if not _is_only_assertions(block):
            return Extraction(block)
    return Extraction(None, "no_code")


def _python_blocks(text: str) -> tuple[list[str], bool]:
    """Return the closed Python blocks that are not blank, and whether the last block is a cut Python one."""
    blocks: list[str] = []
    lines: list[str] = []
    opening: _Fence | None = None
    for line in text.replace("\r\n", "\n").split("\n"):
        fence = _read_fence(line)
        if opening is None:
            opening, lines = fence, []
        elif fence is not None and not fence.info and fence.marks.startswith(opening.marks):
            if opening.is_python and any(map(str.strip, lines)):
                blocks.append("\n".join(lines) + "\n")
            opening = None
        else:
            indent = len(line) - len(line.lstrip(" \t"))
            lines.append(line[min(indent, opening.indent) :])
    return blocks, opening is not None and opening.is_python


@dataclass(frozen=True, slots=True)
class _Fence:
    indent: int
    marks: str
    info: str

    @property
    def is_python(self) -> bool:
        return self.info.lower().partition(" ")[0] in _LANGUAGES


def _read_fence(line: str) -> _Fence | None:
    """Read a fence by hand: a regular expression would take very long on long runs of marks."""
    bare = line.lstrip(" \t")
    if not bare.startswith(("```", "~~~")):
        return None
    info = bare.lstrip(bare[0])
    marks = bare[: len(bare) - len(info)]
    return None if "`" in info else _Fence(len(line) - len(bare), marks, info.strip())


def _is_only_assertions(program: str) -> bool:
    """Tell whether every statement is an assertion or an import, with an assertion among them.

    Works on tokens: a hostile program can crash the parser, and this runs in the process that trains.
    """
    if "assert" not in program:
        return False
    starts: list[str] = []
    at_start = True
    try:
        for token in tokenize.generate_tokens(io.StringIO(program).readline):
            if token.type == tokenize.NEWLINE or token.exact_type == tokenize.SEMI:
                at_start = True
            elif at_start and token.type not in _NO_STATEMENT:
                starts.append(token.string)
                at_start = False
    except (tokenize.TokenError, SyntaxError):  # not Python; the one that runs it will say so
        return False
    return "assert" in starts and set(starts) <= {"assert", "import", "from"}
