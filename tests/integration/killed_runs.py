"""Kill one run again and again at random moments, each time a little further, and let the last start end it.

Started by `test_kills`: killed_runs.py FOLDER SEED COUNT OVERRIDE... Libraries are loaded once: each start is a fork.
Prints one JSON object for each start: when it was killed, and what it went on from.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from grpo_exp import worker
from grpo_exp.backends.trl import checkpointing, training  # noqa: F401 - loaded before the forks
from grpo_exp.rundir import RunDirectory, read_events
from unit.resume.small_run import run


def start(folder: Path, words: list[str]) -> int:
    """Start or go on with the run in a process of its own, and return its number."""
    child = os.fork()
    if child:
        return child
    with (folder / "worker.log").open("a") as log, contextlib.redirect_stderr(log), contextlib.redirect_stdout(log):
        worker._draw = lambda *_: None
        run(folder / "killed", *words)
    os._exit(0)


def wait_for_steps(folder: Path, count: int) -> None:
    """Wait until the run has logged so many more rows: moments must not depend on how busy the machine is."""
    before, end = rows_of(folder), time.monotonic() + 120
    while rows_of(folder) < before + count:
        if time.monotonic() > end:
            sys.exit(f"no {count} rows in two minutes")
        time.sleep(0.01)


def rows_of(folder: Path) -> int:
    """Count the rows of the run's curves; a restart that cuts them off makes them fewer."""
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("killed/*/*/metrics.jsonl"))


def main() -> None:
    """Kill COUNT starts, at moments that are spread over a start and some steps; then run to the end."""
    folder, words = Path(sys.argv[1]), sys.argv[4:]
    draws, count = random.Random(int(sys.argv[2])), int(sys.argv[3])
    torch.set_num_threads(1)
    for number in range(count + 1):
        begun, child = time.monotonic(), start(folder, words)
        if number < count:
            wait_for_steps(folder, draws.randrange(6))
            time.sleep(draws.uniform(0.0, 0.2))
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        configs = list(folder.glob("killed/*/*/config.json"))
        events = read_events(RunDirectory(configs[0].parent)) if configs else []
        resumes = [event["text"] for event in events if event["kind"] in {"resume", "restart"}]
        facts = {"seconds": round(time.monotonic() - begun, 2), "status": status, "last": resumes[-1:]}
        if configs:
            store = configs[0].parent / "checkpoints"
            facts["partial"] = (store / ".partial").exists()
            facts["checkpoints"] = sorted(path.name for path in store.glob("checkpoint-*"))
        print(json.dumps(facts), flush=True)
        if status == 0:
            return
    sys.exit("the last start did not end")


if __name__ == "__main__":
    main()
