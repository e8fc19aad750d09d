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
        code = _run_under_launcher(words) if _started_by_a_launcher() and not _only_looks(words) else _run(words)
    except ConfigError as error:
        _print_faults(error)
        code = ExitCode.WRONG_CONFIG
    except KeyboardInterrupt:  # before or after the workers: while they run, signals are heeded
        print("interrupted", file=sys.stderr)
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


def _run(words: list[str]) -> int:
    """Run once, or hand over to Hydra what only Hydra does: its switches, its own settings and several runs.

    Hydra's `main` composes everything twice, to find out how many runs are wanted; once is enough for one run.
    """
    from grpo_exp.settings import load

    if not any(word.startswith(("-", "hydra.", "+hydra.", "++hydra.", "~hydra.", "hydra/")) for word in words):
        config = load.compose_one(words)
        if config is not None:
            return _run_one(config, words)
    return _run_with_hydra(words)


def _run_one(config: Any, overrides: list[str]) -> int:
    from grpo_exp.composition import build_request
    from grpo_exp.console import build_console
    from grpo_exp.sft_run import run_primed

    request = build_request(config, overrides)
    if request.settings.launch.num_nodes > 1:
        from grpo_exp.several_nodes import become_launcher

        become_launcher(request.settings, overrides)
    return run_primed(request, overrides, build_console())


def _run_with_hydra(words: list[str]) -> int:
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import DictConfig

    from grpo_exp.settings import load
    from grpo_exp.sweeps.request import SweepAskedFor

    composed: list[tuple[DictConfig, list[str]]] = []

    @hydra.main(config_path=str(paths.config_dir()), config_name="train", version_base="1.3")
    def compose(config: DictConfig) -> None:
        composed.append((config, list(HydraConfig.get().overrides.task)))

    # Hydra catches what is raised inside and exits with 1; this switch hands the exceptions to us.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["grpo_exp.train", *words]
    load.announce_sweeps()
    try:
        with load.explained(words, with_switches=True):
            compose()
    except SweepAskedFor as sweep:
        from grpo_exp.console import build_console
        from grpo_exp.sweeps.multirun import run_multirun

        return run_multirun(sweep.request, build_console())
    # Outside of Hydra, which makes its own of what is raised inside. Nothing is composed where a switch only looks.
    return _run_one(*composed[0]) if composed else int(ExitCode.COMPLETED)


# ------------------------------------------------------- started by `accelerate launch -m grpo_exp.train ...`


#: What a launcher of several processes sets; single ones of them are left over in many shells.
_LAUNCHER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _started_by_a_launcher() -> bool:
    """Say whether this is one of several workers; one process alone starts its worker by itself as ever."""
    return all(os.environ.get(name) for name in _LAUNCHER) and os.environ["WORLD_SIZE"].isdecimal()


def _only_looks(words: Sequence[str]) -> bool:
    return bool({"--help", "-h", "--cfg", "-c", "--info", "-i"} & {word.partition("=")[0] for word in words})


def _run_under_launcher(words: list[str]) -> int:
    """Run inside worker processes that somebody else started: rank 0 composes, the others wait for it."""
    if any(word in _MULTIRUN or word.startswith("+sweeps=") for word in words):
        raise ConfigError(
            "--multirun: cannot run inside accelerate launch, which started one set of workers; start it as "
            "python -m grpo_exp.train --multirun ..."
        )
    from grpo_exp.joined import run_joined

    return run_joined(words, world_size=int(os.environ["WORLD_SIZE"]))


if __name__ == "__main__":
    main()
