"""What is written on Nodes for others to read."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rollout.errors import UsageError
from rollout.model.courtesy import Compat, CourtesyPolicy
from rollout.model.host import UpdateOperation, UpdateStatus
from rollout.model.plan import PlannedNode
from rollout.model.replaced import Fields
from rollout.planning.announcements import announced, own_names, proven, waiting
from rollout.planning.selector import is_label_value, node_labels
from tests.planning.builders import NEW, OLD, facts

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
FLUO = "flatcar-linux-update.v1.flatcar-linux.net/"


def test_nothing_is_written_unless_it_is_asked_for() -> None:
    assert announced(CourtesyPolicy(), facts("w-1"), NOW) == Fields({}, {})
    assert proven(CourtesyPolicy(), NEW) == Fields({}, {})


def test_what_a_host_says_and_no_label_can_hold_is_left_out() -> None:
    rules = CourtesyPolicy(annotate_compat=(Compat.FLUO,))
    labels = announced(rules, facts("w-1", running_version="1+2", group=""), NOW).labels
    assert labels == {FLUO + "id": "flatcar", FLUO + "reboot-needed": "true"}
    assert proven(rules, "1+2").labels == {FLUO + "reboot-needed": "false"}
    assert announced(rules, facts("w-1"), NOW).labels[FLUO + "version"] == OLD


def test_a_node_without_an_update_is_told_as_update_engine_tells_it() -> None:
    rules = CourtesyPolicy(annotate_compat=(Compat.FLUO,))
    annotations = announced(rules, facts("w-1", staged=False), NOW).annotations
    assert (annotations[FLUO + "status"], annotations[FLUO + "new-version"]) == ("UPDATE_STATUS_IDLE", "0.0.0")


def test_a_host_whose_update_engine_is_silent_needs_a_reboot_all_the_same() -> None:
    rules = CourtesyPolicy(annotate_compat=(Compat.FLUO,))
    silent = facts("w-1", update=UpdateStatus(UpdateOperation.UNKNOWN))
    assert announced(rules, silent, NOW).annotations[FLUO + "status"] == "UPDATE_STATUS_UPDATED_NEED_REBOOT"


def test_a_node_that_waits_is_told_by_what_the_plan_knows() -> None:
    planned = PlannedNode("w-1", "b", "u", OLD, NEW, 0, 0)
    both = CourtesyPolicy(pre_reboot_node_labels=("a=b",), annotate_compat=tuple(Compat))
    assert waiting(both, planned, NOW) == Fields(
        {FLUO + "version": OLD, FLUO + "reboot-needed": "true"},
        {
            FLUO + "status": "UPDATE_STATUS_UPDATED_NEED_REBOOT",
            FLUO + "new-version": NEW,
            FLUO + "reboot-needed": "true",
            "weave.works/kured-most-recent-reboot-needed": "2026-03-04T05:06:07Z",
        },
    )
    idle = waiting(both, replace(planned, staged=False, staged_version=""), NOW).annotations
    assert (idle[FLUO + "status"], idle[FLUO + "new-version"]) == ("UPDATE_STATUS_IDLE", "0.0.0")
    assert waiting(CourtesyPolicy(), planned, NOW) == Fields({}, {})


def test_every_name_that_is_written_may_be_put_back() -> None:
    rules = CourtesyPolicy(pre_reboot_node_labels=("a=b",), annotate_compat=tuple(Compat))
    fields = announced(rules, facts("w-1"), NOW)
    assert {*fields.labels, *fields.annotations} <= own_names(rules)
    assert own_names(replace(rules, pre_reboot_node_labels=())) == own_names(rules) - {"a"}


@pytest.mark.parametrize("value", ["", "a", "a.b_c-9", "x" * 63])
def test_a_value(value: str) -> None:
    assert is_label_value(value)
    assert node_labels((f"example.com/a={value}",)) == {"example.com/a": value}


@pytest.mark.parametrize("value", [" ", "-a", "a-", "a/b", "ä", "x" * 64, "a=b", "a\n"])
def test_no_value(value: str) -> None:
    assert not is_label_value(value)
    with pytest.raises(UsageError):
        node_labels((f"a={value}",))
