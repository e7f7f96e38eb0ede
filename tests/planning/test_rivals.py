"""What other reboot coordinators do to a plan, and each of their marks to a node."""

from typing import Any

import pytest
from msgspec.structs import replace

from rollout.gather.doctor.cluster import exclusion_checks
from rollout.model.gates import GatePolicy
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy
from rollout.model.rivals import RIVALS, Coordinator, LockAnnotation, SelfReboot
from rollout.planning.eligibility.rivals import marks_of_rivals
from rollout.planning.plan.build import PlanInputs, build_plan
from tests.planning.builders import facts, inputs, node, pod

FLUO = "flatcar-linux-update.v1.flatcar-linux.net/"
CLUO = "container-linux-update.v1.coreos.com/"
MCO = "machineconfiguration.openshift.io/"


def ignoring(*names: str) -> Policy:
    return Policy(gates=GatePolicy(ignored_rivals=names))


def with_coordinator(found: Coordinator, policy: Policy) -> RolloutPlan:
    made = inputs([node("w-1"), node("w-2")], policy=policy)
    return build_plan(replace(made, snapshot=replace(made.snapshot, coordinators=(found,))))


ON_HOSTS = ("locksmithd", "zincati", *SelfReboot)


@pytest.mark.parametrize("rival", [name for name in RIVALS if name not in (*ON_HOSTS, "mco")])
def test_each_coordinator_blocks_and_names_the_way_out_unless_it_is_ignored(rival: str) -> None:
    found = Coordinator(rival, "Deployment", "ops", "its-name", lock=LockAnnotation("a/lock"))
    (blocker,) = with_coordinator(found, Policy()).blockers
    assert blocker.kind.value == "rival"
    assert blocker.object == "deployment/ops/its-name"
    assert "kubectl -n ops" in blocker.message
    assert "deployment its-name" in blocker.message
    assert blocker.message.endswith(f"--allow {rival}")
    assert with_coordinator(found, ignoring(rival)).blockers == ()
    others = tuple(name for name in RIVALS if name != rival)
    assert len(with_coordinator(found, ignoring(*others)).blockers) == 1


@pytest.mark.parametrize(
    ("holders", "locked", "blocks"),
    [
        ((), False, True),
        (("w-2",), True, True),
        (("manual",), True, False),
        (("manual",), False, True),
        (("manual", "w-1"), True, True),
    ],
)
def test_kured_is_paused_by_a_lock_that_no_node_holds(
    holders: tuple[str, ...], *, locked: bool, blocks: bool
) -> None:
    found = Coordinator("kured", "DaemonSet", "kube-system", "kured", holders, locked=locked)
    assert bool(with_coordinator(found, Policy()).blockers) is blocks


