"""Stands in for `sweep run-point SWEEP INDEX`: takes steps, obeys STOP, returns 85 and goes on where it was.

What it does stands in `behaviour.json` of the sweep: `steps`, `seconds` of a step, and by index `ends_with` (an exit
code at once); `deaf` makes it stop for nothing. It sleeps and does not compute.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from grpo_exp.run_lock import Lock
from grpo_exp.rundir import RunDirectory, write_json


def run(sweep: Path, index: int) -> int:
    """Run a point to its end or to a request, and return the exit code."""
    entry = json.loads((sweep / "manifest.jsonl").read_text().splitlines()[index])
    behaviour = json.loads((sweep / "behaviour.json").read_text())
    directory = RunDirectory(sweep / entry["run_directory"])
    directory.path.mkdir(exist_ok=True)
    told = {name: value for name, value in os.environ.items() if name.startswith("GRPO_EXP_VLLM_")}
    record = {"node": os.environ["SLURMD_NODENAME"], "words": sys.argv[1:], "environ": told}
    with (directory.path / "starts.jsonl").open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    if str(index) in behaviour.get("ends_with", {}):
        return int(behaviour["ends_with"][str(index)])
    directory.stop_file.unlink(missing_ok=True)
    if behaviour.get("deaf"):  # as one that waits for a server that is gone
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        time.sleep(600)
    signal.signal(signal.SIGTERM, lambda number, frame: directory.stop_file.touch())
    lock = Lock(directory.lock)
    lock.acquire()
    try:
        return take_steps(directory, int(behaviour["steps"]), float(behaviour["seconds"]))
    finally:
        lock.release()


def take_steps(directory: RunDirectory, last: int, seconds: float) -> int:
    """Take the steps that are left; each is one line of `steps.txt`."""
    path = directory.path / "steps.txt"
    done = len(path.read_text().splitlines()) if path.exists() else 0
    code = 0
    with path.open("a", buffering=1) as stream:
        for step in range(done + 1, last + 1):
            time.sleep(seconds)
            stream.write(f"{step}\n")
            if directory.stop_file.exists() and step < last:
                code = 85
                break
    status = "stopped" if code else "completed"
    result = {"status": status, "resumable": bool(code), "reason": status, "exit_code": code, "steps": step, "eval": {}}
    write_json(directory.result, {**result, "wall_seconds": 1.0})
    return code


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), int(sys.argv[2])))
