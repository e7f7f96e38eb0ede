"""`rollout report` as a user runs it: of a real run in which much went wrong, of one under way, and
of what is none.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from rollout.adapters.journal import JournalFile, Record
from rollout.cli.stages.observers import _Journal
from rollout.errors import ExitCode
from rollout.lab.scenario import load_scenario
from rollout.model.progress import Notice
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.docs.test_json_schema import check
from tests.ended import start
from tests.report.journals import Night, as_lines
from tests.report.test_pages import Page
from tests.waiting import wait_until

NIGHT = Path(__file__).parents[1] / "report" / "night.yaml"


LIMITS = ("--max-unavailable", "4", "--max-failures", "5", "--window", "00:00 24h")


PATIENCE = ("--allow", "blocked", "--drain-timeout", "8s", "--reboot-timeout", "8s")


NODES = ("--node", "worker-1", "--node", "worker-2", "--node", "worker-5", "--node", "worker-8")


@pytest.fixture
def journal(home: Path) -> Path:
    """A good run, where journals are kept."""
    return kept(home, Night())


def kept(
    home: Path,
    night: Night,
    run: str = "0123456789abcdef",
    server: str = "https://prod.example:6443",
) -> Path:
    runs = home / ".local" / "state" / "rollout" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    path = runs / f"{run}.jsonl"
    said = {"run": run, "cluster": {"uid": server, "server": server}}
    path.write_bytes(
        as_lines({**entry, **said} if "run" in entry else entry for entry in night.records())
    )
    return path


def test_a_run_in_which_nodes_failed_and_pods_were_held(
    start_lab: StartLab, command: Command, home: Path
) -> None:
    lab = start_lab(load_scenario(str(NIGHT)))
    ended = command("apply", "--yes", *NODES, *LIMITS, *PATIENCE, "-o", "json", lab=lab).ends(
        ExitCode.PARTIAL
    )
    failed = set(ended.failures)
    assert {"worker-2", "worker-5", "worker-8"} <= failed

    told = json.loads(command("report", "-o", "json").stdout)
    check("report", told)
    assert told["run"] == ended.plan["plan_id"]
    assert told["ending"] == "incomplete"
    assert {failure["node"] for failure in told["failures"]} == failed
    assert any(
        hold["event"]["budget"] == "shop/ledger" and not hold["released"] for hold in told["holds"]
    )
    assert sum(part["seconds"] for part in told["parts"]) == pytest.approx(told["seconds"], abs=0.1)
    assert told["openings"]

    written = command("report", "--out", "night.html", lab=lab).ends(ExitCode.OK)
    which, where = written.stderr.splitlines()
    assert which == f"The last run: {told['run']}."
    assert where == "Written to night.html."
    words = " ".join(Page((home / "night.html").read_text(encoding="utf-8")).words)
    assert all(failure["message"] in words for failure in told["failures"])
    assert "shop/ledger" in words

    markdown = command("report", told["run"][:6])
    assert re.match(r"## `127\.0\.0\.1:\d+, \w{3} [\d-]+`: incomplete: ", markdown.stdout)
    assert f"- Run: `{told['run']}`\n" in markdown.stdout
    assert "`worker-2`" in markdown.stdout
    assert "`rolled-back in phase ready`" in markdown.stdout


def test_a_run_that_goes_on(start_lab: StartLab, command: Command, home: Path) -> None:
    lab = start_lab(nodes=4, speed=10)
    process = start(
        home, lab.environment, ("apply", "--yes", "--set", "output.journal=night.jsonl")
    )
    try:
        wait_until(lambda: b'"phase":"draining"' in written(home / "night.jsonl"), 120)
        told = json.loads(command("report", "night.jsonl", "-o", "json").stdout)
    finally:
        process.kill()
        process.communicate()
    check("report", told)
    assert told["ending"] == "running"
    assert "The run has not ended. This report shows its progress so far." in told["gaps"]
    assert any(node["phases"] for node in told["nodes"])


def written(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("a.html", "<!DOCTYPE html>"),
        ("a.HTM", "<!DOCTYPE html>"),
        ("a.md", "## "),
        ("a.json", "{"),
        ("a.txt", "## "),
    ],
)
def test_the_ending_of_the_file_says_the_format(
    name: str, begins: str, command: Command, home: Path, journal: Path
) -> None:
    (home / name).write_text("of yesterday")
    command("report", str(journal), "--out", name).ends(ExitCode.OK)
    assert (home / name).read_text(encoding="utf-8").startswith(begins)
    command("report", "--out", name, "-o", "json").ends(ExitCode.OK)
    assert (home / name).read_text(encoding="utf-8").startswith("{")


NEWER = b'{"type": "node_charged", "at": "2026-03-04T22:00:05Z", "node": "worker-1"}\n'


# What became of a journal: its bytes, and what a report says of them.
DAMAGED: Mapping[str, tuple[Callable[[bytes], bytes], Sequence[str]]] = {
    "cut-off": (
        lambda data: data[:-700],
        [
            "Left out of the journal: 1 line cut off, damaged or unknown to this version of rollout.",
            "The journal has no end",
        ],
    ),
    "another-version": (
        lambda data: (
            data.replace(b'"format_version":"1.0"', b'"format_version":"7.0","moon":"full"', 1)
            + NEWER
        ),
        [
            "The journal has the format 7.0; this report shows only what format 1.0 contains",
            "Left out of the journal: 1 line",
        ],
    ),
    "under-way": (
        lambda data: b"".join(data.splitlines(keepends=True)[:12]),
        ["The journal has no end"],
    ),
    "without-its-first-line": (
        lambda data: data.partition(b"\n")[2],
        ["its first line is missing"],
    ),
}


@pytest.mark.parametrize("form", ["html", "md", "json"])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_journal_is_told_as_far_as_it_goes(
    name: str, form: str, command: Command, home: Path, journal: Path
) -> None:
    damage, sentences = DAMAGED[name]
    assert damage(journal.read_bytes()) != journal.read_bytes()
    (home / "odd.jsonl").write_bytes(damage(journal.read_bytes()))
    ended = command("report", "odd.jsonl", "--out", f"odd.{form}")
    assert ended.code == ExitCode.OK
    assert "Traceback" not in ended.stderr
    written = (home / f"odd.{form}").read_text(encoding="utf-8")
    text = " ".join(" ".join(Page(written).words).split()) if form == "html" else written
    assert all(sentence in text for sentence in sentences), text
    assert "worker-1" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch",), 'error: run "nosuch" not found'),
        (("nosuch.jsonl",), "cannot read the journal nosuch.jsonl: No such file"),
        (("./",), "cannot read the journal .: Is a directory"),
        (("binary.jsonl",), "no run is recorded in binary.jsonl"),
        (
            ("ffff", "--set", "output.journal=empty"),
            "no run that begins with 'ffff' is recorded in empty",
        ),
        (("--out", "nowhere/a.html"), "there is no directory"),
        (("--out", "."), ". is a directory"),
    ],
)
def test_what_cannot_be_reported_is_said(
    arguments: tuple[str, ...], message: str, command: Command, home: Path, journal: Path
) -> None:
    assert journal.exists()
    (home / "binary.jsonl").write_bytes(bytes(range(256)) * 20)
    (home / "empty").write_bytes(b"")
    ended = command("report", *arguments)
    assert ended.code == ExitCode.ERROR
    assert ended.stdout == ""
    assert message in ended.stderr


# Of several clusters, as a user has them, whose API servers are not asked.


PROD = "a" * 16
TEST = "b" * 16


def test_the_last_run_is_reported_and_all_are_listed_with_their_clusters(
    command: Command, home: Path
) -> None:
    for number, (run, name) in enumerate(((PROD, "prod"), (TEST, "test"))):
        os.utime(kept(home, Night(), run, f"https://{name}.example:6443"), (1e9 + 60 * number,) * 2)
    ended = command("report")
    assert f"- Run: `{TEST}`\n" in ended.stdout
    assert ended.stderr == f"The last run, on test.example:6443: {TEST}.\n"
    rows = [row.split() for row in command("history").stdout.splitlines()[1:]]
    assert {row[0]: next(word for word in row if "example" in word) for row in rows} == {
        PROD: "prod.example:6443",
        TEST: "test.example:6443",
    }
    assert json.loads(command("report", "aaa", "-o", "json").stdout)["run"] == PROD


@pytest.fixture
def two_clusters(home: Path) -> Path:
    """A kubeconfig of prod, whose run is older than the one of test."""
    for number, (run, name) in enumerate(((PROD, "prod"), (TEST, "test"))):
        os.utime(kept(home, Night(), run, f"https://{name}.example:6443"), (1e9 + 60 * number,) * 2)
    return kubeconfig(home, "https://prod.example:6443/")


def kubeconfig(home: Path, server: str) -> Path:
    path = home / "kubeconfig"
    context = {"name": "c", "context": {"cluster": "c"}}
    cluster = {"name": "c", "cluster": {"server": server}}
    path.write_text(
        json.dumps({"current-context": "c", "contexts": [context], "clusters": [cluster]})
    )
    return path


def test_the_last_run_is_that_of_the_current_cluster(command: Command, two_clusters: Path) -> None:
    ended = command("report", variables={"KUBECONFIG": str(two_clusters)})
    assert f"- Run: `{PROD}`\n" in ended.stdout
    assert ended.stderr == f"The last run: {PROD}.\n"


def test_a_last_run_of_another_cluster_is_said_to_be_one(
    command: Command, two_clusters: Path, home: Path
) -> None:
    variables = {"KUBECONFIG": str(kubeconfig(home, "https://new.example:6443"))}
    assert command("report", variables=variables).stderr.splitlines() == [
        "No run on new.example:6443, the current cluster, is recorded here.",
        f"The last run, on test.example:6443: {TEST}.",
    ]


def test_history_tells_the_cluster_of_runs_elsewhere(
    command: Command, journal: Path, home: Path
) -> None:
    elsewhere = {"KUBECONFIG": str(kubeconfig(home, "https://new.example:6443"))}
    assert journal.exists()
    assert "CLUSTER" in command("history", variables=elsewhere).stdout
    here = {"KUBECONFIG": str(kubeconfig(home, "https://prod.example:6443"))}
    assert "CLUSTER" not in command("history", variables=here).stdout


def test_letters_of_two_runs_are_ambiguous(command: Command, home: Path) -> None:
    for run in ("ab" + "0" * 14, "ac" + "0" * 14):
        kept(home, Night(), run)
    ended = command("report", "a").ends(ExitCode.ERROR)
    assert 'error: run "a" is ambiguous: 2 IDs begin with it' in ended.stderr


class SlowDisk:
    def __init__(self) -> None:
        self.is_writing, self.may_go_on, self.written = (
            threading.Event(),
            threading.Event(),
            list[str](),
        )

    def write(self, record: Record) -> None:
        if not self.is_writing.is_set():
            self.is_writing.set()
            assert self.may_go_on.wait(10)
        self.written.append(record["message"])


def test_a_journal_is_written_in_the_order_in_which_it_is_told() -> None:
    disk = SlowDisk()
    at = datetime(2026, 11, 24, tzinfo=UTC)
    journal = _Journal(Path("journal"), cast("JournalFile", disk), [], has_lock=True)

    def tell(message: str) -> threading.Thread:
        thread = threading.Thread(target=journal.notify, args=(Notice(at, message),), daemon=True)
        thread.start()
        return thread

    first = tell("first")
    assert disk.is_writing.wait(10)
    second = tell("second")
    second.join(0.2)
    assert second.is_alive()
    disk.may_go_on.set()
    for thread in (first, second):
        thread.join(10)
    assert disk.written == ["first", "second"]


INTERRUPTED = Path(__file__).parents[1] / "report" / "interrupted.jsonl"


def test_a_run_that_keeps_every_rule_passes_its_check(command: Command) -> None:
    told = command("history", str(INTERRUPTED), "--check").ends(ExitCode.OK).stdout
    assert "33 moves of 4 nodes, at most 2 in flight (limit 2)" in told
    assert "No violations" in told


@pytest.fixture
def unproven(home: Path) -> Path:
    """A journal without the proof of any boot, and with a damaged line."""
    lines = INTERRUPTED.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if '"edge":"booted"' not in line]
    journal = home / "unproven.jsonl"
    journal.write_text("\n".join([*kept, '{"type":"st']), encoding="utf-8")
    return journal


def test_a_broken_rule_fails_the_check_with_its_line(command: Command, unproven: Path) -> None:
    told = command("history", str(unproven), "--check").ends(ExitCode.ERROR).stdout
    assert "line 30: worker-1 moved from rebooting by ready" in told
    assert "1 damaged line" in told


def test_violations_are_in_the_json(command: Command, unproven: Path) -> None:
    told = command("history", str(unproven), "--check", "-o", "json").ends(ExitCode.ERROR).stdout
    violations = json.loads(told)["check"]["violations"]
    assert {violation["rule"] for violation in violations} == {"transition", "proven"}


def test_a_check_needs_a_run(command: Command) -> None:
    assert "needs a run" in command("history", "--check").ends(ExitCode.USAGE).stderr
