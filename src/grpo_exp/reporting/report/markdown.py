"""A report as Markdown, with its pictures as files beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo_exp.reporting.report.document import Block, DataTable, Gallery, Paragraphs, Picture, Report, Sample

#: What Markdown, HTML in it, or a formula in it would take for markup.
_SPECIAL = re.compile(r"([\\`*\[\]<>|$~&]|(?<!\w)_|_(?!\w))")


def to_markdown(report: Report, *, figures: str) -> str:
    """Return the report as GitHub renders it.

    Args:
        report: The report.
        figures: Folder of the pictures, from where the file lies.
    """
    lines = [f"# {_escaped(report.title)}", "", _escaped(report.subtitle), ""]
    for section in report.sections:
        lines += [f"## {_escaped(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block, figures), ""]
    return "\n".join(lines).rstrip() + "\n"


def _block(block: Block, figures: str) -> list[str]:
    match block:
        case Paragraphs():
            return [f"- {_escaped(text)}" if block.as_list else f"{_escaped(text)}\n" for text in block.texts]
        case DataTable():
            return _table(block)
        case Picture():
            return [f"![{_escaped(block.alt)}]({figures}/{block.name}.png)", *_caption(block.caption)]
        case Gallery():
            return [line for picture in block.pictures for line in [*_block(picture, figures), ""]]
        case Sample():
            return _sample(block)


def _table(table: DataTable) -> list[str]:
    rules = ["---" if place < table.num_text_columns else "---:" for place in range(len(table.headings))]
    rows = [_row(row) for row in table.rows[: table.most]]
    left_out = len(table.rows) - table.most
    more = [f"{left_out} more rows are in {table.file or 'the CSV files'}."] if left_out > 0 else []
    return [_row(table.headings), _row(rules, escape=False), *rows, "", *_caption(table.caption), *more]


def _row(cells: Sequence[str], *, escape: bool = True) -> str:
    return f"| {' | '.join(_escaped(cell) if escape else cell for cell in cells)} |"


def _caption(text: str) -> list[str]:
    return ["", _escaped(text)] if text else []


def _sample(sample: Sample) -> list[str]:
    facts = ", ".join(sample.facts)
    return [f"{_escaped(sample.title)}: {_escaped(facts)}", "", *_fenced(f"{sample.prompt}\n---\n{sample.completion}")]


def _fenced(text: str) -> list[str]:
    """Return a block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", text, fence]


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
