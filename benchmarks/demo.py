"""What the built-in model reaches: one run per algorithm and seed, as a table for the README.

python benchmarks/demo.py OUTPUT_FOLDER [--algorithms dapo grpo dr_grpo] [--seeds 0 1 2] [key=value ...]

Runs go one after another, since two at once would share the cores. Runs that are done already are read, not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--algorithms", nargs="+", default=["dapo", "grpo", "dr_grpo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--overrides", nargs="*", default=[])
    arguments = parser.parse_args()
    rows = [
        run_one(arguments.output.resolve(), algorithm, seed, arguments.overrides)
        for algorithm in arguments.algorithms
        for seed in arguments.seeds
    ]
    print(to_table(rows))
    print(json.dumps({"runs": rows}))


def run_one(output: Path, algorithm: str, seed: int, overrides: list[str]) -> dict[str, Any]:
    """Train once and return what `result.json` says, with the seconds from the command's start to its end."""
    started = time.perf_counter()
    words = [f"algorithm={algorithm}", "reward=math", f"seed={seed}", f"output_dir={output}", *overrides]
    done = subprocess.run(
        [sys.executable, "-m", "grpo_exp.train", *words], stdout=subprocess.PIPE, text=True, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with exit code {done.returncode}\n{done.stdout}")
    (path,) = output.glob(f"{algorithm}-*/*-s{seed}/result.json")
    evaluation = json.loads(path.read_text())["eval"]
    row = {
        "algorithm": algorithm,
        "seed": seed,
        "sampled": [evaluation[when]["accuracy"] for when in ("before", "after")],
        "greedy": [evaluation[when]["greedy_accuracy"] for when in ("before", "after")],
        "seconds": round(seconds),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def to_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| algorithm | seed | sampled before | sampled after | greedy before | greedy after | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        values = [f"{value:.3f}" for pair in (row["sampled"], row["greedy"]) for value in pair]
        lines.append(f"| {row['algorithm']} | {row['seed']} | {' | '.join(values)} | {row['seconds']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
