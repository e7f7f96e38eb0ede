"""The standing process: pass after pass, by the settings of now, whatever goes wrong; and who takes
over.
"""

import http.client
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import PODS
from rollout.lab.lab import Lab
from tests.apply.conftest import (
    Rollout,
    Scrape,
    Started,
    await_down,
    boot,
    command,
    complaints,
    lose_hosts,
)
from tests.apply.test_own_node import MARK
from tests.ended import Ended, end_of, invoked, start
from tests.operate.conftest import ONCE, RULES, assert_all_done, assert_untouched, open_now
from tests.state import lease_of, node_of
from tests.waiting import Overheard, wait_until

CALM = ("--every", "1s", "--max-unavailable", "2", "--set", "waves.health-checks=1")


Begin = Callable[..., Overheard]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    running: list[Overheard] = []

    def start(lab: Lab, *arguments: str) -> Overheard:
        running.append(Overheard(command(lab, tmp_path, "operate", *CALM, *arguments)))
        return running[-1]

    yield start
    for standing in running:
        standing.end(signal.SIGKILL)


def test_it_makes_pass_after_pass_and_ends_well_while_it_is_idle(
    started: Started, begin: Begin
) -> None:
    lab = started("default", 4)
    standing = begin(lab)
    standing.await_words("Nothing to do")
    assert_all_done(lab)
    standing.await_words("Nothing to do", len(standing.said))
    assert standing.end() == 0
    assert standing.said[-1] == "stopped on request: no more passes will run\n"
    assert lease_of(lab)["spec"]["holderIdentity"] == ""


def test_an_api_server_that_is_away_costs_a_pass_and_no_more(
    started: Started, begin: Begin
) -> None:
    lab = started("default", 4)
    standing = begin(lab, "--window", open_now(hours=6))
    standing.await_words("outside the maintenance window")
    before = len(standing.said)
    lab.run(lambda: lab.api.outage(480))
    standing.await_words("error: ", before)
    standing.await_words("outside the maintenance window", len(standing.said))
    assert standing.end() == 0
    assert_untouched(lab)


def test_one_works_and_the_other_stands_by_and_takes_over(started: Started, begin: Begin) -> None:
    """Once the Lease has run out, and though its own next pass is an hour away."""
    lab = started("default", 4)
    other = begin(lab, "--every", "1h", "--set", "lock.duration=4s", "--window", open_now(hours=6))
    other.await_words("outside the maintenance window")
    other.end()
    lab.call(lambda: lose_hosts(lab))
    leader = begin(lab, "--every", "1h", "--set", "lock.duration=4s", "--max-unavailable", "1")
    node = await_down(lab)
    follower = begin(lab, "--every", "1h", "--set", "lock.duration=4s", "--max-unavailable", "1")
    follower.await_words("No node can be rebooted now: a rollout is running on")
    leader.end(signal.SIGKILL)
    wait_until(
        lambda: lease_of(lab)["spec"]["holderIdentity"].endswith(f"/{follower.process.pid}"), 60
    )
    boot(lab, node)
    wait_until(lambda: set(lab.scoreboard().reboots.values()) == {1}, 60)
    assert follower.end() == 0
    assert_all_done(lab)


LISTEN = ("--set", "metrics.listen=127.0.0.1:0")


def answer(port: int, path: str, host: str = "127.0.0.1", **headers: str) -> tuple[int, str, str]:
    """Status, body and kind of what is served there."""
    connection = http.client.HTTPConnection(host, port, timeout=120)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body, response.headers["Content-Type"]


def scrape(port: int) -> Scrape:
    status, body, kind = answer(port, "/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=")
    return Scrape(body)


def until(port: int, fits: Callable[[Scrape], bool], seconds: float = 60) -> Scrape:
    end = time.monotonic() + seconds
    while not fits(seen := scrape(port)):
        assert time.monotonic() < end, seen.text
        time.sleep(0.1)
    return seen


