"""The only package that knows TRL."""
