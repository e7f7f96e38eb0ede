"""Somebody who may write ConfigMaps changes the record of an interrupted rollout, and reckons its digest anew.

Whoever resumes it by hand is shown what its rules give up. An unattended pass has nobody to show it to: nothing that it
does to nodes begun from then on, and no place that it asks, is chosen by the record alone.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import DAEMONSETS, NODES
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, killed_at
from tests.apply.test_gates import deployment
from tests.security.hands import put_record, sealed
from tests.security.test_saved_plans import serving
from tests.state import rebooted, record, unlock, write

ONCE = (
    *("operate", "--once", "-o", "json", "--max-unavailable", "1", "--set", "waves.health-checks=1"),
    *("--set", "lock.duration=2s", "--control-plane", "exclude"),
)
APPLY = ("apply", "--yes", *ONCE[2:])
Change = Callable[[dict[str, Any]], object]


def forge(lab: Lab, change: Change) -> None:
    """The same record, but for what was changed in its plan."""
    whole = record(lab)
    assert whole is not None
    plan = json.loads(whole["data"]["plan.json"])
    change(plan)
    put_record(lab, {**whole, "data": {**whole["data"], "plan.json": sealed(plan)}})


def labels(lab: Lab) -> set[str]:
    """The names of all Nodes' labels."""
    return {name for node in lab.call(lambda: list(lab.store.items(NODES))) for name in node["metadata"]["labels"]}


