"""What is heard of passes that nobody watches, and that the same is not heard every ten minutes."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from rollout.lab.lab import Lab
from tests.apply.conftest import Started
from tests.ended import end_of, invoked, start
from tests.operate.conftest import ONCE, open_now
from tests.waiting import Inbox, wait_until


def environment(lab: Lab, inbox: Inbox) -> dict[str, str]:
    return {**lab.environment, "ROLLOUT_NOTIFY": inbox.url}


def stopped_after(
    passes: int, process: subprocess.Popen[str], is_pass: Callable[[str], bool]
) -> str:
    """End a standing loop after so many of its passes; what it wrote to standard error."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        passes -= is_pass(line)
        if not passes:
            break
    process.send_signal(signal.SIGTERM)
    ended = end_of(process).ends(0)
    return "".join(lines) + ended.stderr


def test_a_pass_with_work_is_told_and_one_without_or_outside_its_window_is_not(
    inbox: Inbox, started: Started, tmp_path: Path
) -> None:
    lab = started("default", 4)
    closed = invoked(tmp_path, environment(lab, inbox), [*ONCE, "--window", open_now(hours=6)])
    assert closed.code == 0
    assert inbox.notes == []
    invoked(tmp_path, environment(lab, inbox), ONCE).ends(0)
    assert inbox.events()[0] == "started"
    assert inbox.one("finished")["state"] == "completed"
    inbox.exchanges.clear()
    invoked(tmp_path, environment(lab, inbox), ONCE).ends(0)
    assert inbox.notes == []


def test_what_a_pass_leaves_to_the_next_is_no_trouble(
    inbox: Inbox, started: Started, tmp_path: Path
) -> None:
    lab = started("default", 4)
    # no node is estimated to be back by then
    ended = invoked(tmp_path, environment(lab, inbox), [*ONCE, "--active-deadline", "2m"]).ends(0)
    note = inbox.one("finished")
    assert note["state"] == "interrupted"
    assert note["level"] == "info"
    assert note["next"] == "The next pass reboots the remaining nodes."
    assert note["title"].endswith(", 4 were not started")
    assert note["body"].startswith(next(iter(ended.summary["reasons"].values())))


def test_passes_that_fail_alike_are_told_once(inbox: Inbox, tmp_path: Path) -> None:
    variables = {"KUBECONFIG": "/nonexistent/s3cr3t", "ROLLOUT_NOTIFY": inbox.url}
    process = start(tmp_path, variables, ["operate", "--every", "1s", "--set", "cluster.name=prod"])
    stderr = stopped_after(3, process, lambda line: "error:" in line)
    (note,) = inbox.notes
    assert note["event"] == "finished"
    assert note["state"] == "failed"
    assert note["cluster"] == "prod"
    assert note["body"].partition(".\n")[0] in stderr
    assert note["next"] == "rollout doctor"
    assert note["title"] == "prod: rollout failed"


def test_a_node_that_stays_unreachable_is_told_once(
    inbox: Inbox, started: Started, tmp_path: Path
) -> None:
    lab = started("idle", 4)
    lab.call(lab.machines["worker-1"].cut_power)
    flags = ("operate", "--every", "1s", "--set", "ssh.probe-timeout=2s")
    process = start(tmp_path, environment(lab, inbox), flags)
    wait_until(lambda: bool(inbox.notes))
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        seen += line.startswith("! worker-1  not-ready: ")
        if seen == 3:
            break
    process.send_signal(signal.SIGTERM)
    end_of(process).ends(0)
    (note,) = inbox.notes
    assert note["state"] == "failed"
    assert "Not done: worker-1." in note["body"]
