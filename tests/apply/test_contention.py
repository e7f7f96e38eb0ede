"""Others have a say in what a rollout writes: controllers that write it too, and webhooks."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, command
from tests.apply.test_resume import APPLY, assert_finished, record, run_of, stopped_at
from tests.ended import end_of
from tests.security.records import mark
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive

Start = Callable[[str, int], Lab]
OF_NODES = ApiFault(answer=FaultAnswer.CONFLICT, verb="patch", resource="nodes", requests=25)
OF_RECORD = ApiFault(
    answer=FaultAnswer.CONFLICT, verb="update", resource=CONFIGMAPS.plural, name="node-rollout", requests=4
)


@pytest.mark.sample
def test_a_burst_of_writes_to_its_node_costs_no_node_its_turn(started: Start, rollout: Rollout) -> None:
    lab = started("default", 4)
    lab.inflict(OF_NODES)
    ended = rollout(lab, *APPLY, "--set", "drain.prefer-no-schedule-taint=false")
    assert ended.code == 0, ended.stderr
    assert lab.struck(OF_NODES) == 25
    assert_finished(lab)


@pytest.mark.sample
def test_a_record_that_others_write_too_is_gone_on_with(started: Start, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 5)
    with stopped_at(lab, tmp_path, "draining"):
        lab.inflict(OF_RECORD)
        ended = rollout(lab, "resume", "--yes", "-o", "json", "--force-unlock", run_of(lab))
    assert ended.code == 0, ended.stderr
    assert lab.struck(OF_RECORD) == 4
    assert_finished(lab)


def test_a_rollout_that_stops_is_marked_as_ended_whoever_writes_its_record(started: Start, tmp_path: Path) -> None:
    lab = started("default", 6)
    process = command(lab, tmp_path, *APPLY, "--max-unavailable", "1")
    wait_until(lambda: max(lab.scoreboard().reboots.values()) > 0)
    lab.inflict(OF_RECORD)
    process.send_signal(signal.SIGINT)
    ended = end_of(process)
    assert ended.code == 130, ended.stderr
    assert lab.struck(OF_RECORD) == 4
    standing = record(lab)
    assert standing is not None
    assert standing["metadata"]["annotations"]["node-rollout.dev/ended"] == "true"


def test_a_record_that_webhooks_keep_stands_in_nobodys_way(started: Start, rollout: Rollout) -> None:
    """As those do by which nothing in kube-system may be deleted."""
    lab = started("default", 4)
    lab.inflict(ApiFault(answer=FaultAnswer.FORBIDDEN, verb="delete", resource=CONFIGMAPS.plural))
    ended = rollout(lab, *APPLY)
    assert ended.code == 0, ended.stderr
    assert "warning: the record stays, as ended: admission webhook" in ended.stdout
    again = rollout(lab, *APPLY, "--allow", "idle", "--max-failures", "2")
    assert again.code == 0, again.stderr
    assert set(again.summary["succeeded"]) == set(ended.summary["succeeded"])


def test_nodes_that_a_rollout_under_another_lock_has_in_flight_use_up_the_limit(started: Start, tmp_path: Path) -> None:
    """Of two with different lock.namespace neither sees the other's lock; their marks both see."""
    lab = started("default", 6)
    process = command(lab, tmp_path, *APPLY, "--max-unavailable", "1", "--control-plane", "exclude")
    assert process.stdout is not None
    lines: list[Json] = []
    planned: list[str] = []
    marked, other = "", "0123456789abcdef"

    def is_begun(line: Json) -> bool:
        return (line["type"], line.get("phase")) == ("step", "cordoned")

    for written in process.stdout:
        lines.append(json.loads(written))
        if lines[-1]["type"] == "plan":
            planned = [node["name"] for wave in lines[-1]["plan"]["waves"] for node in wave["nodes"]]
        if not marked and is_begun(lines[-1]):
            marked = planned[-1]
            mark(lab, marked, run=other, phase="draining")
        if lines[-1]["type"] == "notice" and other in lines[-1]["message"]:
            began = len([line for line in lines if is_begun(line)])
            mark(lab, marked, run=None, phase=None)
            assert began == 1
    ended = end_of(process)
    told = [line["message"] for line in lines if line["type"] == "notice" and other in line["message"]]
    assert (ended.code, len(told)) == (0, 1), ended.stderr
    assert f"the rollout {other} has {marked} in flight, under a lock in another lock.namespace" in told[0]
    assert sorted(lines[-1]["succeeded"]) == sorted(planned)
