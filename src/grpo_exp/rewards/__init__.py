"""Rule-based, verifiable rewards. No torch."""
