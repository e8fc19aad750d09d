"""What can be said about a run before anything is loaded: faults, and notes that need no action."""

from grpo_exp.preflight.prepare import LoadData, Prepared, load_run_data, prepare

__all__ = ["LoadData", "Prepared", "load_run_data", "prepare"]
