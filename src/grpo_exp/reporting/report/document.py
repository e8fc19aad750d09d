"""A report as data: sections of paragraphs, tables, pictures and completions. It is written as HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Paragraphs:
    """Plain text; each one becomes a paragraph, or an item of a list."""

    texts: Sequence[str]
    as_list: bool = False
    is_lead: bool = False
    """Set apart, since it is what most readers look for."""


@dataclass(frozen=True, slots=True)
class DataTable:
    """Rows of short texts; columns of numbers are flush right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_text_columns: int = 1
    """Columns from the left that hold text."""
    caption: str = ""
    most: int = 200
    """Rows that are shown; the rest stands in the CSV file."""
    file: str = ""
    """The CSV file with all rows."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure, as SVG text for the page and as files beside it."""

    name: str
    """Of its files, without ending."""
    svg: str
    png: bytes
    alt: str
    """What is seen, for readers who do not see it."""
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Gallery:
    """Pictures side by side, as many as fit."""

    pictures: Sequence[Picture]


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion."""

    title: str
    prompt: str
    completion: str
    facts: Sequence[str]
    """Rewards, reasons, length: short texts."""


Block = Paragraphs | DataTable | Picture | Gallery | Sample


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands under it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    tables: dict[str, tuple[Sequence[str], Sequence[Sequence[object]]]] = field(default_factory=dict)
    """CSV files: name -> headings and rows."""

    def pictures(self) -> list[Picture]:
        """Return all pictures, in order."""
        found: list[Picture] = []
        for section in self.sections:
            for block in section.blocks:
                if isinstance(block, Gallery):
                    found += block.pictures
                elif isinstance(block, Picture):
                    found.append(block)
        return found
