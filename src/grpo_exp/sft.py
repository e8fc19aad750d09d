"""`python -m grpo_exp.sft GROUP=OPTION key=value ...`, the same as `grpo-exp sft`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from grpo_exp import __main__


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code."""
    __main__.main(["sft", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    main()
