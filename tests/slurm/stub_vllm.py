"""Stands in for `vllm serve MODEL ...`: writes down how it was called, and answers `GET /v1/models`.

The sweep's `behaviour.json` may hold `server_lives`: seconds until it ends by itself, and `serves`: another name.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


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
    model = behaviour.get("serves", words[1])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"data": [{"id": model}]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    HTTPServer(("0.0.0.0", int(words[words.index("--port") + 1])), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
