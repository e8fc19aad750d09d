"""Frozen typed settings; `load` is the only module that knows OmegaConf."""
