"""The rows of `rollout status` agree with the plan."""

import pytest
from msgspec.structs import replace

from rollout.model.cluster import Node
from rollout.model.host import HostFacts
from rollout.model.plan import ExclusionReason
from rollout.model.policy import ControlPlaneOrder, Policy
from rollout.planning.eligibility.status import node_statuses
from rollout.planning.plan.build import build_plan
from tests.planning.builders import control_plane, facts, inputs, node

FACTS = facts("w-1")


@pytest.mark.parametrize(
    ("subject", "observed", "policy", "reason"),
    [
        (node("w-1"), replace(FACTS, may_reboot=False), Policy(), ExclusionReason.NO_SUDO),
        (node("w-1"), replace(FACTS, may_reboot=False), Policy(own_reboot_command=True), ""),
        (
            control_plane("w-1"),
            FACTS,
            Policy(control_plane=ControlPlaneOrder.EXCLUDE),
            ExclusionReason.EXCLUDED,
        ),
    ],
)
def test_a_row_has_the_reason_of_the_plan(
    subject: Node, observed: HostFacts, policy: Policy, reason: str
) -> None:
    made = inputs([subject], observations={"w-1": observed}, policy=policy)
    rows = node_statuses([subject], {}, made.observations, policy, made.eligibility)
    assert [row.reason for row in rows] == [reason]
    excluded = [exclusion.reason for exclusion in build_plan(made).excluded]
    assert excluded == [reason for row in rows if row.reason]
