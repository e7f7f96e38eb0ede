"""Nodes that rollout leaves alone for what they are."""

import pytest

from rollout.model.finding import NodeDeleting
from rollout.model.host import Host, ProbeFailure, ProbeFailureKind
from rollout.model.node_kind import why_removed, why_unsupported
from rollout.model.placement import Taint
from rollout.model.plan import ExclusionReason
from rollout.model.policy import Policy
from rollout.planning.eligibility.judgement import EligibilityInputs
from rollout.planning.eligibility.status import node_statuses
from rollout.planning.plan.build import build_plan
from tests.planning.builders import NOW, inputs, node

UNREACHABLE = ProbeFailure(Host("w-1", ""), ProbeFailureKind.UNREACHABLE, "connection refused")


@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "node.cloudprovider.kubernetes.io/shutdown",
        "cloud.google.com/impending-node-termination",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/asg-lifecycle-termination",
    ],
)
def test_a_node_that_a_taint_announces_the_end_of_is_left_out_as_deleting(key: str) -> None:
    tainted = node("w-1", taints=(Taint(key, "1790000000", "NoSchedule"),))
    (exclusion,) = build_plan(inputs([tainted, node("w-2")])).excluded
    assert exclusion.node == "w-1"
    assert exclusion.reason == ExclusionReason.DELETING
    assert key in exclusion.message


@pytest.mark.parametrize("key", ["DeletionCandidateOfClusterAutoscaler", "dedicated"])
def test_a_candidate_for_removal_may_stay_and_is_planned(key: str) -> None:
    assert not why_removed(node("w-1", taints=(Taint(key, "", "PreferNoSchedule"),)))


def test_a_node_with_a_deletion_timestamp_is_removed() -> None:
    assert why_removed(node("w-1", deleting=True)) == NodeDeleting()


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"kubernetes.io/os": "windows"}},
        {"labels": {"beta.kubernetes.io/os": "windows"}},
        {"operating_system": "windows"},
        {"labels": {"type": "virtual-kubelet", "kubernetes.io/os": "linux"}},
        {"taints": (Taint("virtual-kubelet.io/provider", "azure", "NoSchedule"),)},
        {"labels": {"eks.amazonaws.com/compute-type": "fargate"}},
        {"annotations": {"kwok.x-k8s.io/node": "fake"}},
        {"labels": {"liqo.io/type": "virtual-node"}},
    ],
)
def test_a_node_without_a_linux_host_is_no_trouble(changes: dict[str, object]) -> None:
    without_host = node("w-1", **changes)  # type: ignore[arg-type]
    plan = build_plan(inputs([without_host, node("w-2")], observations={"w-1": UNREACHABLE}))
    (exclusion,) = plan.excluded
    assert exclusion.reason is ExclusionReason.UNSUPPORTED
    assert not exclusion.reason.is_trouble


def test_a_linux_host_is_supported() -> None:
    linux = node(
        "w-1", operating_system="linux", labels={"kubernetes.io/os": "linux", "type": "worker"}
    )
    assert not why_unsupported(linux)


def test_status_has_a_state_for_nodes_without_a_linux_host() -> None:
    (row,) = node_statuses(
        [node("w-1", operating_system="windows")], {}, {}, Policy(), EligibilityInputs(NOW)
    )
    assert row.state == "unsupported"
    assert row.judged
    assert row.message == "a Windows node: rollout reboots only Linux hosts"