MARKS = [
    ("fluo", {"annotations": {FLUO + "reboot-in-progress": "true"}}),
    ("fluo", {"annotations": {FLUO + "reboot-ok": "true"}}),
    ("fluo", {"labels": {FLUO + "before-reboot": "true"}}),
    ("fluo", {"labels": {FLUO + "after-reboot": "true"}}),
    ("cluo", {"annotations": {CLUO + "reboot-in-progress": "true"}}),
    ("kured", {"annotations": {"weave.works/kured-reboot-in-progress": "2026-01-01T00:00:00Z"}}),
    ("cro", {"annotations": {"reboot-agent.v1.demo.local/reboot": ""}}),
    ("cro", {"annotations": {"reboot-agent.v1.demo.local/reboot-in-progress": ""}}),
    ("krm", {"annotations": {"rebootmanager/status": "Rebooting"}}),
    ("tuppr", {"labels": {"tuppr.home-operations.com/upgrading": "true"}}),
    ("mco", {"annotations": {MCO + "state": "Working"}}),
    ("kairos-operator", {"annotations": {"operator.kairos.io/cordoned-by": "ops/update/uid"}}),
    ("nodewright", {"annotations": {"skyhook.nvidia.com/status_tuning": "in_progress"}}),
    ("nvsentinel", {"labels": {"dgxc.nvidia.com/nvsentinel-state": "quarantined"}}),
    ("nvsentinel", {"labels": {"dgxc.nvidia.com/nvsentinel-state": "draining"}}),
    ("nvsentinel", {"labels": {"dgxc.nvidia.com/nvsentinel-state": "remediating"}}),
    ("node-maintenance-orchestrator", {"labels": {"maintenance.nmoo.io/in-maintenance": "true"}}),
    (
        "mco",
        {
            "annotations": {
                MCO + "currentConfig": "w-1",
                MCO + "desiredConfig": "w-1",
                MCO + "state": "Rebooting",
            }
        },
    ),
    (
        "mco",
        {
            "annotations": {
                MCO + "currentConfig": "w-1",
                MCO + "desiredConfig": "w-2",
                MCO + "state": "Done",
            }
        },
    ),
    (
        "kured",
        {
            "annotations": {
                "weave.works/kured-reboot-in-progress": "2026-02-02T00:00:00Z",
                "node-rollout.dev/run": "0123456789abcdef",
                "node-rollout.dev/phase": "failed",
                "node-rollout.dev/boot-id-before": "b1",
            }
        },
    ),
]
NO_MARKS = [
    {"annotations": {"skyhook.nvidia.com/status_tuning": "complete"}},
    {"labels": {"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}},
    {"labels": {"dgxc.nvidia.com/nvsentinel-state": "drain-failed"}},
    {"labels": {"bootc.dev/managed": ""}},
    {
        "annotations": {
            MCO + "currentConfig": "w-1",
            MCO + "desiredConfig": "w-1",
            MCO + "state": "Done",
        }
    },
    {
        "annotations": {
            FLUO + "reboot-in-progress": "false",
            FLUO + "reboot-ok": "false",
            FLUO + "reboot-needed": "true",
        }
    },
    {
        "labels": {
            FLUO + "before-reboot": "false",
            FLUO + "reboot-needed": "true",
            FLUO + "group": "stable",
        }
    },
    {"annotations": {"weave.works/kured-most-recent-reboot-needed": "2026-01-01T00:00:00Z"}},
    {
        "annotations": {
            "rebootmanager/status": "Ready",
            "reboot-agent.v1.demo.local/reboot-needed": "",
        }
    },
    {
        "labels": {FLUO + "before-reboot": "true"},
        "annotations": {
            "node-rollout.dev/run": "0123456789abcdef",
            "node-rollout.dev/phase": "cordoned",
            "node-rollout.dev/boot-id-before": "b1",
            "node-rollout.dev/hook-label": FLUO + "before-reboot",
        },
    },
]


def planned(made: PlanInputs) -> tuple[list[str], list[tuple[str, str]]]:
    plan = build_plan(made)
    return [found.name for found in plan.nodes], [
        (left.node, left.reason.value) for left in plan.excluded
    ]


@pytest.mark.parametrize(("rival", "marked"), MARKS)
def test_each_mark_keeps_its_node_out_unless_its_coordinator_is_ignored(
    rival: str, marked: dict[str, Any]
) -> None:
    nodes = [node("w-1", **marked), node("w-2")]
    assert planned(inputs(nodes)) == (["w-2"], [("w-1", "rival")])
    assert planned(inputs(nodes, policy=ignoring(rival)))[1] == []
    others = tuple(name for name in RIVALS if name != rival)
    assert planned(inputs(nodes, policy=ignoring(*others)))[1] == [("w-1", "rival")]


def test_doctor_names_a_coordinator_once_however_many_marks_it_left() -> None:
    prefix = "skyhook.nvidia.com/status_"
    marked = node("w-1", annotations={f"{prefix}a": "in_progress", f"{prefix}b": "in_progress"})
    rival_marks = {"w-1": tuple(marks_of_rivals(marked))}
    plan = build_plan(inputs([marked]))
    (check,) = exclusion_checks(plan, [marked], rival_marks=rival_marks, self_rebooting=())
    assert check.fix.text.count("--allow nodewright") == 1
    assert len(check.fix.commands) == 2


@pytest.mark.parametrize("marked", NO_MARKS)
def test_what_is_no_mark_of_work_in_progress_keeps_nobody_out(marked: dict[str, Any]) -> None:
    assert planned(inputs([node("w-1", **marked)])) == (["w-1"], [])


@pytest.mark.parametrize(
    ("phase", "is_out"), [("Running", True), ("Pending", True), ("Succeeded", False)]
)
def test_a_node_that_the_upgrade_controller_works_on_is_left_out(
    phase: str, *, is_out: bool
) -> None:
    at_work = pod(
        "apply-os-on-w-1", "w-1", owner="Job", labels={"upgrade.cattle.io/node": "w-1"}, phase=phase
    )
    made = inputs([node("w-1"), node("w-2")], pods=[at_work])
    assert ("w-1" not in planned(made)[0]) is is_out
    ignored = replace(made, policy=ignoring("system-upgrade-controller"))
    assert "w-1" in planned(ignored)[0]


def test_locksmithd_keeps_its_host_out_unless_it_is_ignored() -> None:
    observed = {"w-1": facts("w-1", locksmithd_active=True)}
    nodes = [node("w-1"), node("w-2")]
    made = inputs(nodes, observations=observed)
    assert planned(made)[1] == [("w-1", "rival")]
    assert "mask --now locksmithd" in build_plan(made).excluded[0].message
    assert planned(inputs(nodes, observations=observed, policy=ignoring("locksmithd")))[1] == []


@pytest.mark.parametrize(
    ("strategy", "is_out"), [("immediate", True), ("periodic", True), ("fleet_lock", False)]
)
def test_zincati_keeps_its_host_out_unless_it_asks_before_or_is_ignored(
    strategy: str, *, is_out: bool
) -> None:
    observed = {"w-1": facts("w-1", zincati_strategy=strategy)}
    nodes = [node("w-1"), node("w-2")]
    made = inputs(nodes, observations=observed)
    assert planned(made)[1] == ([("w-1", "rival")] if is_out else [])
    assert planned(inputs(nodes, observations=observed, policy=ignoring("zincati")))[1] == []
    if is_out:
        assert strategy in build_plan(made).excluded[0].message
