"""Sweeps as SLURM array jobs: settings, rendered scripts, submission, and what the scheduler says."""
