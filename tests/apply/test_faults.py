"""Each way in which hosts, pods and the API server can fail, through the real program, judged by
the cluster.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import EVENTS, NODES
from rollout.lab.lab import Lab
from rollout.lab.scenario import HostSelection, Scenario, load_scenario
from tests.apply.conftest import ONE_LOOK, Rollout, Started

QUICK = (
    *("--yes", "-o", "json", "--max-unavailable", "2", "--max-failures", "9"),
    *("--control-plane", "exclude"),
    *("--drain-timeout", "8s", "--reboot-timeout", "6s", "--ready-timeout", "8s"),
    *("--settle-timeout", "20s"),
    *ONE_LOOK,
)
# An outage takes a second of real time here, whatever else the machine is doing meanwhile.
PATIENT = ("--drain-timeout", "30s", "--reboot-timeout", "30s", "--ready-timeout", "30s")
IMPATIENT = ("--drain-timeout", "5s")


@dataclass(frozen=True)
class Case:
    """What is to come of a scenario, or of several whose hosts are moved to workers of one cluster.

    `failed` maps nodes to the phase they fail in, `left_out` to the plan's reason, `says` to words
    of their messages.
    """

    scenarios: Mapping[str, Mapping[str, str]]
    code: int = 0
    workers: int = 4
    failed: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    cordons: tuple[str, ...] = ()
    says: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    def scenario(self) -> Scenario:
        """Hosts' faults stand where they are moved to; of the rest the first scenario's counts."""
        shipped = {name: load_scenario(name) for name in self.scenarios}
        hosts = [
            msgspec.structs.replace(
                override, select=HostSelection(names=(moved[override.select.names[0]],))
            )
            for name, moved in self.scenarios.items()
            for override in shipped[name].hosts
        ]
        return msgspec.structs.replace(next(iter(shipped.values())), hosts=tuple(hosts))


def as_shipped(name: str) -> dict[str, dict[str, str]]:
    return {name: {f"worker-{number}": f"worker-{number}" for number in range(1, 5)}}


CASES = [
    Case(
        {"ready-flaps": {"worker-2": "worker-2"}, "slow-return": {"worker-2": "worker-3"}},
        flags=("--reboot-timeout", "30s"),
    ),
    Case(
        as_shipped("never-returns"),
        4,
        failed={"worker-2": "rebooting"},
        cordons=("worker-2",),
        says={"worker-2": "did not come back within"},
    ),
    Case(
        as_shipped("host-key-changes"),
        4,
        failed={"worker-2": "rebooting"},
        cordons=("worker-2",),
        says={"worker-2": "host key has changed"},
    ),
    Case(
        {"reboot-ignored": {"worker-2": "worker-2"}, "rollback": {"worker-2": "worker-3"}},
        4,
        failed={"worker-2": "rebooting", "worker-3": "ready"},
        says={"worker-2": "did not reboot", "worker-3": "the update did not take"},
    ),
    Case(
        as_shipped("drain-hangs"),
        4,
        failed={"*": "draining"},
        says={"*": "is still terminating"},
        flags=IMPATIENT,
    ),
    Case(
        {
            "no-sudo": {"worker-2": "worker-2", "worker-3": "worker-3"},
            "dbus-denied": {"worker-2": "worker-4", "worker-3": "worker-5"},
            "bus-absent": {"worker-2": "worker-6"},
            "wrong-host-key": {"worker-2": "worker-7"},
            "unreachable": {"worker-2": "worker-8", "worker-3": "worker-9"},
            "garbage": {"worker-2": "worker-10", "worker-3": "worker-11", "worker-4": "worker-12"},
        },
        4,
        workers=12,
        left_out={
            **dict.fromkeys(("worker-2", "worker-3"), "no-sudo"),
            **dict.fromkeys(("worker-5", "worker-6"), "unknown-status"),
            **dict.fromkeys(("worker-7", "worker-8", "worker-9", "worker-10"), "unreachable"),
        },
    ),
    Case(as_shipped("budget-never"), left_out={"*": "blocked"}, flags=("--skip", "blocked")),
    Case(as_shipped("api-429"), flags=PATIENT),
    Case(as_shipped("api-500"), flags=PATIENT),
    Case(as_shipped("api-outage"), flags=PATIENT),
    Case(as_shipped("api-lost-answers"), flags=PATIENT),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "+".join(case.scenarios))
def test_every_fault_ends_as_it_should(case: Case, started: Started, rollout: Rollout) -> None:
    lab = started(case.scenario(), 3 + case.workers)
    before = lab.scoreboard().versions
    workers = {f"worker-{number}" for number in range(1, case.workers + 1)}

    ended = rollout(lab, "apply", *QUICK, *case.flags).ends(case.code)

    summary = ended.summary
    failed = {entry["node"]: entry["phase"] for entry in summary["failed"]}
    left_out = {entry["node"]: entry["reason"] for entry in ended.plan["excluded"]}
    left_out = {node: reason for node, reason in left_out.items() if node in workers}
    assert_like(failed, case.failed)
    assert_like(left_out, case.left_out)
    assert set(summary["succeeded"]) == workers - set(failed) - set(left_out)
    for entry in summary["failed"]:
        assert case.says.get(entry["node"], case.says.get("*", "?")) in entry["message"]

    score = lab.scoreboard()
    assert score.killed == ()
    assert score.budgets_broken == ()
    assert score.deletions == 0
    assert score.cordons_left == case.cordons
    assert score.most_unavailable <= 2
    assert set(score.annotations_left) == set(case.cordons)
    for node in summary["succeeded"]:
        assert score.reboots[node] == 1
        assert before[node].before == "4081.2.0"
        assert score.versions[node].now == "4152.2.0"
    for node in left_out:
        assert score.reboots[node] == 0
    outcomes = {entry["node"]: entry["outcome"] for entry in summary["failed"]}
    assert_told(lab, summary["succeeded"], outcomes)


TOLD_OF_SUCCESS = {"Cordoned", "Draining", "Drained", "Rebooting", "Booted", "Ready", "Done"}


def assert_told(lab: Lab, succeeded: Sequence[str], outcomes: Mapping[str, str]) -> None:
    """Each node's Events and its annotation tell how it went, whatever the API server did
    meanwhile.
    """
    told = events(lab)
    for node in succeeded:
        assert {reason for reason, _message in told[node]} - {"DrainBlocked"} == TOLD_OF_SUCCESS
        assert "4081.2.0 -> 4152.2.0" in dict(told[node])["Cordoned"]
    for node, outcome in outcomes.items():
        assert dict(told[node])["RolloutFailed"].startswith(f"{outcome} in phase ")
    assert last_results(lab, (*succeeded, *outcomes)) == {
        **dict.fromkeys(succeeded, "succeeded"),
        **outcomes,
    }


def events(lab: Lab) -> dict[str, list[tuple[str, str]]]:
    """Reason and message of each Event of ours, by node."""
    told: dict[str, list[tuple[str, str]]] = {}
    for event in lab.call(lambda: list(lab.store.items(EVENTS))):
        if event["source"].get("component") == "node-rollout":
            assert event["count"] >= 1
            assert event["involvedObject"]["uid"]
            told.setdefault(event["involvedObject"]["name"], []).append(
                (event["reason"], event["message"])
            )
    return told


def last_results(lab: Lab, nodes: Iterable[str]) -> dict[str, str]:
    found = lab.call(
        lambda: {node["metadata"]["name"]: node["metadata"] for node in lab.store.items(NODES)}
    )
    return {
        name: json.loads(found[name]["annotations"]["node-rollout.dev/last-result"])["outcome"]
        for name in nodes
    }


def assert_like(found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Equal; `*` stands for one or more nodes that only the scheduler knows."""
    if set(expected) == {"*"}:
        assert found
        assert set(found.values()) == {expected["*"]}
    else:
        assert found == expected


