"""Who takes part by which source, and what a saved plan says of it."""

from typing import Any

import pytest
from msgspec.structs import replace

from rollout.model import marks
from rollout.model.cluster import CONTROL_PLANE_LABELS, Node, Placement, Taint
from rollout.model.detection import Sign, Source, SourceAnswer
from rollout.model.host import HostFacts, UpdateOperation, UpdateStatus
from rollout.model.own_node import OwnNode, OwnPod
from rollout.model.placement import NodeTerm, Toleration
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.policy import Policy
from rollout.model.selectors import Requirement, SelectorOperator
from rollout.planning.eligibility.candidates import locate_own_node
from rollout.planning.plan.build import build_plan
from rollout.planning.plan.staleness import find_differences
from tests.planning.builders import control_plane, facts, inputs, node, pod

NOT_ASKED = UpdateStatus(UpdateOperation.NOT_ASKED)


MARKER = Sign(Source.REBOOT_REQUIRED, SourceAnswer.NEEDED, "/run/reboot-required for libc6")


NO_MARKER = Sign(Source.REBOOT_REQUIRED, SourceAnswer.NOT_NEEDED, "no /run/reboot-required")


OSTREE = Sign(Source.RPM_OSTREE, SourceAnswer.NEEDED, "deployment 41 is staged", "41", "b", "a")


NO_OSTREE = Sign(Source.RPM_OSTREE, SourceAnswer.ABSENT, "rpm-ostree is not on this host")


SILENT = Sign(Source.COMMAND, SourceAnswer.NONE, "detect.command did not finish in time")


def seen(*signs: Sign, update: UpdateStatus = NOT_ASKED) -> HostFacts:
    engine = () if update is NOT_ASKED else (Source.UPDATE_ENGINE,)
    sources = (*engine, *(sign.source for sign in signs))
    return facts("w-1", update=update, sources=sources, signs=signs)


def planned(
    observation: HostFacts, policy: Policy | None = None, *, is_marked: bool = False
) -> RolloutPlan:
    w_1 = node("w-1", annotations={"node-rollout.dev/reboot-needed": "true"} if is_marked else {})
    return build_plan(inputs([w_1], observations={"w-1": observation}, policy=policy))


IDLE = UpdateStatus(UpdateOperation.IDLE)
BUSY = UpdateStatus(UpdateOperation.DOWNLOADING, message="42%")


HINT = " (to reboot it anyway, use --allow idle)"


@pytest.mark.parametrize(
    ("observation", "reason", "message"),
    [
        (seen(NO_MARKER), ExclusionReason.NO_UPDATE, f"no /run/reboot-required{HINT}"),
        (
            seen(NO_MARKER, update=IDLE),
            ExclusionReason.NO_UPDATE,
            f"nothing is staged; no /run/reboot-required{HINT}",
        ),
        (
            seen(NO_MARKER, update=BUSY),
            ExclusionReason.NO_UPDATE,
            "an update is being downloaded (42%); no /run/reboot-required",
        ),
        (seen(NO_OSTREE, NO_MARKER), ExclusionReason.NO_UPDATE, f"no /run/reboot-required{HINT}"),
        (seen(NO_OSTREE), ExclusionReason.UNKNOWN_STATUS, "rpm-ostree is not on this host"),
        (
            seen(NO_MARKER, SILENT),
            ExclusionReason.UNKNOWN_STATUS,
            "detect.command did not finish in time",
        ),
        (seen(), ExclusionReason.NO_UPDATE, f"no detection source is configured for it{HINT}"),
        (seen(replace(OSTREE, blocked="it is locked")), ExclusionReason.INHIBITED, "it is locked"),
    ],
)
def test_who_is_left_out(observation: HostFacts, reason: ExclusionReason, message: str) -> None:
    (left,) = planned(observation).excluded
    assert left.reason == reason
    assert left.message == message


@pytest.mark.parametrize(
    ("observation", "policy"),
    [
        # an update that is under way is no reason against what somebody asks for
        (seen(MARKER, update=BUSY), Policy()),
        (seen(NO_MARKER), Policy(reboot_idle=True)),
        (seen(NO_OSTREE, NO_MARKER, update=IDLE), Policy(reboot_idle=True)),
        (seen(replace(OSTREE, blocked="it is locked")), Policy(own_reboot_command=True)),
    ],
)
def test_who_is_taken(observation: HostFacts, policy: Policy) -> None:
    assert [w_1.name for w_1 in planned(observation, policy).nodes] == ["w-1"]


