"""List all settings with values, defaults and meaning: `grpo-exp settings [GROUP]`, as Markdown.

docs/settings.md is what it prints without a group. Defaults are those of the settings themselves; an option of a group
may have others, which `python -m grpo_exp.train GROUP=OPTION --cfg job` shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.settings.faults import did_you_mean
from grpo_exp.settings.fields import models_of
from grpo_exp.settings.reference import build_reference
from grpo_exp.settings.run import RunSettings

HEAD = """# Settings

Every setting of a run: where it is typed (`python -m grpo_exp.train KEY=VALUE`), what it may be, its default, and what
it means. Printed by `grpo-exp settings`, out of the settings' own source. An option of a group may have another
default: `python -m grpo_exp.train GROUP=OPTION --cfg job` shows the values that a run would have. Where no default
stands, the option of the group gives one, or you must.

"""


def main(words: Sequence[str]) -> int:
    """Print the reference.

    Raises:
        ConfigError: There is no such group.
    """
    groups = [name for name, field in RunSettings.model_fields.items() if models_of(field.annotation)]
    if len(words) > 1 or any(word not in groups for word in words):
        hint = did_you_mean(words[0], groups) if words else ""
        raise ConfigError(f"Usage: grpo-exp settings [GROUP], where GROUP is one of {', '.join(groups)}{hint}")
    print(build_reference(RunSettings, only=words[0]) if words else reference(), end="")
    return ExitCode.COMPLETED


def reference() -> str:
    """Return the text of docs/settings.md."""
    return HEAD + build_reference(RunSettings)
