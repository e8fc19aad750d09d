"""Stands for `grpo-exp sweep run-point SWEEP_DIR INDEX ...`: a run of steps that only wait.

What it does is told by the file `stub.json` in the sweep's folder: `steps`, `step_seconds`, `fails` (indices),
`ignores_stop`. To `stub.log` it appends its index, the cores and GPUs that it was given, and when it began and ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from grpo_exp.rundir import RunDirectory, begin_attempt, write_json


def main() -> int:
    action, folder, index, *options = sys.argv[1:]
    assert action == "run-point"
    sweep = Path(folder)
    told = json.loads((sweep / "stub.json").read_text())
    line = (sweep / "manifest.jsonl").read_text().splitlines()[int(index)]
    directory = RunDirectory(sweep / json.loads(line)["run_directory"])
    directory.path.mkdir(exist_ok=True)
    began = time.time()
    directory.lock.write_text(json.dumps(own_mark()))
    signal.signal(signal.SIGINT, lambda *_: directory.stop_file.touch())
    begin_attempt(directory)
    code = work(directory, told, fails=int(index) in told.get("fails", []))
    directory.lock.unlink()
    record = {
        "index": int(index), "options": options, "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "began": began, "ended": time.time(),
    }  # fmt: skip
    with (sweep / "stub.log").open("a") as stream:
        stream.write(f"{json.dumps(record)}\n")
    return code


def own_mark() -> dict[str, object]:
    """Return what the lock file of a live process holds."""
    import socket

    start = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    return {"host": socket.gethostname(), "pid": os.getpid(), "start": start}


def work(directory: RunDirectory, told: dict[str, float], *, fails: bool) -> int:
    result = {"status": "completed", "resumable": False, "reason": "all steps done", "exit_code": 0, "eval": {}}
    for step in range(1, int(told["steps"]) + 1):
        with directory.metrics.open("a") as stream:
            stream.write(json.dumps({"step": step, "time": time.time(), "metrics": {"train/reward": 0.5}}) + "\n")
        time.sleep(told["step_seconds"])
        if directory.stop_file.exists() and not told.get("ignores_stop"):
            result |= {"status": "stopped", "resumable": True, "reason": "stopped on request", "exit_code": 85}
            break
    if fails:
        result |= {"status": "failed", "reason": "RuntimeError: broken", "exit_code": 1}
    write_json(directory.result, {**result, "steps": step, "wall_seconds": step * told["step_seconds"]})
    return int(str(result["exit_code"]))


if __name__ == "__main__":
    sys.exit(main())
