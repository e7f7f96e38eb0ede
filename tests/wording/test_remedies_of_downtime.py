"""What helps a pod that will be down until the reboot is done depends on why it fits nowhere else."""

import pytest

from rollout.model.cluster import Resources
from rollout.model.drain_finding import (
    NoNodeMatches,
    NoRoom,
    Nowhere,
    PlacementRule,
    RulesExclude,
    VolumeElsewhere,
)
from rollout.model.warning_finding import DownMeanwhile
from rollout.wording.words import cause_of


@pytest.mark.parametrize(
    ("nowhere", "remedy"),
    [
        (NoRoom(Resources(cpu_milli=500), None), "make room on other nodes"),
        (RulesExclude((PlacementRule.OWN_ANTI_AFFINITY,)), "add a node or relax the rules"),
        (NoNodeMatches(), "add a node or relax the rules"),
        (VolumeElsewhere("data"), "use a volume that other nodes can mount"),
    ],
)
def test_the_remedy_fits_the_obstacle(nowhere: Nowhere, remedy: str) -> None:
    assert cause_of(DownMeanwhile(nowhere)).endswith(f"; to avoid this, {remedy}")
