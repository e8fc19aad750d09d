"""Look after a sweep: `grpo-exp sweep status|resume|retry|cancel|run-point SWEEP ...`.

SWEEP is the folder that the multirun printed, or its name below outputs/sweeps.

  status SWEEP [--json] [--all]   how the runs stand; --all names every one, --json tells all there is to know
  resume SWEEP [--KEY=VALUE]      start what is missing, stopped, lost or cancelled; as the multirun command again does
  retry SWEEP [--KEY=VALUE]       start the failed ones, too, and those that a health rule ended
  cancel SWEEP [--wait=60]        stop what runs, start nothing more until it is resumed
  run-point SWEEP INDEX           run one of them here; what launchers start
     [--attempt=N]                  only if that is still its newest attempt
     [--wait=SECONDS]               wait for an owner that may be gone
     [--cores=0,1]                  stay on these cores
--KEY=VALUE changes a setting of the launcher, such as --slots=2. Exit codes: 0 all done, 1 a run failed, 2 wrong words,
3 a health rule ended one, 85 some are not done; run-point also 4: nothing done, another process has the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.settings.faults import did_you_mean
from grpo_exp.sweeps.finding import find_sweep
from grpo_exp.sweeps.operations import cancel, start, statuses_of
from grpo_exp.sweeps.states import TO_RESUME, TO_RETRY
from grpo_exp.sweeps.status_text import describe_status, to_json

#: Seconds that `cancel` waits for runs to finish their step.
_CANCEL_WAIT = "60"


@dataclass(slots=True)
class _Words:
    """What was typed after the action."""

    names: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)


def main(words: Sequence[str]) -> int:
    """Do what the first word says.

    Raises:
        ConfigError: A word is wrong, or the sweep is not there.
    """
    if not words:
        print(__doc__)
        return ExitCode.COMPLETED
    action, rest = words[0], _sort_out(words[1:])
    if action not in _ACTIONS:
        hint = did_you_mean(action, list(_ACTIONS))
        raise ConfigError(f"sweep {action}: is none of {', '.join(_ACTIONS)}{hint}")
    return int(_ACTIONS[action](rest))


def _sort_out(words: Sequence[str]) -> _Words:
    """Tell names from options; a value may stand in the next word, as in `--attempt 2`."""
    sorted_out, waiting = _Words(), ""
    for word in words:
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            sorted_out.options[key] = value
            waiting = key if not equals and key not in {"json", "all"} else ""
        elif waiting:
            sorted_out.options[waiting], waiting = word, ""
        else:
            sorted_out.names.append(word)
    return sorted_out


def _expect(words: _Words, num_names: int, usage: str, *, options: Sequence[str] | None = None) -> None:
    unknown = [] if options is None else [key for key in words.options if key not in options]
    if len(words.names) != num_names or unknown:
        what = f"--{unknown[0]} is none of its options" if unknown else f"{num_names} word(s) are wanted"
        raise ConfigError(f"sweep {usage}: {what}; grpo-exp sweep --help shows the form")


def _status(words: _Words) -> int:
    _expect(words, 1, "status SWEEP", options=("json", "all"))
    sweep = find_sweep(words.names[0])
    statuses = statuses_of(sweep)
    if "json" in words.options:
        print(json.dumps(to_json(sweep, statuses)))
        return ExitCode.COMPLETED
    console = build_console()
    for line in describe_status(sweep, statuses, every="all" in words.options):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return ExitCode.COMPLETED


def _resume(words: _Words) -> int:
    _expect(words, 1, "resume SWEEP")
    return start(find_sweep(words.names[0]), TO_RESUME, build_console(), changed=words.options)


def _retry(words: _Words) -> int:
    _expect(words, 1, "retry SWEEP")
    return start(find_sweep(words.names[0]), TO_RETRY, build_console(), changed=words.options)


def _cancel(words: _Words) -> int:
    _expect(words, 1, "cancel SWEEP", options=("wait",))
    sweep = find_sweep(words.names[0])
    done = cancel(sweep, wait_seconds=_number(words.options.get("wait", _CANCEL_WAIT), "wait"))
    print(f"{done.num_marked} runs are cancelled until grpo-exp sweep resume {sweep.path}")
    if done.num_running:
        print(f"{done.num_running} of them are still finishing their step; look again with grpo-exp sweep status")
        return ExitCode.FAILED
    return ExitCode.COMPLETED


def _run_point(words: _Words) -> int:
    # The front end of a run, only where one is run.
    from grpo_exp.point_run import Terms, run_point

    _expect(words, 2, "run-point SWEEP INDEX", options=("attempt", "wait", "cores"))
    options = words.options
    terms = Terms(
        attempt=int(_number(options["attempt"], "attempt")) if "attempt" in options else None,
        wait_seconds=_number(options.get("wait", "0"), "wait"),
        cores=tuple(int(_number(core, "cores")) for core in options["cores"].split(",")) if "cores" in options else (),
    )
    index = int(_number(words.names[1], "INDEX"))
    return run_point(find_sweep(words.names[0]), index, terms, build_console())


def _number(text: str, name: str) -> float:
    if not text.isdecimal():
        raise ConfigError(f"sweep {name}={text}: a number is wanted; for example {name}=0")
    return float(text)


_ACTIONS: Mapping[str, Callable[[_Words], int]] = {
    "status": _status,
    "resume": _resume,
    "retry": _retry,
    "cancel": _cancel,
    "run-point": _run_point,
}
