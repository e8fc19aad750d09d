"""The built-in tiny policy, and loading of models."""
