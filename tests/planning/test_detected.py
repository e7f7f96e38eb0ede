"""Who takes part by which source, and what a saved plan says of it."""

from dataclasses import replace

import pytest

from rollout.model import marks
from rollout.model.detection import Answer, Sign, Source
from rollout.model.host import HostFacts, UpdateOperation, UpdateStatus
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.policy import Policy
from rollout.planning.plan.build import build_plan
from rollout.planning.plan.staleness import changes
from tests.planning.builders import facts, inputs, node

NOT_ASKED = UpdateStatus(UpdateOperation.NOT_ASKED)
MARKER = Sign(Source.REBOOT_REQUIRED, Answer.NEEDED, "/run/reboot-required for libc6")
NO_MARKER = Sign(Source.REBOOT_REQUIRED, Answer.NOT_NEEDED, "no /run/reboot-required")
OSTREE = Sign(Source.RPM_OSTREE, Answer.NEEDED, "deployment 41 is staged", "41", "b", "a")
NO_OSTREE = Sign(Source.RPM_OSTREE, Answer.ABSENT, "rpm-ostree is not on this host")
SILENT = Sign(Source.COMMAND, Answer.NONE, "the detect.command did not end in time")


def seen(*signs: Sign, update: UpdateStatus = NOT_ASKED) -> HostFacts:
    engine = () if update is NOT_ASKED else (Source.UPDATE_ENGINE,)
    sources = (*engine, *(sign.source for sign in signs))
    return facts("w-1", update=update, sources=sources, signs=signs)


def planned(observation: HostFacts, policy: Policy | None = None, *, is_marked: bool = False) -> RolloutPlan:
    w_1 = node("w-1", annotations={"node-rollout.dev/reboot-needed": "true"} if is_marked else {})
    return build_plan(inputs([w_1], observations={"w-1": observation}, policy=policy))


def test_a_planned_node_says_by_whom_and_why() -> None:
    (w_1,) = planned(seen(MARKER, OSTREE)).nodes
    assert w_1.detected_by == (Source.REBOOT_REQUIRED, Source.RPM_OSTREE)
    assert w_1.detail == "/run/reboot-required for libc6; deployment 41 is staged"
    assert (w_1.staged, w_1.staged_version) == (True, "41")
    (w_1,) = planned(facts("w-1")).nodes
    assert (w_1.detected_by, w_1.detail) == ((Source.UPDATE_ENGINE,), f"{w_1.staged_version} is staged")


IDLE, BUSY = UpdateStatus(UpdateOperation.IDLE), UpdateStatus(UpdateOperation.DOWNLOADING, progress=0.42)
HINT = " (--allow idle reboots it anyway)"


@pytest.mark.parametrize(
    ("observation", "reason", "message"),
    [
        (seen(NO_MARKER), ExclusionReason.NO_UPDATE, f"no /run/reboot-required{HINT}"),
        (seen(NO_MARKER, update=IDLE), ExclusionReason.NO_UPDATE, f"nothing is staged; no /run/reboot-required{HINT}"),
        (
            seen(NO_MARKER, update=BUSY),
            ExclusionReason.NO_UPDATE,
            "an update is being downloaded (42%); no /run/reboot-required",
        ),
        (seen(NO_OSTREE, NO_MARKER), ExclusionReason.NO_UPDATE, f"no /run/reboot-required{HINT}"),
        (seen(NO_OSTREE), ExclusionReason.UNKNOWN_STATUS, "rpm-ostree is not on this host"),
        (seen(NO_MARKER, SILENT), ExclusionReason.UNKNOWN_STATUS, "the detect.command did not end in time"),
        (seen(), ExclusionReason.NO_UPDATE, f"nothing is asked whether it needs a reboot{HINT}"),
        (seen(replace(OSTREE, blocked="it is locked")), ExclusionReason.INHIBITED, "it is locked"),
    ],
)
def test_who_is_left_out(observation: HostFacts, reason: ExclusionReason, message: str) -> None:
    (left,) = planned(observation).excluded
    assert (left.reason, left.message) == (reason, message)


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
        "(its annotation reboot-needed counts with --set detect.sources=update-engine,annotation)"
    )
    assert marks.REBOOT_NEEDED == "node-rollout.dev/reboot-needed"


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (seen(MARKER), []),
        (seen(replace(MARKER, detail="other packages")), []),
        (seen(NO_MARKER), ["w-1: it needs no reboot any more by reboot-required"]),
    ],
)
def test_a_saved_plan_is_stale_once_its_sources_ask_no_more(now: HostFacts, said: list[str]) -> None:
    plan = planned(seen(MARKER))
    assert list(map(str, changes(plan, inputs([node("w-1")], observations={"w-1": now})))) == said
