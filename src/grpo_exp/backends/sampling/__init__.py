"""Sampling without training: one function for transformers, one for vLLM."""
