"""Somebody who may write ConfigMaps changes the record of an interrupted rollout, and reckons its digest anew.

Whoever resumes it by hand is shown what its rules give up. An unattended pass has nobody to show it to: nothing that it
does to nodes begun from then on, and no place that it asks, is chosen by the record alone.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import DAEMONSETS, NODES
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout
from tests.apply.test_gates import deployment
from tests.apply.test_resume import Start, run_of
from tests.operate.conftest import killed_at, record
from tests.security.records import put_record, sealed
from tests.security.test_saved_plans import serving

ONCE = (
    *("operate", "--once", "-o", "json", "--max-unavailable", "1", "--health-checks", "1"),
    *("--lease-duration", "2s", "--control-plane", "exclude"),
)
APPLY = ("apply", "--yes", *ONCE[2:])
ESCAPE = "\x1b]0;owned\x07\x1b[31m"
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


def rebooted(lab: Lab) -> set[str]:
    return {name for name, reboots in lab.scoreboard().reboots.items() if reboots}


def test_an_unattended_pass_asks_no_prometheus_that_the_record_names(
    started: Start, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    with serving() as theirs, killed_at(lab, tmp_path, "drained", *ONCE) as node:
        forge(lab, lambda plan: plan["policy"]["gates"]["alerts"].update(url=theirs.url))
        ended = rollout(lab, *ONCE, "--gate-timeout", "1s")
        assert ended.code == 0, ended.stderr
        assert theirs.logins == []
        assert (rebooted(lab), ended.summary["succeeded"]) == ({node}, [node])
        reasons = set(ended.summary["reasons"].values())
        assert reasons
        assert all(f"alerts of {theirs.url} are not asked for" in reason for reason in reasons)
        last = rollout(lab, *ONCE)
        assert (last.code, theirs.logins, lab.scoreboard().clean) == (0, [], True)


@pytest.mark.parametrize("when", ["pre", "post"])
def test_an_unattended_pass_sets_no_label_that_the_record_names(
    started: Start, rollout: Rollout, tmp_path: Path, when: str
) -> None:
    lab = started("default", 4)
    forged = {f"{when}_reboot_node_labels": ["evil.example/x=1"]}
    with killed_at(lab, tmp_path, "drained", *ONCE) as node:
        forge(lab, lambda plan: plan["policy"]["courtesy"].update(forged))
        ended = rollout(lab, *ONCE)
        assert ended.code == 0, ended.stderr
        assert node in rebooted(lab)
        assert len(rebooted(lab)) > 1
        assert not [name for name in labels(lab) if "evil" in name]
        assert lab.scoreboard().clean


@pytest.mark.parametrize("words", [ONCE, ("resume", "--yes")])
def test_no_record_makes_a_rival_accepted(
    started: Start, rollout: Rollout, tmp_path: Path, words: tuple[str, ...]
) -> None:
    lab = started("default", 4)
    first = ONCE if words == ONCE else APPLY
    with killed_at(lab, tmp_path, "drained", *first):
        lab.call(lambda: lab.store.create(DAEMONSETS, deployment("kured")))
        refused = rollout(lab, *words)
        assert refused.code == 6
        rival = {"node": "", "kind": "rival", "object": "daemonset/kube-system/kured", "message": "accepted"}
        forge(lab, lambda plan: plan["blockers"].append(rival))
        ended = rollout(lab, *words)
        assert ended.code == 6, ended.stdout
        assert "kured" in ended.stderr
        assert rebooted(lab) == set()


def test_no_text_of_a_record_steers_a_terminal(started: Start, rollout: Rollout, tmp_path: Path) -> None:
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

    with killed_at(lab, tmp_path, "drained", *APPLY):
        forge(lab, change)
        for words in (("status", "--run"), ("status",), ("plan",), ("resume", "--yes", "--force-unlock", run_of(lab))):
            ended = rollout(lab, *words)
            assert "\x1b" not in ended.stdout + ended.stderr, words
            assert "\x07" not in ended.stdout + ended.stderr, words


@pytest.mark.parametrize("words", [ONCE, ("resume", "--yes")])
def test_a_record_of_another_cluster_is_not_gone_on_with(
    started: Start, rollout: Rollout, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """A backup of kube-system that was restored here brings it along."""
    lab = started("default", 4)
    with killed_at(lab, tmp_path, "drained", *(ONCE if words == ONCE else APPLY)):
        forge(lab, lambda plan: plan["cluster"].update(uid="another", server="https://elsewhere:6443"))
        ended = rollout(lab, *words)
        assert ended.code == 6, ended.stderr
        assert "is of another cluster, https://elsewhere:6443" in ended.stderr
        assert rebooted(lab) == set()
        assert rollout(lab, "abort", "--yes").code == 0
        assert (record(lab), lab.scoreboard().cordons_left) == (None, ())
