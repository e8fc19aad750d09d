"""Wait until a vLLM server answers, and make sure that it is the right one.

`python -m grpo_exp.sweeps.slurm.wait_for_server --url=http://HOST:PORT --model=NAME --timeout-seconds=N`. It is right
when `GET /v1/models` lists the model; another server on the port (of another job, on a shared node) does not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence

from grpo_exp.errors import ExitCode, RunError

_POLL_SECONDS = 2.0
_REQUEST_SECONDS = 10.0
_TOLD_EVERY_SECONDS = 60.0
# No proxy: the server is on a node of this job.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def wait_for_server(url: str, model: str, *, timeout_seconds: float, poll_seconds: float = _POLL_SECONDS) -> None:
    """Return as soon as the server answers and serves the model.

    Args:
        url: Without a path.
        model: As the server lists it.
        timeout_seconds: From now.
        poll_seconds: Between two questions.

    Raises:
        RunError: It serves other models, or did not answer in time.
    """
    deadline, told = time.monotonic() + timeout_seconds, time.monotonic()
    while True:
        served, why = _ask(f"{url}/v1/models")
        if served is not None:
            if model not in served:
                raise RunError(
                    f"{url}: serves {', '.join(served) or 'nothing'} and {model} is wanted; another server listens "
                    "there, or --served-model-name in hydra.launcher.vllm_options hides it: leave that out"
                )
            return
        now = time.monotonic()
        if now >= deadline:
            raise RunError(
                f"{url}: did not answer within {timeout_seconds:.0f} s ({why}); read what vLLM printed above, or raise "
                "hydra.launcher.server_timeout_seconds"
            )
        if now - told > _TOLD_EVERY_SECONDS:
            told = now
            print(f"waiting for {url}: {why}", flush=True)
        time.sleep(poll_seconds)


def _ask(address: str) -> tuple[list[str] | None, str]:
    """Return the names of the models, or None and why there are none yet."""
    try:
        with _OPENER.open(address, timeout=_REQUEST_SECONDS) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        return None, f"HTTP status {error.code}"
    except OSError as error:  # refused, unreachable, slow: it is loading
        return None, str(error)
    try:
        return [str(entry["id"]) for entry in json.loads(body)["data"]], ""
    except (ValueError, KeyError, TypeError) as error:
        return None, f"an answer that is no list of models ({type(error).__name__})"


def main(words: Sequence[str]) -> int:
    """Wait as the words say and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--timeout-seconds", type=float, required=True)
    given = parser.parse_args(words)
    try:
        wait_for_server(given.url, given.model, timeout_seconds=given.timeout_seconds)
    except RunError as error:
        print(error, file=sys.stderr)
        return ExitCode.FAILED
    print(f"{given.url}: serves {given.model}", flush=True)
    return ExitCode.COMPLETED


if __name__ == "__main__":
    sys.exit(int(main(sys.argv[1:])))
