"""Nights of an operating process: what it remembers of the ones before, and what pauses it."""

import json
import re
from pathlib import Path

import pytest

from rollout.gather.cluster.snapshot import node_path
from rollout.lab.api.access import Denial
from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.lab import Lab
from rollout.model.marks import MEMORY_NAME, REBOOT_NEEDED, SLOTS_NAME
from tests.apply.conftest import Rollout, Started, killed_at
from tests.apply.test_gates import AFTER, api_of
from tests.apply.test_memory import five_nights, harmed, let_pass, remembered
from tests.ended import Ended
from tests.operate.conftest import assert_untouched

ONCE = (
    *("operate", "--once", "-o", "json", "--settle-timeout", "5s"),
    *("--set", "waves.health-checks=1"),
)


@pytest.mark.sample
@pytest.mark.parametrize("verb", ["get", "update", "create"])
def test_without_a_right_to_its_memory_no_pass_begins(
    started: Started, rollout: Rollout, verb: str
) -> None:
    """Nobody watches the nights in which each harms one more."""
    lab = started("default", 4)
    name = "" if verb == "create" else MEMORY_NAME
    lab.call(lambda: lab.api.access.denials.add(Denial(verb, "configmaps", "kube-system", name)))
    five_nights(lab, rollout, *ONCE)
    ended = rollout(lab, *ONCE)
    assert (ended.code, f"{verb} configmaps {name}".strip() in ended.stderr) == (1, True), (
        ended.stderr
    )
    assert_untouched(lab)


def unwritable(lab: Lab) -> None:
    """Somebody has made the memory immutable; the rights to it are there."""
    metadata = {"name": MEMORY_NAME, "namespace": "kube-system"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True}
    lab.call(lambda: lab.store.create(CONFIGMAPS, config_map))


def test_a_pass_that_goes_on_without_a_memory_finishes_what_is_begun_and_no_more(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 5)
    node = killed_at(
        lab, tmp_path, "drained", *ONCE, "--max-unavailable", "1", "--set", "lock.duration=1s"
    )
    unwritable(lab)
    ended = rollout(lab, *ONCE)
    assert (ended.code, harmed(lab)) == (4, [node]), ended.stderr
    score = lab.scoreboard()
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.taints_left == ()
    assert all(
        "failures could not be recorded: " in why for why in ended.summary["reasons"].values()
    )
    again = rollout(lab, *ONCE)
    assert (again.code, harmed(lab)) == (6, [node]), again.stderr


@pytest.mark.sample
@pytest.mark.parametrize(
    ("text", "why"), [("{", "is invalid"), ('{"format_version": "7.0"}', "format 7.0")]
)
def test_beside_slots_of_fleetlock_that_are_not_understood_nothing_begins(
    started: Started, rollout: Rollout, text: str, why: str
) -> None:
    """Whose they are, and which hosts hold one, nobody can tell."""
    lab = started("default", 4)
    metadata = {"name": SLOTS_NAME, "namespace": "kube-system"}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"slots.json": text},
    }
    lab.call(lambda: lab.store.create(CONFIGMAPS, config_map))
    for command in (("operate", "--once"), ("apply", "--yes")):
        ended = rollout(lab, *command).ends(6)
        assert "ConfigMap kube-system/node-rollout-fleetlock" in ended.stderr
        assert why in ended.stderr
        assert "kubectl -n kube-system delete configmap node-rollout-fleetlock" in " ".join(
            ended.stderr.split()
        )
    assert_untouched(lab)
    lab.call(lambda: lab.store.remove(CONFIGMAPS, SLOTS_NAME, "kube-system"))
    rollout(lab, *ONCE, "--node", "worker-1").ends(0)


@pytest.mark.parametrize(
    ("flags", "settings", "why"),
    [
        (("--allow", "held"), "", "operate runs unattended"),
        (("--allow", "idle"), "", "--allow idle would reboot every node in each pass of operate"),
        (
            (),
            '[[pool]]\nname = "a"\nselector = "a=b"\nreboot-idle = true\n',
            "--allow idle would reboot every node",
        ),
    ],
)
def test_what_persons_decide_is_refused_unwatched(
    flags: tuple[str, ...],
    settings: str,
    why: str,
    started: Started,
    rollout: Rollout,
    tmp_path: Path,
) -> None:
    lab = started("default", 4)
    (tmp_path / "own.toml").write_text(settings)
    ended = rollout(lab, "operate", "--once", "--config", str(tmp_path / "own.toml"), *flags)
    assert (ended.code, why in ended.stderr, "hint: " in ended.stderr) == (64, True, True), (
        ended.stderr
    )
    assert_untouched(lab)


