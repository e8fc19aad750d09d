"""From settings to the text of a batch script."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from grpo_exp import paths
from grpo_exp.sweeps.slurm.directives import Chunk, build_directives
from grpo_exp.sweeps.slurm.settings import SlurmSettings

_TITLES = {
    "array": "An array of runs on one node each.",
    "multinode": "An array of runs on several nodes each: accelerate over srun.",
    "server": "An array of runs that have vLLM nodes of their own.",
}


def template_of(settings: SlurmSettings) -> str:
    """Return the template that the settings ask for: array, multinode or server."""
    if settings.server_nodes:
        return "server"
    return "multinode" if settings.nodes > 1 else "array"


def render_script(settings: SlurmSettings, folder: Path, chunk: Chunk) -> str:
    """Return a batch script for some points of a sweep.

    Args:
        settings: Of the launcher.
        folder: The sweep, absolute and without what `check_folder` refuses.
        chunk: The points.
    """
    name = template_of(settings)
    environment = Environment(
        loader=FileSystemLoader(paths.slurm_templates_dir()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{//",  # the usual one is bash's length of an array
        comment_end_string="//}",
        autoescape=False,  # bash and no HTML: values go through `quoted`
    )
    environment.filters["quoted"] = shlex.quote
    text = environment.get_template(f"{name}.sbatch.j2").render(
        title=_TITLES[name],
        settings=settings,
        directives=build_directives(settings, folder, array=chunk.array),
        folder=str(folder),
        offset=chunk.offset,
        python=[*settings.container, settings.python or sys.executable],
        num_processes=settings.count_processes(),
    )
    return text
