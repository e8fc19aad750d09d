"""How fast the mathematics reward is beside serial math-verify, on the same inputs, with the verdicts compared.

python benchmarks/rewards.py [--data FOLDER] [--workers 2] [--limit 2]

Prints one JSON object. Ends with 1 where a verdict is wrong or a promise is not kept. What is timed is one batch as a
trainer hands it over: targets are prepared before, on both sides, and the checkers have been started.

  speedup_math500        throughput of this reward / that of math-verify, on worked solutions (promise: 3 with 2 cores)
  speedup_integers       the same on bare integers in a box (promise: 5)
  hanging_extra_seconds  what a batch costs more with hanging answers in it (promise: hanging_allowed_seconds)
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from math_verify import parse, verify

from grpo_exp.rewards.latex_text import uniform_latex
from grpo_exp.rewards.math_answer import score_math_batch
from grpo_exp.rewards.reading import read_shape
from grpo_exp.rewards.score import Score
from grpo_exp.rewards.targets import prepare_targets
from grpo_exp.rewards.worker_pool import PoolLimits, limit_shared_pool, shared_pool

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
#: Each side is timed this often and the fastest time counts: a machine that others use is slow at random.
ROUNDS = 3
NUM_INTEGERS = 2_000
NUM_HANGING = 4


@dataclass(frozen=True)
class Batch:
    """Completions, the targets they are judged by, and which are right by construction."""

    completions: list[str]
    targets: list[str]
    right: list[bool]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="folder with math500_part.jsonl")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=2.0, help="seconds for one answer in the hanging batch")
    arguments = parser.parse_args()
    limit_shared_pool(PoolLimits(num_workers=arguments.workers))
    report: dict[str, Any] = {"workers": arguments.workers, "cores": len(os.sched_getaffinity(0))}
    file = arguments.data / "math500_part.jsonl"
    if file.is_file():
        report |= compare("math500", solutions(file))
    else:
        print(f"no {file}: speedup_math500 is not measured; give --data FOLDER", file=sys.stderr)
    report |= compare("integers", integers())
    report |= measure_hanging(arguments.workers, arguments.limit)
    shared_pool().close()
    report["load"] = round(os.getloadavg()[0], 2)
    for name, value in report.items():
        print(f"{name:<40}{value}")
    print(json.dumps(report))  # one line, for programs
    sys.exit(not all(kept for name, kept in report.items() if name.endswith("_kept")))


def solutions(file: Path) -> Batch:
    """Return each worked solution with its own target, and with the target of the next row that differs."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    golds = [row["answer"] for row in rows]
    following = [next_different(golds, place) for place in range(len(golds))]
    texts = [row["solution"] for row in rows]
    return Batch(texts * 2, golds + following, [True] * len(rows) + [False] * len(rows))


def next_different(golds: Sequence[str], place: int) -> str:
    """Return the next target that is spelled differently; `x=5` and `5` mean the same."""
    own = golds[place].removeprefix("x=")
    order = [golds[(place + step) % len(golds)] for step in range(1, len(golds))]
    return next(gold for gold in order if gold.removeprefix("x=") != own)


def integers() -> Batch:
    """Return short completions with an integer in a box, every other one right."""
    numbers = range(NUM_INTEGERS)
    completions = [f"<think>\nadd {number}\n</think>\nIt is \\boxed{{{number}}}." for number in numbers]
    return Batch(completions, [str(n + n % 2) for n in numbers], [n % 2 == 0 for n in numbers])


def compare(name: str, batch: Batch) -> dict[str, Any]:
    """Time both sides on a batch and hold their verdicts against what is right."""
    ours_seconds, ours = fastest(lambda: score_with_reward(batch))
    theirs_seconds, theirs = fastest(lambda: score_with_math_verify(batch))
    wrong = [score for score, right in zip(ours, batch.right, strict=True) if (score.value == 1.0) is not right]
    promise = {"math500": 3.0, "integers": 5.0}[name]
    speedup = theirs_seconds / ours_seconds
    return {
        f"speedup_{name}": round(speedup, 2),
        f"{name}_rows": len(batch.completions),
        f"{name}_per_second": round(len(batch.completions) / ours_seconds),
        f"{name}_math_verify_per_second": round(len(batch.completions) / theirs_seconds),
        f"{name}_wrong_verdicts": len(wrong),
        f"{name}_math_verify_wrong_verdicts": sum(a != b for a, b in zip(theirs, batch.right, strict=True)),
        f"{name}_kept": speedup >= promise and not wrong,
    }


def fastest(run: Callable[[], tuple[float, list[Any]]]) -> tuple[float, list[Any]]:
    """Return the shortest time of several rounds, and the verdicts, which must not differ between rounds."""
    rounds = [run() for _ in range(ROUNDS)]
    assert all(verdicts == rounds[0][1] for _, verdicts in rounds)
    return min(seconds for seconds, _ in rounds), rounds[0][1]


def score_with_reward(batch: Batch) -> tuple[float, list[Score]]:
    """Return seconds and scores of this package's reward; what it remembers of earlier answers is forgotten first."""
    read_shape.cache_clear()
    uniform_latex.cache_clear()
    for target in batch.targets:
        prepare_targets(target)
    shared_pool().ask("x", "y")
    started = time.perf_counter()
    scores = score_math_batch(batch.completions, batch.targets, prefilled=[False] * len(batch.completions))
    return time.perf_counter() - started, scores


def score_with_math_verify(batch: Batch) -> tuple[float, list[bool]]:
    """Return seconds and verdicts of math-verify, one after another, with targets in the form that it reads.

    Its seconds are those of the processor, which others on the machine cannot lengthen; the reward's are by the clock.
    """
    golds = [parse(f"${target}$") for target in batch.targets]
    started = time.process_time()
    verdicts = [verify(gold, parse(text)) for gold, text in zip(golds, batch.completions, strict=True)]
    return time.process_time() - started, verdicts


def measure_hanging(num_workers: int, limit: float) -> dict[str, Any]:
    """Time a batch of symbolic answers without and with some that never end."""
    limit_shared_pool(PoolLimits(timeout_seconds=limit, num_workers=num_workers))
    plain = [rf"\boxed{{\frac{{{2 * n}x}}{{{n}}}}}" for n in range(2, 42)]
    towers = [rf"\boxed{{x+{n}^{{7^{{7^{{7}}}}}}}}" for n in range(2, 2 + NUM_HANGING)]

    def run(completions: list[str]) -> tuple[float, list[str]]:
        started = time.perf_counter()
        scores = score_math_batch(completions, ["2x"] * len(completions), prefilled=[False] * len(completions))
        return time.perf_counter() - started, [score.reason for score in scores]

    run([rf"\boxed{{x+{n}}}" for n in range(20)])  # all processes are started
    plain_seconds, plain_reasons = run(plain)
    seconds, reasons = run([*towers, *plain])
    rounds = -(-NUM_HANGING // num_workers)
    allowed = rounds * limit
    right = plain_reasons == ["match"] * 40 and reasons == ["timeout"] * NUM_HANGING + ["match"] * 40
    return {
        "hanging_extra_seconds": round(seconds - plain_seconds, 3),
        "hanging_allowed_seconds": allowed,
        "hanging_answers": NUM_HANGING,
        "hanging_limit_seconds": limit,
        "hanging_kept": right and seconds - plain_seconds <= allowed,
    }


if __name__ == "__main__":
    main()
