"""Somebody who may write ConfigMaps changes the record of an interrupted rollout, and reckons its digest anew.

Whoever resumes it by hand is shown what its rules give up. An unattended pass has nobody to show it
to: nothing that it does to nodes begun from then on, and no place that it asks, is chosen by the
record alone.
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
    *("operate", "--once", "-o", "json", "--max-unavailable", "1"),
    *("--set", "waves.health-checks=1"),
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
    return {
        name
        for node in lab.call(lambda: list(lab.store.items(NODES)))
        for name in node["metadata"]["labels"]
    }


def test_an_unattended_pass_takes_no_annotation_away_that_the_record_names(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """A check is asked for by a label, and by the removal of its last answer: of whatever
    annotation is named so.
    """
    lab = started("default", 4)
    network = {"network.example/address": "10.1.2.3"}
    everyone = list(lab.scoreboard().reboots)
    for name in everyone:
        write(lab, name, "annotations", **network)
    checks = {
        "before": list(network),
        "after": list(network),
        "prefix": "evil.example/",
        "timeout": "2s",
    }
    seen: set[str] = set()
    node = killed_at(lab, tmp_path, "drained", *ONCE)
    forge(lab, lambda plan: plan["policy"]["gates"].update(hooks=checks))
    lab.call(
        lambda: lab.store.subscribe(
            lambda change: seen.update(change.obj["metadata"].get("labels") or ())
        )
    )
    rollout(lab, *ONCE).ends(0)
    assert node in rebooted(lab)
    assert len(rebooted(lab)) > 1
    nodes = lab.call(lambda: list(lab.store.items(NODES)))
    assert [found["metadata"]["annotations"]["network.example/address"] for found in nodes] == [
        "10.1.2.3"
    ] * len(everyone)
    assert not [name for name in seen if name.startswith("evil")]


def test_an_unattended_pass_takes_no_node_back(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    killed_at(lab, tmp_path, "draining", *ONCE)
    forge(lab, lambda plan: plan["policy"].update(rollback="4081.2.0"))
    left = rollout(lab, *ONCE).ends(0)
    assert "so operate does not continue it" in json.dumps(left.lines)
    assert not rebooted(lab)


NO_PLAN = "is not a plan made by rollout"
# Of times, limits, labels, annotations and patterns.
NONSENSE: tuple[tuple[str, object], ...] = (
    ("drain.timeout", "0s"),
    ("reboot_timeout", "0s"),
    ("ready_timeout", "0s"),
    ("max_unavailable", "0"),
    ("max_failures", "0%"),
    ("ramp", ["1", "0"]),
    ("spread_by", "a b"),
    ("gates.hooks.after", ["../../evil"]),
    ("gates.hooks.prefix", "evil"),
    ("gates.alerts.matchers", ["((("]),
    ("rollback", "$(evil)"),
)


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
    """It says that no update was staged, where the marks on the Node say which: a rolled back host
    is found out.
    """
    lab = started("default", 4)

    def change(plan: dict[str, Any]) -> None:
        for wave in plan["waves"]:
            for node in wave["nodes"]:
                node.update(staged=False, staged_version="", detected_by=[])

    node = killed_at(lab, tmp_path, "drained", *(ONCE if words == ONCE else APPLY))
    lab.call(lambda: roll_back(lab))
    forge(lab, change)
    ended = rollout(lab, *words, *(() if words == ONCE else ("-o", "json", *unlock(lab)))).ends(4)
    assert {failure["node"]: failure["outcome"] for failure in ended.summary["failed"]}[
        node
    ] == "rolled-back"


@pytest.mark.parametrize("words", [ONCE, ("resume", "--yes")])
def test_what_no_rollout_would_have_written_is_not_gone_on_with(
    started: Started, rollout: Rollout, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Rules that no flag takes (by a time of nothing each node that is begun would fail), a rival that is accepted, and
    another cluster: a backup of kube-system that was restored here brings its record along."""
    lab = started("default", 4)
    killed_at(lab, tmp_path, "drained", *(ONCE if words == ONCE else APPLY))
    whole = record(lab)
    rival = {
        "node": "",
        "kind": "rival",
        "object": "daemonset/kube-system/kured",
        "message": "accepted",
    }
    forgeries: list[tuple[Change, str]] = [
        (partial(set_rule, path=path, value=value), NO_PLAN) for path, value in NONSENSE
    ]
    forgeries.append((lambda plan: plan["blockers"].append(rival), "kured"))
    elsewhere = {"uid": "another", "server": "https://elsewhere:6443"}
    forgeries.append(
        (
            lambda plan: plan["cluster"].update(elsewhere),
            "belongs to another cluster (https://elsewhere:6443)",
        )
    )
    for change, says in forgeries:
        if says == "kured":
            lab.call(lambda: lab.store.create(DAEMONSETS, deployment("kured")))
        put_record(lab, whole)
        forge(lab, change)
        ended = rollout(lab, *words)
        assert (ended.code, says in ended.stderr) == (6, True), (says, ended.stderr)
        if says == NO_PLAN:
            assert says in " ".join(rollout(lab, "status", "--run").stdout.split())
    assert rebooted(lab) == set()
    rollout(lab, "abort", "--yes").ends(0)
    assert record(lab) is None
    assert lab.scoreboard().cordons_left == ()


@pytest.mark.exhaustive
def test_an_unattended_pass_asks_no_prometheus_that_the_record_names(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    node = killed_at(lab, tmp_path, "drained", *ONCE)
    with serving() as theirs:
        forge(lab, lambda plan: plan["policy"]["gates"]["alerts"].update(url=theirs.url))
        ended = rollout(lab, *ONCE, "--set", "gates.timeout=1s").ends(0)
        assert theirs.logins == []
        assert rebooted(lab) == {node}
        assert ended.summary["succeeded"] == [node]
        reasons = set(ended.summary["reasons"].values())
        assert reasons
        assert all(f"alerts from {theirs.url} are not read" in reason for reason in reasons)
        last = rollout(lab, *ONCE)
        assert last.code == 0
        assert theirs.logins == []
        assert lab.scoreboard().clean


ESCAPE = "\x1b]0;owned\x07\x1b[31m"


def test_whoever_resumes_is_told_of_its_checks_and_no_text_of_it_steers_a_terminal(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)

    def change(plan: dict[str, Any]) -> None:
        plan["policy"]["gates"]["hooks"].update(after=["network.example/address"], timeout="1s")
        plan["created_at"] = ESCAPE
        plan["cluster"]["server"] = ESCAPE
        plan["warnings"].append(
            {"node": "worker-1", "object": ESCAPE, "message": ESCAPE, "kind": "pod"}
        )
        plan["excluded"].append(
            {"node": ESCAPE, "reason": "no-update", "message": ESCAPE, "pool": ""}
        )
        for wave in plan["waves"]:
            wave["because"] = ESCAPE
            for node in wave["nodes"]:
                node.update(running_version=ESCAPE, staged_version=ESCAPE, detail=ESCAPE)

    killed_at(lab, tmp_path, "drained", *APPLY)
    forge(lab, change)
    commands = (("status", "--run"), ("status",), ("plan",), ("resume", "--yes", *unlock(lab)))
    all_of_them = [rollout(lab, *words) for words in commands]
    for ended in all_of_them:
        assert "\x1b" not in ended.stdout + ended.stderr, ended
        assert "\x07" not in ended.stdout + ended.stderr, ended
    told = "continuing with the original gates.after-reboot-annotations network.example/address"
    assert told in all_of_them[-1].stderr
