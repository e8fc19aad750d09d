"""From a matplotlib figure to a picture: an SVG that can stand inside a page, and a PNG."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from grpo_exp.reporting.plots import DOTS_PER_INCH
from grpo_exp.reporting.report.document import Picture

#: Width and height in inches: at 400 pixels a letter of 9 points is still 8 pixels high.
SIZE = (4.6, 3.1)
#: Height of a line of a legend, in inches.
_LEGEND_LINE = 0.145
_HEAD = re.compile(r"\A.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_ID = re.compile(r'(\bid="|url\(#|href="#)')


def draw(
    name: str,
    paint: Callable[[Axes], None],
    *,
    alt: str,
    title: str = "",
    caption: str = "",
    size: tuple[float, float] = SIZE,
    legend_below: int = 0,
) -> Picture:
    """Return a picture of one axes.

    Args:
        name: Of the files and, in front of its ids, in the SVG: two pictures on a page must not share one.
        paint: Draws into the axes.
        alt: What is seen.
        title: Above the axes.
        caption: Below the picture.
        size: Width and height in inches, without what stands below.
        legend_below: Lines of a legend below the axes, where it would cover what is drawn; 0 is none.
    """
    # Text stays text: smaller, and it can be searched; a dollar sign in a setting is no formula. The salt makes ids the
    # same each time.
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif", "text.parse_math": False}
    with mpl.rc_context(style), warnings.catch_warnings():
        # Names in other scripts: the font has boxes for them in the PNG; the page's SVG keeps the text.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from font", category=UserWarning)
        svg, png = _drawn(paint, title, size=(size[0], size[1] + _LEGEND_LINE * legend_below), legend=legend_below > 0)
    return Picture(name, _inline(svg, name), png, alt, caption)


def _drawn(paint: Callable[[Axes], None], title: str, *, size: tuple[float, float], legend: bool) -> tuple[str, bytes]:
    """Return the figure as SVG and as PNG."""
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_title(title, fontsize=10, loc="left")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    paint(axes)
    if legend:
        figure.legend(loc="outside lower left", fontsize=7, frameon=False)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once; otherwise each file would do it again
    svg, png = io.StringIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(png, format="png")
    return svg.getvalue(), png.getvalue()


def _inline(svg: str, name: str) -> str:
    """Return the SVG element alone, without a size of its own and with ids that no other picture has."""
    element = _METADATA.sub("", _HEAD.sub("", svg))
    first, rest = element.split(">", 1)
    first = re.sub(r'\s(?:width|height)="[^"]*"', "", first)
    return _ID.sub(rf"\g<1>{name}-", f"{first}>{rest}").strip()
