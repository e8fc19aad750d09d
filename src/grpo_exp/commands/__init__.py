"""The commands of `grpo-exp`; one thin module each."""
