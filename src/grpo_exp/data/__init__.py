"""Data sets and prompts, as plain rows. No torch."""
