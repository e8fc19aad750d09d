"""Training back ends."""
