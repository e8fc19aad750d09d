"""Copies of metrics.jsonl in MLflow or W&B."""
