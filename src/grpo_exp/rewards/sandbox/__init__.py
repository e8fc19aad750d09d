"""Run programs that nobody has read: what a sandbox is, and the ones there are."""
