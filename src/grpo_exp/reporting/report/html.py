"""A report as one HTML page: no script, no style sheet, no picture from anywhere else."""

from __future__ import annotations

from functools import cache

import jinja2
from markupsafe import Markup

from grpo_exp.reporting.report.document import DataTable, Gallery, Paragraphs, Picture, Report, Sample


def to_html(report: Report) -> str:
    """Return the page. What comes from prompts, completions and settings is escaped; only our own SVG is markup."""
    kinds = {Paragraphs: "paragraphs", DataTable: "table", Picture: "picture", Gallery: "gallery", Sample: "sample"}
    sections = [
        {
            "id": f"s{number}",
            "title": section.title,
            "blocks": [(kinds[type(block)], block) for block in section.blocks],
        }
        for number, section in enumerate(report.sections, start=1)
    ]
    return _template().render(report=report, sections=sections, svg=Markup)


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("grpo_exp.reporting.report", "")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                     undefined=jinja2.StrictUndefined)  # fmt: skip
    return environment.get_template("page.html.j2")
