"""End a process at each file operation of a checkpoint's writing in turn, and tell what is complete afterwards.

Started by `test_killed_writes`: killed_writes.py FOLDER. Prints one JSON object a line: the number of the operation
before which the process was ended, the newest complete step, and what the next writer leaves.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from grpo_exp.checkpoints.choice import choose
from grpo_exp.checkpoints.store import CheckpointStore
from grpo_exp.checkpoints.writing import CheckpointWriter
from grpo_exp.settings.checkpoint import CheckpointSettings
from unit.resume.folder import FILES, IDENTITY

OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}
SETTINGS = CheckpointSettings(keep=1, best_metric=None)


def write(store: CheckpointStore, step: int) -> None:
    """Write a checkpoint, as all processes together do."""
    writer = CheckpointWriter(store, SETTINGS)
    writer.begin(20)
    folder = store.partial / f"checkpoint-{step}"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    writer.finish(step, {**IDENTITY, "metrics": {"bytes": 0, "lines": 0}})


def end_before(number: int, folder: Path) -> None:
    """End this process, as kill -9 does, before its file operation of this number below the folder."""
    seen = 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in OPERATIONS and isinstance(arguments[0], str | os.PathLike):
            seen += str(folder) in os.fspath(arguments[0])
            if seen == number:
                os._exit(137)

    sys.addaudithook(look)


def main() -> None:
    """Kill at operation 1, 2, 3 ... until a writer gets to its end."""
    root, number, status = Path(sys.argv[1]), 0, 137
    while status == 137:
        number += 1
        store = CheckpointStore(root / str(number))
        write(store, 4)
        child = os.fork()
        if child == 0:
            end_before(number, store.folder)
            write(store, 6)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = choose(store, root / "metrics.jsonl", IDENTITY).checkpoint
        write(store, 8)
        left = sorted(path.name for path in store.folder.iterdir())
        print(json.dumps({"number": number, "newest": None if found is None else found.step, "left": left}))


if __name__ == "__main__":
    main()
