"""What evidence says of nodes on which its version failed, whatever the memory has kept of it."""

import json

import pytest

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.memory import NO_MEMORY, Memory
from rollout.model.quantity import Duration
from rollout.planning.eligibility.evidence import (
    Evidence,
    EvidenceRules,
    ProvenVersions,
    ProvingCluster,
    make_evidence,
)
from rollout.planning.eligibility.memory import with_hold
from tests.planning.builders import NEW, NOW, OLD, node


def ended(
    name: str, outcome: str, *, version: str = NEW, more: dict[str, str] | None = None, **left: str
) -> Node:
    """A node with this last result, and with these further annotations."""
    result = {
        "outcome": outcome,
        "at": NOW.isoformat(),
        "version": version,
        "run": "run-1",
        **(more or {}),
    }
    annotations = {marks.LAST_RESULT: json.dumps(result)}
    annotations |= {f"{marks.PREFIX}{key.replace('_', '-')}": value for key, value in left.items()}
    return node(name, annotations=annotations, os_image=f"Flatcar {version}")


def made(*nodes: Node, version: str = NEW, memory: Memory = NO_MEMORY) -> Evidence:
    proven = ended("proven", "succeeded", version=version)
    return make_evidence(version, (proven, *nodes), memory, ProvingCluster("uid", "staging"), NOW)


FAILED = {
    "rolled back from this version": ended("bad", "rolled-back", version=OLD, more={"from": NEW}),
    "did not come back with this version": ended(
        "bad", "not-back", phase="failed", staged_version=NEW
    ),
    "not Ready with this version": ended("bad", "not-ready", phase="failed", staged_version=NEW),
    "failed its checks with this version": ended(
        "bad", "check-failed", phase="failed", staged_version=NEW
    ),
}


@pytest.mark.parametrize("why", FAILED)
def test_a_released_version_has_still_failed_where_the_node_says_so(why: str) -> None:
    assert made(FAILED[why]).failed == {"bad": why}


@pytest.mark.parametrize("outcome", ["aborted", "drain-failed", "skipped", "not-rebooted"])
def test_a_failure_counts_after_later_turns_that_did_not_succeed(outcome: str) -> None:
    later = ended(
        "bad", outcome, version=OLD, more={"failed_version": NEW, "failed_as": "not-back"}
    )
    assert made(later).failed == {"bad": "did not come back with this version"}


def test_a_version_that_a_person_or_a_rollback_holds_is_not_proven() -> None:
    held = with_hold(NO_MEMORY, NEW, by="ada", now=NOW)
    document = made(memory=held)
    assert document.failed == {"proven": "this version is held"}
    rules = EvidenceRules("staging", nodes=1, hours=0, max_age=Duration(60))
    assert ProvenVersions(rules, {NEW: document}).why_unproven(NEW)
    assert not ProvenVersions(rules, {NEW: made()}).why_unproven(NEW)


OTHERS = {
    "failed of another version": ended(
        "fine", "rolled-back", version=OLD, more={"from": "4200.0.0"}
    ),
    "kept from its reboot": ended("fine", "drain-failed", version=NEW),
    "its check before the reboot failed": ended("fine", "check-failed", version=NEW),
    "under way again": ended("fine", "not-back", version=OLD, phase="draining", staged_version=NEW),
    "no legible result": node("fine", annotations={marks.LAST_RESULT: "[" * 5000}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_not_the_versions_failure_is_none(what: str) -> None:
    assert made(OTHERS[what]).failed == {}


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9" * 5000, ""]
)
def test_a_success_at_no_time_proves_nothing_and_ends_nothing(at: str) -> None:
    strange = ended("strange", "succeeded", more={"at": at})
    assert made(strange).last_reboot == NOW.isoformat().replace("+00:00", "Z")
