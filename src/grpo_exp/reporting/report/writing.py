"""Write a report into a folder: a page that needs nothing else, pictures, tables, and Markdown for a repository."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Sequence
from pathlib import Path

from grpo_exp.reporting.report.document import Report
from grpo_exp.reporting.report.html import to_html
from grpo_exp.reporting.report.markdown import to_markdown
from grpo_exp.rundir import write_bytes, write_text

PAGE, MARKDOWN, FIGURES, MARK = "index.html", "report.md", "figures", ".grpo_exp_report"


def write_report(report: Report, folder: Path) -> Path:
    """Write all files of a report and return its page; pictures of an earlier report in this folder are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = folder / FIGURES
    if (folder / MARK).exists():
        shutil.rmtree(figures, ignore_errors=True)
    write_text(folder / MARK, "made by grpo-exp report\n")
    figures.mkdir(exist_ok=True)
    for picture in report.pictures():
        (figures / f"{picture.name}.svg").write_text(_standalone(picture.svg))
        (figures / f"{picture.name}.png").write_bytes(picture.png)
    for name, (headings, rows) in report.tables.items():
        write_bytes(folder / f"{name}.csv", _to_csv(headings, rows).encode())
    write_text(folder / MARKDOWN, to_markdown(report, figures=FIGURES))
    write_text(folder / PAGE, to_html(report))
    return folder / PAGE


def _standalone(svg: str) -> str:
    return f'<?xml version="1.0" encoding="utf-8"?>\n{svg}\n'


def _to_csv(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return out.getvalue()
