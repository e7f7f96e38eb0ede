"""Who does not watch a rollout hears of it: a real endpoint receives what the real program sends,
and asserts on it.
"""

import json
import re
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rollout.lab.api.resources import CONFIGMAPS, EVENTS, NODES
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started
from tests.ended import Ended, end_of, invoked, start
from tests.scripted_api import Exchange, scripted
from tests.waiting import TOKEN, Inbox

PASSWORD = "pa55w0rd"
LONGEST_FAREWELL = 5.0
# for a busy machine to end a process in
SOME_SECONDS = 5.0


def notified(lab: Lab, home: Path, url: str, *arguments: str) -> Ended:
    """Run the program with its URLs in the environment, as a CronJob has them."""
    return invoked(home, {**lab.environment, "ROLLOUT_NOTIFY": url}, arguments)


def test_a_rollout_over_waves(inbox: Inbox, started: Started, tmp_path: Path) -> None:
    lab = started("default", 5)
    ended = notified(
        lab, tmp_path, inbox.url, "apply", "--yes", "-o", "json", "--max-unavailable", "2"
    ).ends(0)
    assert ended.stderr == ""
    waves = len(ended.plan["waves"])
    assert waves > 1
    assert inbox.events() == ["started", *["wave-done"] * waves, "finished"]
    assert {note["run"] for note in inbox.notes} == {ended.plan["plan_id"]}
    assert {note["server"] for note in inbox.notes} == {ended.plan["cluster"]["server"]}
    first, *done, last = inbox.notes
    count = ended.plan["summary"]["nodes"]
    staged = ended.plan["waves"][0]["nodes"][0]["staged_version"]
    assert first["level"] == "info"
    assert first["title"].endswith(f": rollout started: {count} nodes to {staged}")
    assert f"{count} nodes in {waves} waves" in first["body"]
    assert [
        f": wave {index} of {waves}: " in note["title"] for index, note in enumerate(done, start=1)
    ] == [True] * waves
    assert f"{count} of {count} nodes finished" in done[-1]["body"]
    assert last["state"] == "completed"
    assert last["level"] == "success"
    assert last["next"] == ""
    assert last["title"].endswith(f": rollout completed: {count} nodes succeeded")


def test_a_node_that_fails(inbox: Inbox, started: Started, tmp_path: Path) -> None:
    lab = started("rollback", 5)
    ended = notified(
        lab, tmp_path, inbox.url, "apply", "--yes", "-o", "json", "--set", "cluster.name=prod-1"
    ).ends(4)
    failure = ended.failures["worker-2"]
    note = inbox.one("node-failed")
    assert {"node": "worker-2", "level": "failure", "cluster": "prod-1"}.items() <= note.items()
    assert note["body"].startswith(f"Phase {failure['phase']}: {failure['message']}\n")
    assert note["title"] == "prod-1: worker-2 failed: rolled-back"
    assert "Next: kubectl describe node worker-2" in note["body"].splitlines()
    held = inbox.one("version-held")
    (staged,) = {node["staged_version"] for wave in ended.plan["waves"] for node in wave["nodes"]}
    assert held["next"] == f"rollout release {staged}"
    last = inbox.notes[-1]
    assert last["event"] == "finished"
    assert last["state"] == "failed"
    assert "Failed: worker-2." in last["body"]
    release = f"after fixing worker-2: rollout release {staged}"
    assert last["next"] == f"See: rollout status; {release}; then: rollout resume --retry-failed"
    number = len(ended.summary["not_started"])
    assert re.search(f", {number} (was|were) not started", last["title"])


def test_an_eviction_that_a_budget_holds(inbox: Inbox, started: Started, tmp_path: Path) -> None:
    lab = started("budget-never", 7)
    flags = (
        *("--allow", "blocked", "--drain-timeout", "5s", "--settle-timeout", "1s"),
        *("--set", "notify.held-after=1s"),
    )
    ended = notified(lab, tmp_path, inbox.url, "apply", "--yes", "-o", "json", *flags).ends(4)
    note = inbox.one("held")
    blocked = next(line for line in ended.lines if line["type"] == "blocked")
    assert note["node"] == blocked["node"]
    assert note["level"] == "warning"
    assert f"Pod {blocked['pod']} ({blocked['owner']}) cannot be evicted: " in note["body"]
    assert note["next"] == "kubectl describe pdb -n shop ledger"
    assert f"{note['node']} has been blocked by PDB shop/ledger for " in note["title"]
    assert "needs 2 healthy, has 2" in note["body"]


