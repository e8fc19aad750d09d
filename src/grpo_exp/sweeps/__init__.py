"""Many runs as one thing: the grid, the plan, the manifest, the states, and what starts the runs."""