def test_a_host_whose_wish_for_a_reboot_comes_back_backs_off_after_two(
    started: Started, rollout: Rollout
) -> None:
    """It asks at every pass, ten minutes apart: two reboots, and an hour's rest; and it is told."""
    lab = started("sources", 12)
    host = lab.machines["worker-4"]
    flags = (*ONCE, "--set", "detect.sources=reboot-required", "--node", "worker-4")

    def a_pass(seconds: float) -> Ended:
        ended = rollout(lab, *flags)
        lab.call(lambda: host.files.update({"/run/reboot-required": ""}))
        let_pass(lab, seconds)
        return ended

    first = a_pass(600)
    second = a_pass(600)
    assert first.outcomes == {"worker-4": "succeeded"}
    assert second.outcomes == {"worker-4": "succeeded"}
    assert "as before" not in first.stdout
    assert "after 2 reboots in a row: it will not be rebooted again" in second.stdout
    resting = a_pass(600)
    assert (host.reboots, resting.outcomes) == (2, {}), resting.stderr
    assert "but its version did not change; it will not be rebooted again until" in str(
        resting.plan["excluded"]
    )
    shown = rollout(lab, "status").stdout
    assert any(
        line.startswith("worker-4 ")
        and re.search(r" was rebooted \S+ ago, but its version did not change", line)
        for line in shown.splitlines()
    ), shown
    assert "rollout release --node worker-4" in str(resting.plan["excluded"])
    let_pass(lab, 3600)
    a_pass(600)
    a_pass(600)
    assert host.reboots == 3
    assert remembered(lab)["nodes"]["worker-4"]["failures"] == 2
    rollout(lab, "release", "--node", "worker-4").ends(0)
    assert a_pass(0).outcomes == {"worker-4": "succeeded"}


# Nodes that failed in earlier runs and stay cordoned: they use up the limit of every run until they
# are given back.


# A check that passes nowhere.
RULES = (
    *("--set", "detect.sources=annotation", "--set", f"gates.after-reboot-annotations={AFTER}"),
    *("--set", "gates.hook-timeout=1s", "--max-failures", "1"),
    *("-o", "json", "--settle-timeout", "3s", "--set", "waves.health-checks=1"),
)
OPERATE = ("operate", "--once", *RULES)
APPLY = ("apply", "--yes", *RULES)


def asking(lab: Lab) -> Lab:
    """All its nodes ask for a reboot."""
    for name in lab.machines:
        api_of(lab).patch(node_path(name), {"metadata": {"annotations": {REBOOT_NEEDED: "true"}}})
    return lab


def test_they_keep_every_further_run_from_beginning_and_are_named(
    started: Started, rollout: Rollout
) -> None:
    lab = asking(started("default", 6))
    rollout(lab, *OPERATE).ends(4)
    (failed,) = lab.scoreboard().cordons_left
    for again in (OPERATE, APPLY, OPERATE):
        ended = rollout(lab, *again).ends(6)
        assert f"{failed}  failed in rollout " in ended.stderr
        assert "uses up --max-unavailable 1 → `rollout abort` uncordons it" in ended.stderr
    score = lab.scoreboard()
    assert score.cordons_left == (failed,)
    assert sum(score.reboots.values()) == 1
    assert score.most_unavailable == 1
    rollout(lab, "abort", "--yes").ends(0)
    assert not json.loads(
        rollout(lab, "plan", "-o", "json", "--set", "detect.sources=annotation").stdout
    )["blockers"]


def test_as_failures_they_count_in_their_own_run_alone(started: Started, rollout: Rollout) -> None:
    lab = asking(started("default", 6))
    two = ("--max-unavailable", "2", "--disable-eviction")
    rollout(lab, *OPERATE, *two, "--canary", "1").ends(4)
    assert len(lab.scoreboard().cordons_left) == 1
    rollout(lab, *OPERATE, *two).ends(4)
    rollout(lab, *OPERATE, *two).ends(6)
    score = lab.scoreboard()
    assert len(score.cordons_left) == 2
    assert score.most_unavailable == 2


def test_a_node_that_failed_is_tried_again_after_its_rest(
    started: Started, rollout: Rollout
) -> None:
    """Its drain fails each time. Nobody is told twice of one failure."""
    lab = started("budget-never", 4)
    flags = ("--allow", "blocked", "--drain-timeout", "1s")
    (node,) = rollout(lab, *ONCE, *flags).failures
    assert remembered(lab)["nodes"][node]["failures"] == 1
    let_pass(lab, 0.9 * 3600)
    early = rollout(lab, *ONCE, *flags)
    assert early.summary["left_out"]["failed-recently"] == 1
    assert node not in early.failures
    let_pass(lab, 0.2 * 3600)
    assert list(rollout(lab, *ONCE, *flags).failures) == [node]
    assert remembered(lab)["nodes"][node]["failures"] == 2
    assert "Cleared the failures of: " in rollout(lab, "release", "--node", node).stdout
    assert list(rollout(lab, *ONCE, *flags).failures) == [node]
