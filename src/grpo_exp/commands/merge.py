"""Write an adapter into its model, for all who load models: `grpo-exp merge RUN FOLDER [base=MODEL]`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode


def main(words: Sequence[str]) -> int:
    """Merge the adapter of a run, or of the folder that holds it.

    Raises:
        ConfigError: The words are wrong, or there is nothing to merge.
    """
    base = next((word.removeprefix("base=") for word in words if word.startswith("base=")), None)
    places = [word for word in words if not word.startswith("base=")]
    if len(places) != 2:
        raise ConfigError(f"grpo-exp merge {' '.join(words)}: two folders are wanted: merge RUN FOLDER [base=MODEL]")
    source, output = (Path(place).expanduser() for place in places)
    adapter = source / "model" if (source / "model" / "adapter_config.json").is_file() else source
    from grpo_exp.models.load import quiet_libraries  # torch, only now
    from grpo_exp.models.merging import merge_adapter

    quiet_libraries()
    merge_adapter(adapter, output, base=base)
    build_console().print(f"{output}: the model with its adapter; model=local model.path={output}", soft_wrap=True)
    return ExitCode.COMPLETED