@contextmanager
def operating(lab: Lab, home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A standing process and its port, which it has said."""
    process = command(lab, home, "operate", "--set", "waves.health-checks=1", *arguments)
    assert process.stderr is not None
    try:
        said = next(
            line for line in iter(process.stderr.readline, "") if line.startswith("metrics: ")
        )
        port = re.fullmatch(r"metrics: http://\S+:(\d+)/metrics\n", said)
        assert port, said
        yield process, int(port[1])
    finally:
        process.kill()
        process.communicate()


def test_a_standing_process_is_scraped_while_it_works_and_while_it_waits(
    started: Started, tmp_path: Path
) -> None:
    lab = started("default", 4)
    with operating(lab, tmp_path, "--every", "1h", *LISTEN) as (process, port):
        assert answer(port, "/healthz")[:2] == (200, "ok\n")
        assert answer(port, "/metrics?name[]=node_rollout_build_info")[1].count("\n") == 3
        working = until(port, lambda seen: seen.value("node_rollout_running") == 1)
        assert working.value("node_rollout_waves") == 4
        assert answer(port, "/readyz")[0] == 200
        status, page, kind = answer(port, "/")
        assert (status, kind) == (200, "text/html; charset=utf-8")
        assert "running: " in page
        assert "Refreshes every 5 s" in page
        waiting = until(port, lambda seen: bool(seen.values("node_rollout_last_pass_result")))
        assert complaints(waiting) == ""
        assert waiting.values("node_rollout_nodes", "phase") == {"done": 4}
        assert waiting.values("node_rollout_passes_total", "result") == {"ok": 1}
        assert waiting.value("process_resident_memory_bytes") > 1e6
        # A page is kept for a second.
        wait_until(lambda: "completed: 4 nodes done" in answer(port, "/")[1], 20)
        past = re.search(r'href="(/runs/\w+)"', answer(port, "/")[1])
        assert past
        assert "completed: 4 nodes done" in answer(port, past[1])[1]
        assert answer(port, "/runs/0")[:2] == (
            404,
            "available paths: / /metrics /healthz /readyz\n",
        )
        assert answer(port, "/", Host="evil.example")[0] == 421
        process.send_signal(signal.SIGTERM)
        end_of(process).ends(0)


def test_a_process_that_cannot_read_the_cluster_is_healthy_and_not_ready(
    started: Started, tmp_path: Path
) -> None:
    lab = started("no-rights", 4)
    with operating(lab, tmp_path, "--every", "1h", *LISTEN) as (_, port):
        until(
            port, lambda now: now.values("node_rollout_last_pass_result", "result") == {"error": 1}
        )
        assert answer(port, "/healthz")[0] == 200
        assert answer(port, "/readyz") == (
            503,
            "not ready: see the log of the last pass\n",
            "text/plain; charset=utf-8",
        )


POD = "kube-system/rollout-1"


def environment(lab: Lab, node: str, pod: str = POD) -> dict[str, str]:
    namespace, _, name = pod.partition("/")
    own = {"ROLLOUT_NODE_NAME": node, "ROLLOUT_POD_NAMESPACE": namespace, "ROLLOUT_POD_NAME": name}
    return {**lab.environment, **own}


def create_pod(lab: Lab, node: str) -> None:
    """The process's own, of a ReplicaSet that the lab does not play."""
    namespace, _, name = POD.partition("/")
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "rollout",
        "uid": "uid-rollout",
        "controller": True,
    }
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "ownerReferences": [owner],
    }
    spec = {"nodeName": node, "containers": [{"name": "rollout", "image": "rollout"}]}
    conditions = [{"type": "Ready", "status": "True"}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Running", "conditions": conditions},
    }
    lab.call(lambda: lab.store.create(PODS, body))


def test_a_standing_process_has_its_own_pod_moved_once(started: Started, tmp_path: Path) -> None:
    """Else no pod would ever stand elsewhere. One that comes to the same node all the same stays
    there.
    """
    lab = started("default", 5)
    create_pod(lab, "worker-2")
    process = start(tmp_path, environment(lab, "worker-2"), ("operate", "--every", "1s", *RULES))
    wait_until(lambda: is_evicted(lab), 90)
    process.terminate()
    ended = end_of(process)
    assert f"{POD} is evicted" in ended.stderr
    assert MARK in node_of(lab, "worker-2")["metadata"]["annotations"]
    second = invoked(tmp_path, environment(lab, "worker-1", "kube-system/rollout-2"), ONCE).ends(0)
    assert second.summary["succeeded"] == ["worker-2"]
    assert_all_done(lab)


def is_evicted(lab: Lab) -> bool:
    namespace, _, name = POD.partition("/")
    pod = lab.call(lambda: lab.store.get(PODS, name, namespace))
    return pod is None or "deletionTimestamp" in pod["metadata"]


# A pod's log outlives its files: what `kubectl logs` prints of operating processes is the journal
# of their runs.


