"""Rules over metric histories that lead to findings."""
