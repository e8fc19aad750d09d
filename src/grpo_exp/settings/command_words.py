"""Faults in the words after the command, and in what Hydra makes of them: what was given, the rule, the fix.

Hydra stops at the first fault that it meets. What a word shows by itself (its spelling, the name of an option) is
looked at here before Hydra sees it, so that these faults are told together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException

from grpo_exp.errors import ConfigError
from grpo_exp.settings.faults import nearest, unknown_key

#: Groups that need not be chosen.
_OPTIONAL_GROUPS = {"experiment"}
#: A group of which a run may take several options, and the option that stands for none of them.
_SEVERAL, _NONE = "tracker", "none"
#: Mappings that are empty until the user adds keys of their own, and what these are.
_OWN_KEYS = {"trainer.extra": "a field of TRL", "tracker.tags": "a tag"}
#: `+sweeps=NAME`: a group that no run has by itself.
_ADDED_GROUP = "sweeps"


def check_words(words: Sequence[str], groups: Mapping[str, Sequence[str]]) -> None:
    """Check spelling and options of `key=value` words.

    Args:
        words: As typed, without switches.
        groups: Config groups and their options.

    Raises:
        ConfigError: All faults that a word shows by itself.
    """
    parser = OverridesParser.create()
    faults = []
    for word in words:
        try:
            override = parser.parse_override(word)
        except HydraException:  # it has several kinds for one thing: the word cannot be read
            faults.append(_unreadable(word))
            continue
        if not override.key_or_group:
            faults.append(f"{word}: is not of the form key=value; write KEY=VALUE")
        elif override.key_or_group in groups and override.package is None:
            faults += _option_faults(word, override, groups[override.key_or_group])
    if faults:
        raise ConfigError(faults)


def _unreadable(word: str) -> str:
    key, equals, value = word.partition("=")
    if not equals:
        return f"{word}: is not of the form key=value; write {key}=VALUE"
    escaped = value.replace("'", "\\'")
    return (
        f"{word}: cannot be read; braces, quotes, colons and equals signs inside a value need quotes of their "
        f"own, inside the shell's: \"{key}='{escaped}'\""
    )


def _option_faults(word: str, override: Override, options: Sequence[str]) -> list[str]:
    """Look at a word that chooses an option of a group."""
    group = override.key_or_group
    is_added_group = group == _ADDED_GROUP
    if override.is_delete():
        return [] if group in _OPTIONAL_GROUPS else [f"{word}: a run needs one; choose {group}={_list(options)}"]
    if override.is_add() and not is_added_group:
        return [f"{word}: {group} is chosen already, so the option replaces it; drop the '+': {word.lstrip('+')}"]
    if is_added_group and not (override.is_add() or override.is_force_add()):
        return [f"{word}: a sweep is added to a run, so it is marked with a plus: +{word}"]
    if override.is_sweep_override():
        values = list(override.sweep_iterator()) if override.is_choice_sweep() else []
    else:
        values = [override.value()]
    if group == _SEVERAL:
        for together in values:
            if isinstance(together, list) and (not together or (_NONE in together and len(together) > 1)):
                return [f"{word}: {_NONE} means no {group} at all; write {group}={_NONE} alone, or a list without it"]
        values = [option for together in values for option in (together if isinstance(together, list) else [together])]
    return [fault for value in values if (fault := _option_fault(word, group, value, options)) is not None]


def _option_fault(word: str, group: str, value: Any, options: Sequence[str]) -> str | None:
    if value is None and group in _OPTIONAL_GROUPS:
        return f"{word}: no {group} is the default; leave the word out"
    if not isinstance(value, str) and str(value) not in options:
        several = f"--multirun {group}={','.join(map(str, value))}" if isinstance(value, list) else None
        fix = f"for several runs {several}" if several else f"choose {group}={_list(options)}"
        return f"{word}: {group} takes the name of one option; {fix}"
    text = str(value)
    if text in options:
        return None
    close = nearest(text, options, cutoff=0.4)
    hint = f"did you mean {group}={close}? " if close else ""
    return f"{group}={text}: there is no such option; {hint}options of {group}: {_list(options)}"


def _list(options: Sequence[str]) -> str:
    return ", ".join(options)


# --------------------------------------------------------------------- faults that Hydra finds, one at a time


def explain(
    error: BaseException,
    words: Sequence[str],
    groups: Mapping[str, Sequence[str]],
    siblings: Callable[[str], tuple[str, Sequence[str]]],
) -> ConfigError:
    """Say what is wrong, the rule and the fix for a fault that Hydra found.

    Args:
        error: What Hydra raised.
        words: The words that were typed after the command.
        groups: Config groups and their options.
        siblings: Returns, for a path, its deepest part that does not exist and the names that exist beside it.
    """
    text = str(error)
    if isinstance(error, OSError):
        return ConfigError(
            f"hydra.sweep.dir: {error.filename} cannot be made ({error.strerror}); choose another folder with "
            "output_dir=FOLDER"
        )
    if isinstance(error, ConfigCompositionException):
        known = _ambiguous_value(text, words, groups) or _known_composition_fault(text, words, siblings)
        if known is not None:
            return ConfigError(known)
    first = " ".join(line.strip() for line in text.splitlines()[:2] if line.strip())
    where = "" if isinstance(error, HydraException) else f"{' '.join(words)}: "
    return ConfigError(f"{where}{first}; see --help for the groups and --cfg job for the settings")


def _ambiguous_value(text: str, words: Sequence[str], groups: Mapping[str, Sequence[str]]) -> str | None:
    if "Ambiguous value for argument" not in text:
        return None
    word = next((o for o in words if "," in o), "")
    key, _, value = word.partition("=")
    if key == _SEVERAL:
        return f"{word}: write '{key}=[{value}]' for all of them, or add --multirun for a run of each"
    if key in groups:
        return f"{word}: {key} takes the name of one option; add --multirun for a run of each"
    return f"{word}: is a list or several runs; write '{key}=[{value}]' for a list, or add --multirun for runs"


def _known_composition_fault(
    text: str, words: Sequence[str], siblings: Callable[[str], tuple[str, Sequence[str]]]
) -> str | None:
    match = re.search(r"Could not append to config\. An item is already at '([^']+)'", text)
    if match:
        key = match.group(1)
        word = next((o for o in words if o.lstrip("+").startswith(f"{key}=")), f"+{key}=...")
        return f"{word}: {key} exists already; drop the '+': {word.lstrip('+')}"
    match = re.search(r"Could not override '([^']+)'", text) or re.search(
        r"Could not delete from config\. '([^']+)' does not exist", text
    )
    if match is None:
        return None
    key = match.group(1)
    for mapping, what in _OWN_KEYS.items():
        if key.startswith(f"{mapping}."):
            given = next((o for o in words if o.startswith(f"{key}=")), f"{key}=VALUE")
            return f"{given}: {mapping} is empty, so {what} is added to it; write +{given}"
    if key.startswith("hydra."):
        return f"{key}: Hydra has no such setting; see --cfg hydra for its settings"
    missing, names = siblings(key)
    if missing.rpartition(".")[2] in names:  # it is there; what it was given has keys that are not
        given = next((o for o in words if o.startswith(f"{key}=")), f"{key}={{...}}")
        return (
            f"{given}: a group is merged with what it is given, and a key in there is new; write each new key by "
            f"itself, with a plus: '+{key}.KEY=VALUE'"
        )
    return unknown_key(missing, names)


def list_groups(folder: Path) -> dict[str, list[str]]:
    """Return the config groups in a folder, each with its options; a group inside another one is `OUTER/INNER`."""
    groups = {file.parent.relative_to(folder).as_posix() for file in folder.rglob("*.yaml")} - {"."}
    return {group: sorted(file.stem for file in (folder / group).glob("*.yaml")) for group in sorted(groups)}
