"""Real servers for tests of the trackers: MLflow on loopback over SQLite or PostgreSQL, and one that never answers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class MlflowServer:
    """A server that can be stopped and started again over the same store."""

    def __init__(self, folder: Path, store: str) -> None:
        self._folder = folder
        self._store = store
        self._port = free_port()
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it answers."""
        command = [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self._port),
            "--workers", "1", "--backend-store-uri", self._store, "--artifacts-destination", str(self._folder / "art"),
        ]  # fmt: skip
        environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, env=environment, start_new_session=True
            )
        deadline = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < deadline, (self._folder / "server.log").read_text()
            time.sleep(0.2)

    def stop(self) -> None:
        """End it at once, with what it was doing."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """Run a PostgreSQL of our own and yield the URI of an empty database.

    As root its programs run as the user `postgres`, since they refuse to be root. So its folder is none of pytest's,
    which only their owner may enter.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin")) or [Path(shutil.which("initdb") or "").parent]
    if not (found[-1] / "initdb").exists():
        pytest.fail("this test needs PostgreSQL; on Debian and Ubuntu: apt-get install postgresql")
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    port = free_port()

    def call(program: str, *words: str) -> None:
        command = [*user, str(found[-1] / program), *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    with tempfile.TemporaryDirectory(prefix="grpo-exp-postgresql-") as folder:
        if user:
            shutil.chown(folder, "postgres")
        data = str(Path(folder) / "data")
        call("initdb", "-D", data, "-A", "trust", "-U", "tester", "--no-sync")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"
        call("pg_ctl", "-D", data, "-l", str(Path(folder) / "log"), "-w", "-o", options, "start")
        try:
            call("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "tester", "curves")
            yield f"postgresql://tester@127.0.0.1:{port}/curves"
        finally:
            call("pg_ctl", "-D", data, "-m", "immediate", "stop")


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """Yield the address of a server that accepts connections and never says a word."""
    kept: list[socket.socket] = []
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(50)

        def accept() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:  # it was closed
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)
    for connection in kept:
        connection.close()


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a file system of a few hundred kilobytes; where that is not allowed the test is skipped, and says so."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"NOT TESTED: a full disk needs a mount, which only root may do: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