# Of what a pod writes to stderr; of another container; and a line that was cut off.
NOISE = (
    "warning: Node worker-1: a word",
    '{"level":"info","msg":"sidecar"}',
    '{"type":"step","at":"2026-11',
)


def report_of(home: Path, log: str, *arguments: str) -> Ended:
    (home / "pods.log").write_text(log)
    with (home / "pods.log").open() as stdin:
        return end_of(start(home, {}, ("report", "-", *arguments), stdin=stdin.fileno()))


@pytest.mark.exhaustive
def test_a_report_is_made_of_pods_logs_as_kubectl_prints_them(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """One pass is killed, the next goes on, a third finds nothing to do; each is a pod with a
    prefix of its own.
    """
    lab = started("default", 4)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    killed = start(tmp_path, lab.environment, ONCE)
    assert killed.stdout is not None
    lines = []
    for line in killed.stdout:
        lines.append(line)
        if '"phase":"rebooting"' in line:
            break
    killed.kill()
    killed.communicate()
    passes = ["".join(lines), *(rollout(lab, *ONCE).stdout for _ in range(2))]
    log = "".join(
        f"[pod/now-{number}/rollout] 2026-11-23T01:00:00.0Z {line}{noise}\n"
        for number, text in enumerate(passes)
        for line, noise in zip(text.splitlines(keepends=True), (*NOISE, *[""] * 1000), strict=False)
    )
    told = report_of(elsewhere, log, "-o", "json").ends(ExitCode.OK)
    from_log: dict[str, Any] = json.loads(told.stdout)
    from_journal: dict[str, Any] = json.loads(rollout(lab, "report", "-o", "json").stdout)
    assert from_log.pop("gaps") == [
        "Left out of the journal: 3 lines cut off, damaged or unknown to this version of rollout."
    ]
    assert from_journal.pop("gaps") == []
    assert len(from_log["commands"]) == 2
    assert from_log == from_journal


def test_sigterm_finishes_what_is_in_flight_and_ends_well(started: Started, begin: Begin) -> None:
    lab = started("default", 5)
    standing = begin(lab, "--max-unavailable", "1")
    wait_until(lambda: bool(lab.scoreboard().cordons_left))
    assert standing.end() == 0
    score = lab.scoreboard()
    assert sum(score.reboots.values()) == 1
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.taints_left == ()


# What never ends costs a pass, and no more.


OFTEN = ("--every", "1s", "--max-unavailable", "2", *LISTEN)


def passes(seen: Scrape) -> dict[str, float]:
    """How many have ended, by result."""
    return seen.values("node_rollout_passes_total", "result")


@pytest.mark.exhaustive
@pytest.mark.sample
def test_a_gate_command_that_never_ends_is_ended_with_the_time_of_the_pass(
    started: Started, tmp_path: Path
) -> None:
    lab = started("default", 4)
    gate = (
        *("--set", "gates.command=sleep 1000", "--set", "gates.timeout=1h"),
        *("--active-deadline", "3s"),
    )
    with operating(lab, tmp_path, *OFTEN, *gate) as (_, port):
        until(port, lambda seen: sum(passes(seen).values()) >= 2)
        assert answer(port, "/healthz")[0] == 200
    assert_untouched(lab)


@pytest.mark.exhaustive
def test_an_api_server_that_hangs_is_waited_for_in_sight_and_the_pass_goes_on(
    started: Started, tmp_path: Path
) -> None:
    """The Lease goes unrenewed meanwhile, so that another process may take over; here none does."""
    lab = started("default", 4)
    with operating(lab, tmp_path, *OFTEN, "--set", "lock.duration=4s") as (_, port):
        wait_until(lambda: bool(lab.scoreboard().cordons_left))
        renewed = lease_of(lab)["spec"]["renewTime"]
        hangs = ApiFault(answer=FaultAnswer.HANG, resource="leases")
        before = time.time()
        lab.inflict(hangs, ApiFault(answer=FaultAnswer.HANG))
        wait_until(lambda: lab.struck(hangs) >= 2)
        hanging = scrape(port)
        assert 0 < hanging.value("node_rollout_pass_start_timestamp_seconds") <= before
        assert hanging.value("node_rollout_running") == 1
        assert answer(port, "/healthz")[0] == 200
        lab.call(lab.faults.clear)
        until(port, lambda seen: passes(seen).get("ok", 0) >= 1, 240)
        assert scrape(port).value("node_rollout_running") == 0
        assert lease_of(lab)["spec"]["renewTime"] > renewed
        assert_all_done(lab)
