"""Stands in for vLLM's HTTP server: answers what a trainer asks of it before it trains, as vLLM 0.31 does.

As a program, `python stub_server.py serve MODEL ... --host H --port P ...` takes vLLM's place in `vllm.serve_command`.
The environment variable STUB_VLLM may hold JSON: `record` (a file: how it was called), `loads` (seconds until it
answers), `lives` (seconds until it ends by itself, with exit code 7), `serves` (another model), `deaf` (no end at
SIGTERM), and the arguments of `Answers`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

Answer = tuple[int, str]


@dataclass(frozen=True)
class Answers:
    """What a server says about itself; the defaults are those of one that was started as the trainer needs it."""

    model: str
    length: int = 4096
    dev_mode: bool = True
    takes_weights: bool = True
    logprobs_mode: str = "processed_logprobs"

    def to(self, path: str) -> Answer:
        """Return status and body."""
        if path == "/health":
            return 200, ""
        if path == "/v1/models":
            entry = {"id": self.model, "object": "model", "root": self.model, "max_model_len": self.length}
            return 200, json.dumps({"object": "list", "data": [entry]})
        if path.startswith("/server_info") and self.dev_mode:
            config = {"model_config": {"model": self.model, "logprobs_mode": self.logprobs_mode},
                      "weight_transfer_config": {"backend": "nccl"} if self.takes_weights else None}  # fmt: skip
            return 200, json.dumps({"vllm_config": config, "vllm_env": {}, "system_env": {}})
        return 404, '{"detail":"Not Found"}'


def build_server(answer: Callable[[str], Answer | None], *, host: str = "127.0.0.1", port: int = 0) -> HTTPServer:
    """Return a server that has begun to listen.

    Args:
        answer: From the path to status and body; None closes the connection without a word.
        host: To listen on.
        port: To listen on; 0 is a free one.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = answer(self.path)
            if told is None:
                return
            self.send_response(told[0])
            self.end_headers()
            self.wfile.write(told[1].encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    return HTTPServer((host, port), Handler)


def main(words: list[str]) -> None:
    """Serve until it is ended."""
    behaviour = json.loads(os.environ.get("STUB_VLLM", "{}"))
    if "record" in behaviour:
        call = {"words": words, "pid": os.getpid(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
                "dev_mode": os.environ.get("VLLM_SERVER_DEV_MODE")}  # fmt: skip
        with Path(behaviour["record"]).open("a") as stream:
            stream.write(json.dumps(call) + "\n")
    if behaviour.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "lives" in behaviour:
        timer = threading.Timer(behaviour["lives"], lambda: os._exit(7))
        timer.daemon = True
        timer.start()
    time.sleep(behaviour.get("loads", 0))
    own = {name: behaviour[name] for name in Answers.__dataclass_fields__ if name in behaviour}
    answers = Answers(**{"model": behaviour.get("serves", words[1]), **own})
    host, port = (words[words.index(name) + 1] for name in ("--host", "--port"))
    build_server(answers.to, host=host, port=int(port)).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