def test_a_rollout_that_a_signal_stops_and_its_resumption(
    inbox: Inbox, started: Started, tmp_path: Path
) -> None:
    lab = started("default", 6)
    process = start(
        tmp_path, {**lab.environment, "ROLLOUT_NOTIFY": inbox.url}, ["apply", "--yes", "-o", "json"]
    )
    inbox.wait_for("wave-done")
    process.send_signal(signal.SIGTERM)
    ended = end_of(process).ends(130)
    last = inbox.notes[-1]
    assert last["event"] == "finished"
    assert last["state"] == "interrupted"
    assert last["level"] == "warning"
    number = len(ended.summary["not_started"])
    assert re.search(f", {number} (was|were) not started", last["title"])
    assert last["next"] == "rollout resume"
    inbox.exchanges.clear()
    notified(lab, tmp_path, inbox.url, "resume", "--yes").ends(0)
    first = inbox.one("started")
    assert "rollout resumed: " in first["title"]
    assert inbox.one("finished")["state"] == "completed"


def hang(exchange: Exchange) -> None:
    exchange.wait()


def fail(exchange: Exchange) -> None:
    exchange.answer(500, f"no {TOKEN}".encode())


def garble(exchange: Exchange) -> None:
    exchange.answer(503, b"", **{f"no header: {TOKEN}\r\n\x00 \r\nX": TOKEN})


def redirect(exchange: Exchange) -> None:
    exchange.answer(302, b"", Location=f"/elsewhere/{TOKEN}")


@pytest.mark.exhaustive
def test_destinations_that_fail_neither_delay_a_rollout_nor_each_other_nor_show_their_secrets(
    inbox: Inbox, started: Started, tmp_path: Path
) -> None:
    lab = started("default", 4)
    with (
        scripted(hang) as hanging,
        scripted(fail) as failing,
        scripted(garble) as odd,
        scripted(redirect) as moved,
    ):
        urls = [
            f"{server.url}/{TOKEN}".replace("//", f"//u:{PASSWORD}@")
            for server in (hanging, failing, odd, moved)
        ]
        urls.append(f"http://127.0.0.1:1/{TOKEN}")
        environment = {**lab.environment, "ROLLOUT_NOTIFY": " ".join([*urls, inbox.url])}
        ended = invoked(
            tmp_path, environment, ["apply", "--yes", "-v", "-o", "json", "--max-unavailable", "2"]
        )
        now = datetime.now(UTC)
        attempts = [
            [exchange.payload for exchange in server.exchanges] for server in (failing, moved)
        ]
        elsewhere = [exchange.path for exchange in moved.exchanges if "elsewhere" in exchange.path]
    assert ended.code == 0, ended.stderr
    assert (
        now - datetime.fromisoformat(ended.summary["at"])
    ).total_seconds() < LONGEST_FAREWELL + SOME_SECONDS
    assert inbox.events()[0] == "started"
    assert inbox.events()[-1] == "finished"
    warnings = [line for line in ended.stderr.splitlines() if line.startswith("warning:")]
    ports = {
        server.server_port: word
        for server, word in (
            (failing, "responds with status 500"),
            (moved, "responds with status 302"),
        )
    }
    for port, word in ports.items():
        (warning,) = [line for line in warnings if f"http://127.0.0.1:{port}:" in line]
        assert warning == f"warning: notifications to http://127.0.0.1:{port}: it {word}"
    assert (
        "warning: notifications to http://127.0.0.1:1: it cannot be reached: Connection refused"
        in warnings
    )
    assert f"warning: notifications to http://127.0.0.1:{hanging.server_port}: " in ended.stderr
    assert len(warnings) == len(urls)
    assert TOKEN not in ended.stdout + ended.stderr
    assert PASSWORD not in ended.stdout + ended.stderr
    # tried again where that may help, and only there
    assert [len(payloads) > len({*payloads}) for payloads in attempts] == [True, False]
    assert elsewhere == []