def test_without_the_rights_nothing_is_touched(started: Started, rollout: Rollout) -> None:
    lab = started("no-rights", 7)
    ended = rollout(lab, "apply", *QUICK).ends(1)
    assert "create pods/eviction" in ended.stderr
    assert "patch nodes" in ended.stderr
    assert_untouched(lab)


def assert_untouched(lab: Lab) -> None:
    score = lab.scoreboard()
    assert score.evictions == 0
    assert score.deletions == 0
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert set(score.reboots.values()) == {0}


# Answers with status 200 that no API server gives: a login page's HTML, half a body, none, JSON of
# another kind. What is not the answer that was asked for is no response: it is waited for.


WITH_A_LOCK = (
    *("--set", "lock.duration=6s", "--drain-timeout", "60s", "--reboot-timeout", "60s"),
    *("--ready-timeout", "60s"),
)


TWO_AT_ONCE = (
    *("apply", "--yes", "--max-unavailable", "2", "--control-plane", "exclude"),
    *("--set", "waves.health-checks=1"),
)


ASKED = (
    *(
        ("list", resource)
        for resource in ("nodes", "pods", "poddisruptionbudgets", "daemonsets", "deployments")
    ),
    *(
        ("list", resource)
        for resource in ("volumeattachments", "persistentvolumes", "replicasets", "statefulsets")
    ),
    *(("watch", resource) for resource in ("nodes", "pods", "poddisruptionbudgets")),
    *(("get", resource) for resource in ("nodes", "namespaces", "leases", "configmaps")),
    *(
        ("create", resource)
        for resource in ("leases", "configmaps", "events", "selfsubjectaccessreviews")
    ),
    *(("update", resource) for resource in ("leases", "configmaps")),
    ("patch", "nodes"),
    ("create", "pods/eviction"),
    ("delete", "configmaps"),
)


PAGES = (FaultAnswer.HTML, FaultAnswer.EMPTY, FaultAnswer.WRONG_KIND)


GARBLINGS = [
    *((answer, done) for answer in PAGES for done in (False, True)),
    (FaultAnswer.TRUNCATED, True),
    (FaultAnswer.BROKEN_OFF, True),
]


def garbled(answer: FaultAnswer, *, done: bool) -> list[ApiFault]:
    """Each kind of request is garbled when it is made first, and after that twice more."""
    by_resource = [
        ApiFault(answer=answer, verb=verb, resource=what, requests=2, done=done)
        for verb, what in ASKED
    ]
    return [*by_resource, ApiFault(answer=answer, verb="get", path="/version", requests=1)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("answer", "done"), GARBLINGS)
def test_each_kind_of_request_may_be_garbled(
    started: Started, rollout: Rollout, answer: FaultAnswer, *, done: bool
) -> None:
    lab = started("default", 6)
    faults = garbled(answer, done=done)
    lab.inflict(*faults)
    ended = rollout(lab, *TWO_AT_ONCE, *WITH_A_LOCK).ends(0)
    assert (
        "waiting for the API server: the response to" in ended.stderr
        or answer is FaultAnswer.BROKEN_OFF
    )
    missed = [
        (fault.verb, fault.resource or fault.path) for fault in faults if not lab.struck(fault)
    ]
    assert missed == []
    score = lab.scoreboard()
    assert score.clean, score
    assert score.annotations_left == {}
    assert score.deletions == 0
    assert sorted(score.reboots.values()) == [0, 0, 0, 1, 1, 1]
