r"""Find the answer of a completion: the last `\boxed{}` after the last `</think>`.

Everything here is linear in the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OPENING_TAG = "<think>"
CLOSING_TAG = "</think>"

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE_TOKEN = re.compile(r"-?\d[\d.,]*|[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Extraction:
    """The content of the box, or why there is none.

    Args:
        content: What stands in the box, blanks trimmed and never empty, or None.
        reason: Empty when there is content, else a slug of the table in `score`.
    """

    content: str | None
    reason: str = ""


def after_reasoning(text: str, *, reasoning_open: bool = False) -> str | None:
    """Return what follows the last closing tag, all of a text without tags, or None inside the reasoning.

    Args:
        text: The completion.
        reasoning_open: The prompt ended with the opening tag, so that the text starts inside the reasoning.
    """
    before, closing, tail = text.rpartition(CLOSING_TAG)
    still_open = reasoning_open and not closing and not before
    return None if still_open or OPENING_TAG in tail else tail


def extract_box(text: str, *, reasoning_open: bool = False) -> Extraction:
    r"""Return the content of the last box after the reasoning.

    The last box is the one that starts last; where it stands inside another one, the outer one counts. A last
    box that is never closed is no answer, even if an earlier one is complete: the earlier one is not what the
    completion ends on.

    Args:
        text: The completion.
        reasoning_open: The prompt ended with the opening tag, so that the text starts inside the reasoning.
    """
    tail = after_reasoning(text, reasoning_open=reasoning_open)
    if tail is None:
        return Extraction(None, "unclosed_reasoning")
    boxes = list(_BOX.finditer(tail))
    if not boxes:
        return Extraction(None, "no_box")
    content = _content_of_last(tail, boxes)
    if content is None:
        return Extraction(None, "cut_box")
    content = content.strip()
    return Extraction(content) if content else Extraction(None, "empty_box")


def find_box(text: str) -> str | None:
    """Return the content of the last complete box of a text that has no reasoning (a worked solution)."""
    boxes = list(_BOX.finditer(text))
    return _content_of_last(text, boxes) if boxes else None


def _content_of_last(text: str, boxes: list[re.Match[str]]) -> str | None:
    """Return the content of the last box, None when it is cut."""
    last = boxes[-1]
    start = last.end()
    if not text.startswith("{", start):
        token = _BARE_TOKEN.match(text, start)
        content, end = (token[0].rstrip(".,") if token else ""), start
    else:
        end = match_braces(text, start=start).get(start, -1)
        if end < 0:
            return None
        content = text[start + 1 : end]
    if len(boxes) > 1:
        closes = match_braces(text, start=boxes[0].start())
        for box in boxes[:-1]:
            if closes.get(box.end(), -1) > end:
                content = text[box.end() + 1 : closes[box.end()]]
                break
    # Text that was escaped twice (a JSON dump) has every backslash doubled.
    doubled = last.start() > 0 and text[last.start() - 1] == "\\"
    return content.replace("\\\\", "\\") if doubled else content


def match_braces(text: str, *, start: int = 0) -> dict[int, int]:
    r"""Map the position of each opening brace to its closing one; `\{` and `\}` are text, not braces.

    Args:
        text: Any text.
        start: Where to begin; not inside a command.
    """
    closes: dict[int, int] = {}
    open_positions: list[int] = []
    for found in _BRACES.finditer(text, start):
        if found[0] == "{":
            open_positions.append(found.start())
        elif found[0] == "}" and open_positions:
            closes[open_positions.pop()] = found.start()
    return closes
