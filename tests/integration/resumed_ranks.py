"""Stop and go on with one run on two processes.

Started by `accelerate launch` in `test_kills`: resumed_ranks.py FOLDER STOPS OVERRIDE...
STOPS are steps, as 1,4; `-` runs it without a stop.
"""

import os
import sys
from pathlib import Path

from grpo_exp import worker
from grpo_exp.rundir import RunDirectory
from unit.resume.small_run import StopsItself, start


def main() -> None:
    """Run once for each stop, then to the end."""
    folder, stops, *words = sys.argv[1:]
    words += ["launch=ddp", "launch.num_processes=2", "trainer.per_device_train_batch_size=2"]
    is_main = os.environ["RANK"] == "0"
    worker._draw = lambda *_: None
    for stop in [*([] if stops == "-" else map(int, stops.split(","))), None]:
        worker.MainObserver = type("StopsItself", (StopsItself,), {"after": stop})  # pyright: ignore
        adopted = start(Path(folder), *words) if is_main else None
        path = worker.broadcast_from_main(None if adopted is None else str(adopted.directory.path))
        worker.run_worker(RunDirectory(Path(path)))
        worker.broadcast_from_main(None)  # the result has been written
        if adopted is not None:
            adopted.end()


if __name__ == "__main__":
    main()
