"""Runs of a sweep on this machine: a subprocess each."""
