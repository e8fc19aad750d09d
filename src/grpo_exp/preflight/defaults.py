"""Which settings a user has changed."""

from __future__ import annotations

from grpo_exp.settings.base import Settings


def changed(settings: Settings, *names: str) -> list[str]:
    """Return those of the named settings that are not at their default."""
    fields = type(settings).model_fields
    return [name for name in names if getattr(settings, name) != fields[name].default]
