"""Where the server of a run listens: what is set, or what stands in the run's folder."""

from __future__ import annotations

import json
from collections.abc import MutableMapping

from grpo_exp.rundir import RunDirectory, write_json
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.vllm import ServerVllm

_FIELDS = ("server_host", "server_port", "group_port")
_LOCAL = "127.0.0.1"


def server_url(vllm: ServerVllm) -> str:
    """Return the address of a server whose place is known, without a slash at its end."""
    return (vllm.server_base_url or f"http://{vllm.server_host}:{vllm.server_port}").rstrip("/")


def write_place(directory: RunDirectory, vllm: ServerVllm) -> None:
    """Tell the workers of the newest attempt where their server is, and which port is theirs."""
    write_json(directory.server_place, {name: getattr(vllm, name) for name in _FIELDS})


def placed(settings: RunSettings, directory: RunDirectory) -> RunSettings:
    """Return settings that name the server of the newest attempt; as they are where none was found for it."""
    if settings.vllm.mode != "server" or not directory.server_place.is_file():
        return settings
    place = json.loads(directory.server_place.read_text())
    vllm = settings.vllm.model_copy(update={name: place[name] for name in _FIELDS})
    return settings.model_copy(update={"vllm": vllm})


def tell_address(directory: RunDirectory, *, host: str, port: int) -> None:
    """Write down where the run's own server listens, once it is ready."""
    write_json(directory.server, {"host": host, "port": port})


def read_address(directory: RunDirectory) -> tuple[str, int] | None:
    """Return host and port of the run's own server as they were told last, or None."""
    try:
        told = json.loads(directory.server.read_text())
    except FileNotFoundError:
        return None
    return str(told["host"]), int(told["port"])


def reach_directly(vllm: ServerVllm, environ: MutableMapping[str, str]) -> None:
    """Keep TRL's client from asking a proxy of the cluster for a server on one of its own nodes."""
    if vllm.server_base_url is not None:
        return
    for name in ("no_proxy", "NO_PROXY"):
        environ[name] = ",".join(filter(None, [environ.get(name, ""), vllm.server_host, _LOCAL, "localhost"]))
