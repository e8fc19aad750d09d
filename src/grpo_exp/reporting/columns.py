"""Which numbers the progress view shows, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_exp.tracking.metrics_log import MetricsRecord

#: Shown where a metric does not exist, so that a column stays a column.
ABSENT = "-"


@dataclass(frozen=True)
class Column:
    """One column of the progress table."""

    title: str
    #: The values are added up; the column exists if one of them was ever seen.
    metrics: tuple[str, ...]
    format: str
    width: int = 7
    #: Shown instead in a step that has it.
    rather: str = ""

    def text(self, metrics: dict[str, float]) -> str:
        """Write the value of one step; `-` if it has none."""
        if self.rather in metrics:
            return format(metrics[self.rather], self.format)
        values = [metrics[name] for name in self.metrics if name in metrics]
        return format(sum(values), self.format) if values else ABSENT


def build_columns(component_names: Sequence[str]) -> list[Column]:
    """Return the columns between step and ETA, for a run with these reward components."""
    components = [_unchosen(name, f"rewards/{name}/mean", ".3f", max(len(name), 6)) for name in component_names]
    clip_ratios = ("train/clip_ratio/low_mean", "train/clip_ratio/high_mean")
    return [
        _unchosen("reward", "reward", ".3f", 6),
        *components,
        _unchosen("length", "completion_length/mean", ".1f", 6),
        Column("KL", ("train/kl",), ".4f"),
        Column("clipped", clip_ratios, ".2%"),
        Column("entropy", ("train/entropy",), ".3f"),
        Column("tokens right", ("train/mean_token_accuracy",), ".1%", 12),  # of worked examples only
        Column("s/step", ("time/step",), ".2f", 6),
    ]


def _unchosen(title: str, metric: str, form: str, width: int) -> Column:
    """Return a column about the prompts whose turn it is, whatever dynamic sampling makes of them.

    The kept groups are chosen because their rewards differ: their mean stays in the middle however good the policy is.
    """
    return Column(title, (f"train/{metric}",), form, width, rather=f"train/dynamic_sampling/{metric}")


def format_duration(seconds: float | None) -> str:
    """Write a duration as `m:ss` or `h:mm:ss`; one that is not known as `-`."""
    if seconds is None:
        return ABSENT
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Join cells to a line, each flush right in its width."""
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def evaluation_text(record: MetricsRecord) -> str:
    """Write a held-out evaluation as one line."""
    metrics = record["metrics"]
    text = f"step {record['step']}: held-out accuracy {metrics['eval/accuracy']:.3f}"
    if "eval/greedy_accuracy" in metrics:
        text += f", greedy {metrics['eval/greedy_accuracy']:.3f}"
    return text
