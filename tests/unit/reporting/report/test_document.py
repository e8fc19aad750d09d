"""Reports as HTML and Markdown: what comes from elsewhere stays text, and pictures do not get in each other's way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.axes import Axes

from grpo_exp.reporting.report.document import DataTable, Gallery, Paragraphs, Picture, Report, Sample, Section
from grpo_exp.reporting.report.drawing import draw
from grpo_exp.reporting.report.html import to_html
from grpo_exp.reporting.report.markdown import to_markdown
from grpo_exp.reporting.report.writing import write_report

#: Would be markup in HTML, in Markdown, in SVG, and a formula that matplotlib cannot read.
HOSTILE = r"<script>x</script> | a_b *c* `d` $\nothing{$ ]]>"


def paint(axes: Axes) -> None:
    axes.plot([0, 1], [0, 1], label=HOSTILE)
    axes.legend()


@pytest.fixture(scope="module")
def pictures() -> list[Picture]:
    return [draw(name, paint, title=HOSTILE, alt=HOSTILE) for name in ("one", "two")]


@pytest.fixture(scope="module")
def report(pictures: list[Picture]) -> Report:
    blocks = [
        Paragraphs([HOSTILE], as_list=True),
        DataTable((HOSTILE, "n"), [(HOSTILE, str(row)) for row in range(5)], most=3, file="all.csv"),
        Gallery(pictures),
        Sample(HOSTILE, HOSTILE, f"```\n{HOSTILE}", [HOSTILE]),
    ]
    return Report(HOSTILE, HOSTILE, [Section(HOSTILE, blocks)], {"all": (("a", "b"), [(1, HOSTILE)])})


def test_nothing_from_elsewhere_is_markup_in_the_page(report: Report) -> None:
    page = to_html(report)
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") >= 8
    assert "2 more rows are in all.csv" in page


def test_pictures_of_a_page_share_no_id(report: Report) -> None:
    page = to_html(report)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', page))
    assert used <= set(ids)


def test_pictures_are_drawn_the_same_each_time(pictures: list[Picture]) -> None:
    assert draw("one", paint, title=HOSTILE, alt=HOSTILE).svg == pictures[0].svg


def test_markdown_keeps_its_table_and_its_fences(report: Report) -> None:
    text = to_markdown(report, figures="figures")
    (row,) = [
        line
        for line in text.splitlines()
        if line.startswith(r"| \<script\>x\</script\> \| a_b \*c\*") and "| 0 |" in line
    ]
    assert len(re.findall(r"(?<!\\)\|", row)) == 3  # two cells
    fences = [line for line in text.splitlines() if line.startswith("````")]
    assert fences == ["````text", "````"]  # longer than the one inside
    assert "![" in text
    assert "(figures/one.png)" in text


def test_formulas_and_entities_stay_text_in_markdown() -> None:
    text = to_markdown(Report("$x_1$ &lt; ~~a~~", "", []), figures="figures")
    assert text.startswith(r"# \$x_1\$ \&lt; \~\~a\~\~")


def test_scripts_that_the_font_lacks_are_drawn_without_a_warning() -> None:
    """Warnings are errors here."""
    picture = draw("one", paint, title="日本 🎉", alt="")
    assert "日本 🎉" in picture.svg


def test_files_are_written_and_old_pictures_go(report: Report, tmp_path: Path) -> None:
    page = write_report(report, tmp_path / "report")
    assert page.name == "index.html"
    assert (tmp_path / "report" / "all.csv").read_text().startswith("a,b\n1,")
    stale = tmp_path / "report" / "figures" / "gone.png"
    stale.write_text("of an earlier report")
    write_report(report, tmp_path / "report")
    assert not stale.exists()


def test_pictures_of_others_stay(report: Report, tmp_path: Path) -> None:
    """A folder in which no report was written may hold a user's own figures."""
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "mine.png").write_text("mine")
    write_report(report, tmp_path)
    assert (tmp_path / "figures" / "mine.png").read_text() == "mine"
