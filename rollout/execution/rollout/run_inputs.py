from msgspec import Struct

from rollout.execution.rollout.ledger import Inheritance
from rollout.model.own_node import OwnNode
from rollout.model.plan import RolloutPlan
from rollout.planning.eligibility.evidence import ProvenVersions


class RunInputs(Struct, frozen=True, kw_only=True):
    """What the engine carries out."""

    plan: RolloutPlan
    # How many nodes percentages refer to.
    percentage_base: int
    own_node: OwnNode | None
    # Whether a later pass of `rollout operate` continues.
    unattended: bool
    # None if no proof is needed.
    proven: ProvenVersions | None
    # Whether an earlier process started this rollout.
    is_resumed: bool = False
    # What it left.
    inherited: Inheritance = Inheritance()
