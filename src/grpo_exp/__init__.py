"""Experiments for training reasoning models with GRPO."""

__version__ = "0.1.0"
