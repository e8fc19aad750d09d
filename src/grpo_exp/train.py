"""The main command: `python -m grpo_exp.train GROUP=OPTION key=value ...`.

Composes and checks the settings, writes the run directory and starts the workers. Neither torch nor TRL is
imported before that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from grpo_exp import paths
from grpo_exp.errors import ConfigError, ExitCode

#: Hydra's switches that start more than one run.
_MULTIRUN = ("--multirun", "-m")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with the code that the README lists."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        code = _run_under_launcher(words) if _started_by_a_launcher() else _run_with_hydra(words)
    except ConfigError as error:
        _print_faults(error)
        code = ExitCode.WRONG_CONFIG
    except KeyboardInterrupt:  # before the workers were started: there is nothing to stop
        print("stopped before anything was started", file=sys.stderr)
        code = ExitCode.FAILED
    except BrokenPipeError:  # the reader of `--cfg job | head` has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.COMPLETED
    sys.exit(int(code))


def _print_faults(error: ConfigError) -> None:
    count = len(error.faults)
    print(f"{'one fault' if count == 1 else f'{count} faults'}, nothing was started:", file=sys.stderr)
    for fault in error.faults:
        print(f"  {fault}", file=sys.stderr)


def _run_with_hydra(words: list[str]) -> int:
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import DictConfig

    from grpo_exp.settings import load

    codes: list[int] = []
    started: list[bool] = []

    @hydra.main(config_path=str(paths.config_dir()), config_name="train", version_base="1.3")
    def task(config: DictConfig) -> int:
        started.append(True)
        try:
            codes.append(_run_one(config, list(HydraConfig.get().overrides.task)))
        except ConfigError as error:  # told here: Hydra would add a line of its own, and end a multirun
            _print_faults(error)
            codes.append(int(ExitCode.WRONG_CONFIG))
        return codes[-1]

    # Hydra catches what its jobs raise and exits with 1; this switch hands the exceptions to us.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    load.announce_sweeps()
    sys.argv = ["grpo_exp.train", *words]
    try:
        task()
    except load.HYDRA_FAULTS as error:
        raise load.explain(error, words) from error
    except (ValueError, OSError) as error:
        if started:
            raise
        # Hydra's own: a group that is set to null or a number, a sweep folder that cannot be made.
        text = str(error).partition(chr(10))[0]
        raise ConfigError(f"{' '.join(words)}: {text}; see --help for the groups and their options") from error
    return max(codes, default=int(ExitCode.COMPLETED))


def _run_one(config: Any, overrides: list[str]) -> int:
    from grpo_exp.composition import build_request
    from grpo_exp.console import build_console
    from grpo_exp.runner import run

    return run(build_request(config, overrides), build_console())


# ------------------------------------------------------- started by `accelerate launch -m grpo_exp.train ...`


def _started_by_a_launcher() -> bool:
    return ("WORLD_SIZE" in os.environ and "RANK" in os.environ) or "ACCELERATE_MIXED_PRECISION" in os.environ


def _run_under_launcher(words: list[str]) -> int:
    """Run inside worker processes that somebody else started: rank 0 composes, the others wait for it."""
    if any(word in _MULTIRUN or word.startswith("+sweeps=") for word in words):
        raise ConfigError(
            "--multirun: cannot run inside accelerate launch, which started one set of workers; start it as "
            "python -m grpo_exp.train --multirun ..."
        )
    from grpo_exp.joined import run_joined

    return run_joined(words, world_size=int(os.environ.get("WORLD_SIZE", "1")))


if __name__ == "__main__":
    main()
