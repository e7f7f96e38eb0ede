"""A rollout's record on the cluster is lost, garbled, replaced or of another version.

Whoever may write ConfigMaps in the Lease's namespace can put anything there, and `resume` once went
on with what it could make of it: without the checks, the reboot command and the nodes that it did
not know of, and to the end, where it took the record away and ended with 0. The rule: what is not
understood is never dropped. A record is understood as a whole or not at all, reading it takes
bounded memory, nothing in it becomes a path, and without one nothing is resumed, but given back by
`abort`.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollout.adapters.kube.api import connect
from rollout.execution.record.record import read_record
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, command
from tests.apply.test_resume import APPLY, stopped_at
from tests.ended import end_of
from tests.security.hands import PACKED, PLAIN, mark, put_record
from tests.state import marks_of, record, run_of
from tests.waiting import wait_until

# Nodes stay begun until the process is dead, however late the machine is to kill it.
UNPASSED = ("--set", "gates.after-reboot-annotations=checks.example/after")
# Asked for the rollout, a gate command waits as long.
WAITS = """
import pathlib, sys, time
place = pathlib.Path(sys.argv[1])
(place / "asked").touch()
while not (place / "go").exists():
    time.sleep(0.02)
"""
TYPICAL = (
    "edited",
    "a newer format",
    "a newer rule",
    "a path as id",
    "deep",
    "no health",
    "no gzip",
    "a bomb",
)


@contextmanager
def interrupted(
    started: Started, home: Path, *flags: str, nodes: int = 5
) -> Iterator[tuple[Lab, str]]:
    """A rollout that was killed with a node in its reboot, or past it."""
    lab = started("default", nodes)
    node = stopped_at(lab, home, "booted", *UNPASSED, "--set", "lock.duration=3s", *flags)
    yield lab, node


def test_a_record_is_understood_as_a_whole_or_not_at_all(started: Started, tmp_path: Path) -> None:
    with interrupted(started, tmp_path) as (lab, _node):
        whole = record(lab)
        api = connect(lab.kubeconfig, None)
        assert whole is not None
        for name, (damage, says) in {**PLAIN, **PACKED}.items():
            put_record(lab, damage(whole))
            read = read_record(api, "kube-system")
            assert read is not None, name
            assert says in read.problem, name
            assert (name, read.plan, read.health) == (name, None, None)
        put_record(lab, whole)
        read = read_record(api, "kube-system")
        assert read is not None
        assert read.problem == ""
        assert read.plan is not None


@pytest.mark.parametrize("names", [TYPICAL[:4], TYPICAL[4:]], ids=["written", "packed"])
def test_a_record_that_is_not_understood_is_not_gone_on_with(
    started: Started, rollout: Rollout, tmp_path: Path, names: tuple[str, ...]
) -> None:
    with interrupted(started, tmp_path) as (lab, node):
        whole = record(lab)
        on_node = marks_of(lab, node)
        unlocked = ("--force-unlock", run_of(lab))
        assert whole is not None
        for name in names:
            damage, says = {**PLAIN, **PACKED}[name]
            put_record(lab, damage(whole))
            standing = record(lab)
            ended = rollout(lab, "resume", "--yes", *unlocked)
            assert (name, ended.code) == (name, 6), ended.stderr
            assert says in ended.stderr, name
            assert "rollout abort" in ended.stderr, name
            assert "bug" not in ended.stderr, ended.stderr
            assert (name, record(lab), marks_of(lab, node)) == (name, standing, on_node)
        assert not list(tmp_path.rglob("evil*"))
        put_record(lab, None)
        ended = rollout(lab, "resume", "--yes", *unlocked)
        assert (ended.code, record(lab), marks_of(lab, node)) == (6, None, on_node), ended.stderr
        assert "its record is gone" in ended.stderr


def test_whoever_only_looks_is_told_why_and_where_else_it_may_be(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """Another operator's settings name another namespace for lock and record."""
    with interrupted(started, tmp_path) as (lab, node):
        for words, code in (
            (("status", "--run"), 0),
            (("apply", "--yes"), 6),
            (("resume", "--yes"), 6),
        ):
            ended = rollout(lab, *words, "--set", "lock.namespace=default").ends(code)
            assert "another lock.namespace" in " ".join((ended.stdout + ended.stderr).split())
        whole = record(lab)
        assert whole is not None
        for damage, says in (PLAIN["deep"], PLAIN["no health"]):
            put_record(lab, damage(whole))
            shown = json.loads(rollout(lab, "status", "--run", "-o", "json").stdout)
            assert says in shown["problem"]
            assert node in shown["nodes"]
            for word in ("status", "plan", "doctor"):
                assert "bug" not in rollout(lab, word).stderr, word
            refused = rollout(lab, "apply", "--yes")
            assert refused.code == 6
            assert "rollout abort" in refused.stderr


def test_a_garbled_record_of_a_run_that_has_ended_is_not_written_over(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("never-returns", 5)
    rollout(lab, *APPLY, "--reboot-timeout", "4s").ends(4)
    whole = record(lab)
    assert whole is not None
    assert whole["metadata"]["annotations"]["node-rollout.dev/ended"] == "true"
    put_record(lab, PLAIN["edited"][0](whole))
    standing = record(lab)
    for words in (("apply", "--yes"), ("resume", "--yes"), ("resume", "--yes", "--retry-failed")):
        ended = rollout(lab, *words)
        assert (words, ended.code) == (words, 6), ended.stderr
        assert "rollout abort" in ended.stderr
    assert record(lab) == standing


def test_a_record_that_goes_after_it_was_read_is_not_made_anew(
    started: Started, tmp_path: Path
) -> None:
    """Somebody aborts, or deletes it, while the gate command is asked: the lock is held by then."""
    with interrupted(started, tmp_path) as (lab, node):
        on_node = marks_of(lab, node)
        asked = tmp_path / "asked"
        gate = tmp_path / "gate.py"
        gate.write_text(WAITS)
        words = (
            *("resume", "--yes", "--force-unlock", run_of(lab)),
            *("--set", f"gates.command={sys.executable} {gate} {tmp_path}"),
        )
        process = command(lab, tmp_path, *words)
        wait_until(asked.exists)
        put_record(lab, None)
        (tmp_path / "go").touch()
        ended = end_of(process).ends(6)
        assert "was changed or removed since it was read" in ended.stderr
        assert record(lab) is None
        assert marks_of(lab, node) == on_node


def test_an_id_on_a_node_is_no_path_either(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """Where the record is gone, the marks alone tell the run's id, and a kubelet may write on its
    own Node.
    """
    with interrupted(started, tmp_path, "--max-unavailable", "1") as (lab, node):
        put_record(lab, None)
        mark(lab, node, run="../../../../evil")
        rollout(lab, "resume", "--yes", "--force-unlock", run_of(lab)).ends(6)
        undone = rollout(lab, "abort", "--yes").ends(4)
        assert f"{node}: its rollout annotations cannot be read" in undone.stdout
        assert not list(tmp_path.rglob("evil*"))
        assert marks_of(lab, node)["run"] == "../../../../evil"