def test_an_annotation_that_nobody_asks_for_is_pointed_out() -> None:
    (left,) = planned(facts("w-1", staged=False), is_marked=True).excluded
    assert left.message.endswith(
        "(to use its reboot-needed annotation, add --set detect.sources=update-engine,annotation)"
    )
    assert marks.REBOOT_NEEDED == "node-rollout.dev/reboot-needed"


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (seen(MARKER), []),
        (seen(replace(MARKER, detail="other packages")), []),
        (seen(NO_MARKER), ["w-1: it no longer needs a reboot according to reboot-required"]),
        (
            seen(NO_MARKER, SILENT),
            [
                (
                    "w-1: it is unknown whether it still needs a reboot"
                    " (detect.command did not finish in time)"
                )
            ],
        ),
    ],
)
def test_a_saved_plan_is_stale_once_its_sources_ask_no_more(
    now: HostFacts, said: list[str]
) -> None:
    plan = planned(seen(MARKER))
    assert (
        list(map(str, find_differences(plan, inputs([node("w-1")], observations={"w-1": now}))))
        == said
    )


# Which node a process in a pod is on, whether its pod has another place, and what a plan makes of
# it.


HARD = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")


SOFT = Taint("node-rollout.dev/awaiting-reboot", "", "PreferNoSchedule")


A, B, C = (node(name) for name in "abc")


KNOWN = OwnPod(node_variable="a", namespace="shop", name="rollout-1")


def place(own: OwnPod, *nodes: Node, on: str = "", **pods: Any) -> OwnNode | None:
    return locate_own_node(own, pod("rollout-1", on, **pods) if on else None, nodes)


@pytest.mark.parametrize(
    ("own", "on", "expected"),
    [
        (KNOWN, "", OwnNode("a")),
        (KNOWN, "b", OwnNode("a", "shop/rollout-1")),
        (replace(KNOWN, boot_id="boot-b"), "", OwnNode("a")),
        (OwnPod(boot_id="boot-b"), "", OwnNode("b")),
        (OwnPod("", "shop", "rollout-1", "boot-b"), "c", OwnNode("b", "shop/rollout-1")),
        (OwnPod("", "shop", "rollout-1", "boot-x"), "c", OwnNode("c", "shop/rollout-1")),
        (OwnPod("x", "shop", "rollout-1", "boot-b"), "c", None),
        (OwnPod(boot_id="boot-x"), "", None),
        (OwnPod(), "", None),
    ],
)
def test_the_downward_api_goes_before_the_kernel_and_that_before_the_pod(
    own: OwnPod, on: str, expected: OwnNode | None
) -> None:
    assert place(own, A, B, C, on=on) == expected


@pytest.mark.parametrize(
    ("other", "has_place"),
    [
        (B, True),
        (replace(B, taints=(SOFT,)), True),
        (replace(B, unschedulable=True), False),
        (replace(B, deleting=True), False),
        (node("b", ready=False), False),
        (replace(B, taints=(HARD,)), False),
    ],
)
def test_the_next_pod_needs_a_node_that_takes_it(other: Node, *, has_place: bool) -> None:
    assert place(KNOWN, A, other) == OwnNode("a", is_only_place=not has_place)
    assert place(KNOWN, A) == OwnNode("a", is_only_place=True)


def test_what_the_pod_demands_and_tolerates_counts() -> None:
    tolerant = Placement(tolerations=(Toleration(HARD.key, "Exists", "", "NoSchedule"),))
    choosy = Placement(
        (NodeTerm((Requirement(CONTROL_PLANE_LABELS[0], SelectorOperator.EXISTS, ()),)),)
    )
    tainted = replace(B, taints=(HARD,))
    labelled = control_plane("b")

    def is_only_place(other: Node, **pods: Any) -> bool:
        own = place(KNOWN, A, other, on="a", **pods)
        return own is not None and own.is_only_place

    assert not is_only_place(tainted, placement=tolerant)
    assert is_only_place(B, placement=choosy)
    assert not is_only_place(labelled, placement=choosy)
    assert is_only_place(B, node_selector={"disk": "ssd"})
    assert not is_only_place(replace(B, labels={"disk": "ssd"}), node_selector={"disk": "ssd"})
