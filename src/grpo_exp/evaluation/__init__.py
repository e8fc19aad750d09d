"""Held-out evaluation, given a function that generates."""