def test_an_unattended_pass_takes_no_annotation_away_that_the_record_names(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """A check is asked for by a label, and by the removal of its last answer: of whatever annotation is named so."""
    lab = started("default", 4)
    network = {"network.example/address": "10.1.2.3"}
    everyone = list(lab.scoreboard().reboots)
    for name in everyone:
        write(lab, name, "annotations", **network)
    checks = {"before": list(network), "after": list(network), "prefix": "evil.example/", "timeout": "2s"}
    seen: set[str] = set()
    node = killed_at(lab, tmp_path, "drained", *ONCE)
    forge(lab, lambda plan: plan["policy"]["gates"].update(hooks=checks))
    lab.call(lambda: lab.store.subscribe(lambda change: seen.update(change.obj["metadata"].get("labels") or ())))
    ended = rollout(lab, *ONCE)
    assert ended.code == 0, ended.stderr
    assert node in rebooted(lab)
    assert len(rebooted(lab)) > 1
    nodes = lab.call(lambda: list(lab.store.items(NODES)))
    assert [found["metadata"]["annotations"]["network.example/address"] for found in nodes] == ["10.1.2.3"] * len(
        everyone
    )
    assert not [name for name in seen if name.startswith("evil")]


def test_whoever_resumes_is_told_of_checks_that_the_record_names(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    killed_at(lab, tmp_path, "drained", *APPLY)
    forge(lab, lambda plan: plan["policy"]["gates"]["hooks"].update(after=["network.example/address"], timeout="1s"))
    ended = rollout(lab, "resume", "--yes", *unlock(lab))
    warning = "the interrupted rollout has gates.after-reboot-annotations network.example/address"
    assert warning in ended.stderr, ended.stderr


NONSENSE: dict[str, tuple[str, object]] = {
    "no time to drain": ("drain.timeout", "0s"),
    "no time to reboot": ("reboot_timeout", "0s"),
    "no time to be Ready": ("ready_timeout", "0s"),
    "no node at a time": ("max_unavailable", "0"),
    "no failure, not even none": ("max_failures", "0%"),
    "a step of no node": ("ramp", ["1", "0"]),
    "no label": ("spread_by", "a b"),
    "no annotation": ("gates.hooks.after", ["../../evil"]),
    "no prefix": ("gates.hooks.prefix", "evil"),
    "no pattern": ("gates.alerts.pattern", "((("),
}


def test_rules_that_no_flag_takes_are_none_of_a_record(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    """By a time of nothing each node that is begun would fail, and stay cordoned."""
    lab = started("default", 4)
    killed_at(lab, tmp_path, "drained", *ONCE)
    whole = record(lab)
    for name, (path, value) in NONSENSE.items():
        put_record(lab, whole)
        forge(lab, partial(set_rule, path=path, value=value))
        for words in (("resume", "--yes"), ONCE):
            ended = rollout(lab, *words)
            assert (name, ended.code) == (name, 6), ended.stderr
            assert "is not a plan made by rollout" in ended.stderr, name
        told = rollout(lab, "status", "--run").stdout
        assert "is not a plan made by rollout" in " ".join(told.split()), name
    assert rebooted(lab) == set()
    assert rollout(lab, "abort", "--yes").code == 0


def roll_back(lab: Lab) -> None:
    """From now on hosts come back in their old version; in the lab's loop."""
    for machine in lab.machines.values():
        machine.inflict(HostFaults(reboot=RebootFault.ROLLS_BACK))


def set_rule(plan: dict[str, Any], path: str, value: object) -> None:
    """Change one rule, by its way below the policy."""
    *folders, name = path.split(".")
    rules = plan["policy"]
    for folder in folders:
        rules = rules[folder]
    rules[name] = value


@pytest.mark.sample
@pytest.mark.parametrize("words", [ONCE, ("resume", "--yes")])
def test_no_record_spares_a_begun_node_its_proof(
    started: Started, rollout: Rollout, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """It says that no update was staged, where the marks on the Node say which: a rolled back host is found out."""
    lab = started("default", 4)

    def change(plan: dict[str, Any]) -> None:
        for wave in plan["waves"]:
            for node in wave["nodes"]:
                node.update(staged=False, staged_version="", detected_by=[])

    node = killed_at(lab, tmp_path, "drained", *(ONCE if words == ONCE else APPLY))
    lab.call(lambda: roll_back(lab))
    forge(lab, change)
    ended = rollout(lab, *words, *(() if words == ONCE else ("-o", "json", *unlock(lab))))
    assert ended.code == 4, ended.stderr
    assert {failure["node"]: failure["outcome"] for failure in ended.summary["failed"]}[node] == "rolled-back"


@pytest.mark.sample
@pytest.mark.parametrize("words", [ONCE, ("resume", "--yes")])
def test_no_record_makes_a_rival_accepted(
    started: Started, rollout: Rollout, tmp_path: Path, words: tuple[str, ...]
) -> None:
    lab = started("default", 4)
    first = ONCE if words == ONCE else APPLY
    killed_at(lab, tmp_path, "drained", *first)
    lab.call(lambda: lab.store.create(DAEMONSETS, deployment("kured")))
    refused = rollout(lab, *words)
    assert refused.code == 6
    rival = {"node": "", "kind": "rival", "object": "daemonset/kube-system/kured", "message": "accepted"}
    forge(lab, lambda plan: plan["blockers"].append(rival))
    ended = rollout(lab, *words)
    assert ended.code == 6, ended.stdout
    assert "kured" in ended.stderr
    assert rebooted(lab) == set()


@pytest.mark.sample
@pytest.mark.parametrize("words", [ONCE, ("resume", "--yes")])
def test_a_record_of_another_cluster_is_not_gone_on_with(
    started: Started, rollout: Rollout, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """A backup of kube-system that was restored here brings it along."""
    lab = started("default", 4)
    killed_at(lab, tmp_path, "drained", *(ONCE if words == ONCE else APPLY))
    forge(lab, lambda plan: plan["cluster"].update(uid="another", server="https://elsewhere:6443"))
    ended = rollout(lab, *words)
    assert ended.code == 6, ended.stderr
    assert "is of another cluster, https://elsewhere:6443" in ended.stderr
    assert rebooted(lab) == set()
    assert rollout(lab, "abort", "--yes").code == 0
    assert (record(lab), lab.scoreboard().cordons_left) == (None, ())


@pytest.mark.exhaustive
def test_an_unattended_pass_asks_no_prometheus_that_the_record_names(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    node = killed_at(lab, tmp_path, "drained", *ONCE)
    with serving() as theirs:
        forge(lab, lambda plan: plan["policy"]["gates"]["alerts"].update(url=theirs.url))
        ended = rollout(lab, *ONCE, "--set", "gates.timeout=1s")
        assert ended.code == 0, ended.stderr
        assert theirs.logins == []
        assert (rebooted(lab), ended.summary["succeeded"]) == ({node}, [node])
        reasons = set(ended.summary["reasons"].values())
        assert reasons
        assert all(f"alerts of {theirs.url} are not asked for" in reason for reason in reasons)
        last = rollout(lab, *ONCE)
        assert (last.code, theirs.logins, lab.scoreboard().clean) == (0, [], True)


ESCAPE = "\x1b]0;owned\x07\x1b[31m"


def test_no_text_of_a_record_steers_a_terminal(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 4)

    def change(plan: dict[str, Any]) -> None:
        plan["created_at"] = ESCAPE
        plan["cluster"]["server"] = ESCAPE
        plan["warnings"].append({"node": "worker-1", "object": ESCAPE, "message": ESCAPE, "kind": "pod"})
        plan["excluded"].append({"node": ESCAPE, "reason": "no-update", "message": ESCAPE, "pool": ""})
        for wave in plan["waves"]:
            wave["because"] = ESCAPE
            for node in wave["nodes"]:
                node.update(running_version=ESCAPE, staged_version=ESCAPE, detail=ESCAPE)

    killed_at(lab, tmp_path, "drained", *APPLY)
    forge(lab, change)
    for words in (("status", "--run"), ("status",), ("plan",), ("resume", "--yes", *unlock(lab))):
        ended = rollout(lab, *words)
        assert "\x1b" not in ended.stdout + ended.stderr, words
        assert "\x07" not in ended.stdout + ended.stderr, words
