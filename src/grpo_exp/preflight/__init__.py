"""What can be said about a run before anything is loaded: faults, and notes that need no action."""

from grpo_exp.preflight.prepare import Prepared, prepare

__all__ = ["Prepared", "prepare"]
