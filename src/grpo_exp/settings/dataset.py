"""Settings of the data set and of the prompts made from it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from grpo_exp.settings.dataset_procedural import ArithmeticDataset, CountdownDataset, ReasoningGymDataset
from grpo_exp.settings.dataset_tables import HubDataset, JsonlDataset, TableDataset

DatasetSettings = Annotated[
    ArithmeticDataset | CountdownDataset | ReasoningGymDataset | JsonlDataset | HubDataset, Field(discriminator="kind")
]

__all__ = [
    "ArithmeticDataset",
    "CountdownDataset",
    "DatasetSettings",
    "HubDataset",
    "JsonlDataset",
    "ReasoningGymDataset",
    "TableDataset",
]
