"""What a sweep file says besides its axes: `hydra.sweeper.{hold,paired,skip_if,on_invalid,instead}`."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from grpo_exp.errors import ConfigError
from grpo_exp.settings.base import FilledText, NoneText, Settings
from grpo_exp.settings.faults import describe_faults, unknown_key

SettingsT = TypeVar("SettingsT", bound=Settings)

#: A key of `skip_if` that is no condition.
BECAUSE = "because"
_COMPARISON = re.compile(r"(>=|<=|!=|>|<)\s*([^<>=!\s].*)")
_OPERATORS = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}


class SweepRules(Settings):
    """Constraints between the axes of a sweep."""

    hold: Annotated[Literal["prompts_per_step", "completions_per_step"] | None, NoneText] = None
    """Size of a step that stays what the configuration says while algorithm.num_generations is swept."""
    paired: tuple[tuple[FilledText, ...], ...] = ()
    """Groups of axes that move together, value by value, instead of being crossed."""
    skip_if: tuple[dict[FilledText, Any], ...] = ()
    """Points to leave out: each entry holds conditions, setting -> value, and all of them must be met. A value may be a
    list (any of them) or a text such as '>8'; the key `because` holds the reason to show."""
    on_invalid: Literal["refuse", "skip"] = "refuse"
    """What a point that cannot be run means: the whole sweep is refused, or the point is left out and told."""
    dry_run: bool = False
    """Print the plan; write and start nothing."""
    instead: dict[FilledText, FilledText] = Field(default_factory=dict)
    """Sweep to name when the learning rates do not suit the model: model.kind -> name of the sweep."""

    @field_validator("paired")
    @classmethod
    def _pairs_are_disjoint(cls, value: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        seen: set[str] = set()
        for group in value:
            if len(group) < 2:
                raise ValueError(f"a pair of {len(group)} axes moves with nothing; name two axes or more")
            for key in group:
                if key in seen:
                    raise ValueError(f"{key} is named twice and can move with one group only; name it once")
                seen.add(key)
        return value

    @field_validator("skip_if")
    @classmethod
    def _has_conditions(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for entry in value:
            if not set(entry) - {BECAUSE}:
                raise ValueError(f"{entry} holds no condition and would leave out every point; add SETTING: VALUE")
        return value

    @field_validator("skip_if")
    @classmethod
    def _compares(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        """Refuse what looks like a comparison and is none: as a plain text it would never be met."""
        for path, wanted in ((path, wanted) for entry in value for path, wanted in entry.items() if path != BECAUSE):
            for one in wanted if isinstance(wanted, list) else [wanted]:
                if isinstance(one, dict):
                    raise ValueError(f"{path}: {one} is no value; write each setting by its whole name, {path}.KEY")
                if isinstance(one, str) and one.strip()[:1] in set("<>=!") and not _COMPARISON.fullmatch(one.strip()):
                    raise ValueError(
                        f"{path}: {one!r} is no comparison; write '>8', '>=8', '<8', '<=8', '!=8', or 8 alone for equal"
                    )
        return value


def check_settings(model: type[SettingsT], values: Mapping[str, Any], *, prefix: tuple[str, str]) -> SettingsT:
    """Check plain values of a group of Hydra's own settings, such as `hydra.launcher`.

    Raises:
        ConfigError: One message per fault, with the path a user would type.
    """
    outer, inner = prefix
    given = {key: value for key, value in values.items() if not key.startswith("_")}
    unknown = [key for key in given if key not in model.model_fields]
    if unknown:
        raise ConfigError([unknown_key(f"{outer}.{inner}.{key}", list(model.model_fields)) for key in unknown])
    data = {outer: {inner: given}}
    try:
        adapter = TypeAdapter(dict[str, dict[str, model]])  # pyright: ignore[reportInvalidTypeForm]
        return adapter.validate_python(data)[outer][inner]
    except ValidationError as error:
        raise ConfigError(describe_faults(error, data)) from error


def find_value(values: Mapping[str, Any], settings: Mapping[str, Any], path: str) -> Any:
    """Return what a point has at a path: the option of a group that words choose, or the value of a setting.

    Raises:
        ConfigError: There is no such setting, or it is a group that no word chooses.
    """
    if path in values:
        return values[path]
    node: Any = settings
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            raise ConfigError(
                f"hydra.sweeper.skip_if: {path} is no setting and no axis of this sweep; see --cfg job for the settings"
            )
        node = node[key]
    if isinstance(node, Mapping):
        raise ConfigError(
            f"hydra.sweeper.skip_if: {path} holds several settings and no word chooses an option of it; name one of "
            f"them, such as {path}.{next(iter(node), 'KEY')}, or add {path}=OPTION"
        )
    return node


def reason_to_skip(rules: SweepRules, values: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
    """Return why a point is left out, or None.

    Args:
        rules: Of the sweep.
        values: What the point has on the axes, and which options of groups were chosen.
        settings: All its settings, plain.

    Raises:
        ConfigError: A condition names no setting, or compares what is no number.
    """
    for entry in rules.skip_if:
        conditions = {path: wanted for path, wanted in entry.items() if path != BECAUSE}
        if all(_is_met(find_value(values, settings, path), wanted, path) for path, wanted in conditions.items()):
            told = ", ".join(f"{path}={_show(wanted)}" for path, wanted in conditions.items())
            return str(entry.get(BECAUSE) or f"skip_if {told}")
    return None


def _show(wanted: Any) -> str:
    return "|".join(map(str, wanted)) if isinstance(wanted, list) else str(wanted)


def _is_met(value: Any, wanted: Any, path: str) -> bool:
    if isinstance(wanted, list):
        return any(_is_met(value, one, path) for one in wanted)
    match = _COMPARISON.fullmatch(wanted.strip()) if isinstance(wanted, str) else None
    if match is None:
        return _is_equal(value, wanted)
    sign, text = match.groups()
    if sign == "!=":
        return not _is_equal(value, text)
    limit, number = _to_number(text), _to_number(value)
    if limit is None:
        raise ConfigError(
            f"hydra.sweeper.skip_if: {path}: {wanted!r} compares with what is no number; write for example '>8'"
        )
    return number is not None and _OPERATORS[sign](number, limit)


def _is_equal(value: Any, wanted: Any) -> bool:
    """Compare as a user reads them: 8 and '8', 1e-6 and 0.000001, false and False are the same."""
    if isinstance(value, bool) or isinstance(wanted, bool) or value is None or wanted is None:
        return _plain(value) == _plain(wanted)
    left, right = _to_number(value), _to_number(wanted)
    return left == right if left is not None and right is not None else str(value) == str(wanted)


def _plain(value: Any) -> str:
    return "null" if value is None else str(value).lower()


def _to_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
