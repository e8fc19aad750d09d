"""What rules look at: the curves of a run up to a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from grpo_exp.health.curves import Curve, Point

#: Made here from the others: what was generated, over all time since the generation before.
TOKENS_PER_SECOND = "speed/tokens_per_second"
COMPLETIONS_PER_SECOND = "speed/completions_per_second"


class History:
    """The curves of a run.

    Args:
        keep: Points of each curve that are kept at its start, and half of those at its end.
        best_of: Curves whose best means are remembered, with the numbers of points of these means.
        completions_per_batch: Completions of a generated batch, without those that dynamic sampling discards.
    """

    def __init__(
        self, *, keep: int, best_of: Mapping[str, Collection[int]] | None = None, completions_per_batch: int = 1
    ) -> None:
        self._keep = keep
        self._best_of = best_of or {}
        self._completions_per_batch = completions_per_batch
        self._curves: dict[str, Curve] = {}
        self._empty = Curve(1)
        self._seconds = 0.0
        self._tokens: float | None = None
        self.step = 0
        self.non_finite: tuple[str, ...] = ()
        self._non_finite_steps: dict[str, int] = {}

    def record(self, step: int, metrics: Mapping[str, float], non_finite: Collection[str] = ()) -> None:
        """Add a step; if it does not lie behind the last one, what was measured from it on is forgotten.

        Args:
            step: Optimizer step, from 1.
            metrics: Finite metrics by name.
            non_finite: Names of metrics that are NaN or infinite.
        """
        if step <= self.step:
            for curve in self._curves.values():
                curve.forget_from(step)
            self._seconds, self._tokens = 0.0, None
            self._non_finite_steps = {}
        self.step, self.non_finite = step, tuple(non_finite)
        self._non_finite_steps = {name: self._non_finite_steps.get(name, 0) + 1 for name in self.non_finite}
        for name, value in metrics.items():
            self._add(name, Point(step, value))
        self._add_speeds(step, metrics)

    def curve(self, name: str) -> Curve:
        """Return a curve; one that does not exist in this mode has no points."""
        return self._curves.get(name, self._empty)

    def non_finite_steps(self, name: str) -> int:
        """Return for how many steps in a row, up to the latest one, a metric has been NaN or infinite."""
        return self._non_finite_steps.get(name, 0)

    def _add(self, name: str, point: Point) -> None:
        curve = self._curves.get(name)
        if curve is None:
            curve = self._curves[name] = Curve(self._keep, self._best_of.get(name, ()))
        curve.add(point)

    def _add_speeds(self, step: int, metrics: Mapping[str, float]) -> None:
        """Measure speeds where a batch was generated; steps that reuse it count into its time."""
        self._seconds += metrics.get("time/step", 0.0)
        tokens = metrics.get("train/num_tokens")
        if tokens is None:
            return
        if self._tokens is not None and self._seconds > 0:
            discarded = metrics.get("train/dynamic_sampling/discarded_completions", 0.0)
            made = self._completions_per_batch + discarded
            self._add(COMPLETIONS_PER_SECOND, Point(step, made / self._seconds))
            self._add(TOKENS_PER_SECOND, Point(step, (tokens - self._tokens) / self._seconds))
        self._seconds, self._tokens = 0.0, tokens
