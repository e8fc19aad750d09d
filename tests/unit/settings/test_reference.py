"""The reference of all settings: complete, current, and each line with a meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_exp.commands import settings as command
from grpo_exp.errors import ConfigError
from grpo_exp.settings.fields import TAGS, models_of
from grpo_exp.settings.reference import documentation_of
from grpo_exp.settings.run import RunSettings

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    assert (DOCS / "settings.md").read_text() == capsys.readouterr().out, "grpo-exp settings > docs/settings.md"


def all_models() -> set[type]:
    found, left = set(), [RunSettings]
    while left:
        model = left.pop()
        if model not in found:
            found.add(model)
            left += [part for field in model.model_fields.values() for part in models_of(field.annotation)]
    return found


@pytest.mark.parametrize("model", sorted(all_models(), key=lambda model: model.__name__))
def test_every_setting_says_what_it_means(model: type) -> None:
    fields = getattr(model, "model_fields")  # noqa: B009 - of the type that all_models yields
    documented = documentation_of(model)
    assert {name for name in fields if name not in TAGS} <= documented.keys()


def test_line_has_values_bounds_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    """As the source says: temperature is above 0, at most 2, and 1 by default; a choice lists its words."""
    command.main(["algorithm"])
    lines = capsys.readouterr().out.splitlines()
    (temperature,) = [line for line in lines if line.startswith("| `algorithm.temperature`")]
    assert "| number > 0, <= 2 | `1` |" in temperature.replace("1.0", "1")
    (scale,) = [line for line in lines if line.startswith("| `algorithm.scale_rewards`")]
    assert "`group`, `batch`, `none`" in scale


def test_unknown_group_is_told() -> None:
    with pytest.raises(ConfigError, match="did you mean algorithm"):
        command.main(["algoritm"])