def test_by_apprise(started: Started, tmp_path: Path) -> None:
    lab = started("rollback", 4)
    with scripted(lambda exchange: exchange.answer(200, b"")) as server:
        url = server.url.replace("http:", "json:") + f"/{TOKEN}"
        ended = notified(lab, tmp_path, url, "apply", "--yes", "--node", "worker-2")
        messages = [json.loads(exchange.payload) for exchange in server.exchanges]
    assert ended.code == 4
    assert "warning:" not in ended.stderr
    titles = [(message["title"].partition(": ")[2], message["type"]) for message in messages]
    assert titles[1:] == [
        ("worker-2 failed: rolled-back", "failure"),
        ("wave 1 of 1: 1 node finished, 1 failed", "warning"),
        ("version 4152.2.0 is held", "warning"),
        ("rollout failed: 0 nodes succeeded, 1 failed", "failure"),
    ]
    step = "Next: Version 4152.2.0 is held. After fixing worker-2: rollout resume --retry-failed"
    assert step in messages[-1]["message"]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--set", f"notify.url={TOKEN}"], "notification URL 1 has no scheme"),
        (["--set", f"notify.url=https:///{TOKEN}"], "notification URL 1 is not a webhook URL"),
        (
            ["--set", f"notify.url=https://h:port/{TOKEN}"],
            "notification URL 1 is not a webhook URL",
        ),
        (["--set", f"notify.url=https://:443/{TOKEN}"], "notification URL 1 is not a webhook URL"),
        (
            ["--set", "notify.url=https://h", "--set", f"notify.url=nosuch://{TOKEN}"],
            "nosuch:// (URL 2) is not a URL that Apprise",
        ),
        (
            ["--set", f"notify.url=slack://{TOKEN}"],
            "slack:// (URL 1) is not a URL that Apprise understands",
        ),
        (
            ["--set", "notify.on=everything"],
            "notify.on: 'everything' is not one of started, wave-done",
        ),
        (["--set", "notify.held-after=0s"], "0s leaves no time"),
        (["--config", "list.toml"], "list.toml:2: notify.url: expected a string"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(
    flags: list[str], complaint: str, rollout: Rollout, tmp_path: Path
) -> None:
    (tmp_path / "list.toml").write_text(f'[notify]\nurl = [["https://h/{TOKEN}"]]')
    ended = invoked(
        tmp_path, {"KUBECONFIG": "/nonexistent"}, ["apply", "--yes", "-v", *flags]
    ).ends(64)
    assert complaint in ended.stderr
    assert TOKEN not in ended.stdout + ended.stderr


def test_secrets_stand_nowhere(inbox: Inbox, started: Started, tmp_path: Path) -> None:
    lab = started("default", 4)
    url = inbox.url.replace("//", f"//user:{PASSWORD}@")
    environment = {**lab.environment, "ROLLOUT_NOTIFY": url}
    planned = invoked(tmp_path, environment, ["plan", "--out", "saved.plan", "-v"])
    gate = "sh -c 'env >> gate-environment'"
    flags = (
        *("--set", "output.journal=journal", "-v", "-o", "json", "--set", f"gates.command={gate}"),
    )
    process = start(tmp_path, environment, ["apply", "saved.plan", *flags])
    inbox.wait_for("wave-done")
    objects = lab.call(
        lambda: [json.dumps(lab.store.items(kind)) for kind in (CONFIGMAPS, NODES, EVENTS)]
    )
    ended = end_of(process).ends(0)
    files = [tmp_path / name for name in ("saved.plan", "journal", "gate-environment")]
    assert all(file.stat().st_size for file in files)
    assert "node-rollout" in objects[0]
    for text in (*objects, *(file.read_text() for file in files), planned.stdout, planned.stderr):
        assert TOKEN not in text
        assert PASSWORD not in text
    assert TOKEN not in ended.stdout + ended.stderr
    # and yet they were used
    assert all(TOKEN in exchange.path for exchange in inbox.exchanges)
    assert {exchange.headers["Authorization"] for exchange in inbox.exchanges} == {
        "Basic dXNlcjpwYTU1dzByZA=="
    }
