"""Run with `checkpoints/` on a small file system. Started by `test_kills`: full_disk.py FOLDER SPARE.

FOLDER/small is the small file system. Prints how the run ended as JSON.
"""

import json
import sys
from pathlib import Path

from rich.console import Console

from grpo_exp import adoption, runner
from grpo_exp.checkpoints import writing
from grpo_exp.rundir import RunDirectory
from unit.resume.small_run import request


def main() -> None:
    """Link the folder in place of `checkpoints/`, fill the disk but for one and a half checkpoints, and run."""
    folder = Path(sys.argv[1])
    writing._SPARE = float(sys.argv[2])
    begin = adoption.continuation.begin

    def begin_on_small_disk(directory: RunDirectory, choice: object) -> int:
        directory.checkpoints.symlink_to(folder / "small")
        return begin(directory, choice)  # pyright: ignore

    adoption.continuation.begin = begin_on_small_disk  # pyright: ignore
    wanted = request(folder / "outputs", "trainer.checkpoint.every_steps=2", "trainer.eval_before=false")
    code = runner.run(wanted, Console(quiet=True))
    directory = RunDirectory(next(folder.glob("outputs/*/*/config.json")).parent)
    store = adoption.continuation.store_of(directory)
    print()
    print(
        json.dumps(
            {
                "code": code,
                "complete": [checkpoint.step for checkpoint in store.complete()],
                "left": sorted(path.name for path in store.folder.iterdir()),
                "result": directory.read_result(),
            }
        )
    )


if __name__ == "__main__":
    main()
