"""Statistics as pure functions: numbers in, numbers out, each with its equation and source.

`intervals` is plain Python and light; the other modules load numpy and scipy and are imported by name where they are
used.
"""

from grpo_exp.statistics.intervals import Interval, clustered_interval, wilson_interval

__all__ = ["Interval", "clustered_interval", "wilson_interval"]
