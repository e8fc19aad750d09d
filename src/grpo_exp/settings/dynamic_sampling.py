"""Settings of dynamic sampling: groups without variance are replaced before the update."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grpo_exp.settings.base import Int, OptionalText, Settings


class DynamicSampling(Settings):
    """Generate for further prompts until each group of the batch varies (DAPO, arXiv:2503.14476, section 3.2)."""

    enabled: bool = False
    """Replace groups whose `metric` is the same for all completions."""
    metric: OptionalText = None
    """Reward component that a group must vary in; null is `reward.primary`, so that a length cannot fake variance."""
    max_rounds: Annotated[Int, Field(ge=1, le=1000)] = 10
    """Rounds of generation for one batch, the first one included, 1 to 1000 (verl: max_num_gen_batches)."""
    on_exhausted: Literal["keep", "raise"] = "keep"
    """After the last round: `keep` fills the batch with groups that do not vary, `raise` ends the run."""
