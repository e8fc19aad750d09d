"""Stands in for `vllm serve MODEL ...` on a node of SLURM: writes down how it was called, and answers.

The sweep's `behaviour.json` may hold `server_lives`: seconds until it ends by itself, and `serves`: another name.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from stub_server import Answers, build_server


def main(words: list[str]) -> None:
    """Serve until it is ended."""
    sweep = Path(os.environ["STUB_SWEEP"])
    behaviour = json.loads((sweep / "behaviour.json").read_text())
    record = {"words": words, "dev_mode": os.environ.get("VLLM_SERVER_DEV_MODE"), "node": os.environ["SLURMD_NODENAME"],
              "pid": os.getpid()}  # fmt: skip
    with (sweep / "servers.jsonl").open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    if behaviour.get("server_lives") == 0:
        sys.exit(1)
    if "server_lives" in behaviour:
        threading.Timer(behaviour["server_lives"], lambda: os._exit(1)).start()
    if "--headless" in words:
        time.sleep(600)
        return
    answers = Answers(behaviour.get("serves", words[1]))
    port = int(words[words.index("--port") + 1])
    build_server(answers.to, host="0.0.0.0", port=port).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
