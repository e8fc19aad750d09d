"""A vLLM server for a run: its command line, its readiness, who ends it, and how the run finds it."""
