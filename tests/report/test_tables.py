import re
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from rollout.execution.record.record import StoredRecord
from rollout.execution.record.unfinished import Unfinished
from rollout.gather.doctor.checks import Check, CheckName, Fix, failed, passed, sort_checks, warned
from rollout.model.host import UpdateOperation, UpdateStanding, UpdateState
from rollout.model.memory import Memory, VersionFailures
from rollout.model.progress import Phase
from rollout.model.update_checks import CheckState
from rollout.planning.eligibility.status import NodeStatus
from rollout.report.columns import Column, table_text, wrap
from rollout.report.doctor import doctor_text
from rollout.report.status import FollowUp, Way, status_text
from rollout.report.unfinished import nodes_under_way

WAITING = NodeStatus(
    "node-1",
    "10.0.0.1",
    True,
    True,
    True,
    "UPDATE_STATUS_UPDATED_NEED_REBOOT",
    "3975.2.0",
    "4081.2.1",
    "b",
    "",
    "",
)


SILENT = NodeStatus(
    "node-2",
    "10.0.0.2",
    False,
    False,
    False,
    "",
    "",
    "",
    "",
    "unreachable",
    "\x1b[31mrefused",
    judged=False,
    note="\x1b[31mrefused",
)
CURRENT = UpdateStanding(UpdateState.UP_TO_DATE, "3975.2.0")
FINE = replace(WAITING, needs_reboot=False, staged_version="", reason="no-update", update=CURRENT)


def kept(reason: str, note: str, fix: str = "") -> NodeStatus:
    message = f"{note} ({fix})" if fix else note
    return replace(WAITING, reason=reason, message=message, note=note, fix=fix)


def test_status_has_a_row_a_node() -> None:
    assert status_text([WAITING, SILENT]).splitlines() == [
        "NODE    STATE        VERSION              NOTE",
        "node-1  pending      3975.2.0 → 4081.2.1",
        "node-2  unreachable  ?                    \\x1b[31mrefused",
        "2 nodes: 1 pending, 1 unreachable",
        "Next:",
        "    rollout doctor",
    ]


def test_what_keeps_a_host_from_its_reboot_comes_before_the_plan_of_the_others() -> None:
    refused = replace(kept("no-sudo", "core is not allowed to run systemctl reboot"), node="node-2")
    assert status_text([WAITING, refused]).endswith("Next:\n    rollout doctor")


def test_status_where_nothing_is_to_be_done_is_the_table_and_a_sentence() -> None:
    assert status_text([FINE, replace(FINE, node="node-2")], width=60).splitlines() == [
        "NODE    STATE       VERSION",
        "node-1  up to date  3975.2.0",
        "node-2  up to date  3975.2.0",
        "Up to date: 2 nodes on 3975.2.0.",
    ]
    update = UpdateStanding(UpdateState.UPDATING, "3975.2.0")
    loading = replace(FINE, operation="UPDATE_STATUS_DOWNLOADING", update=update)
    assert status_text([FINE, loading]).splitlines()[-1] == "2 nodes: 1 up to date, 1 downloading"


BEHIND = UpdateStanding(UpdateState.BEHIND, "4081.2.1")
ROLLED_BACK = UpdateStanding(
    UpdateState.ROLLED_BACK, "4081.2.1", "4081.2.1", "2026-03-01T10:00:00Z"
)


@pytest.mark.parametrize(
    ("update", "row"),
    [
        (BEHIND, "behind      3975.2.0  the newest version in the cluster is 4081.2.1"),
        (ROLLED_BACK, "rolled back  3975.2.0  from 4081.2.1, 2h00m ago"),
        (
            UpdateStanding(UpdateState.CHECK_FAILED),
            "check failed  3975.2.0  the server sent no update",
        ),
        (UpdateStanding(UpdateState.IDLE), "idle        3975.2.0"),
        (
            replace(BEHIND, checks=CheckState.STALE, last_checked="2026-02-20T10:00:00Z"),
            "behind 3975.2.0 the newest version in the cluster is 4081.2.1; last checked 9 days ago",
        ),
        (
            replace(BEHIND, checks=CheckState.MASKED, check_unit="update-engine"),
            "behind 3975.2.0 update-engine is masked",
        ),
        (
            UpdateStanding(
                UpdateState.NOT_CHECKING, checks=CheckState.FAILED, check_unit="zincati"
            ),
            "not checking 3975.2.0 zincati has failed",
        ),
        (
            UpdateStanding(
                UpdateState.NOT_CHECKING, checks=CheckState.DISABLED, check_unit="zincati"
            ),
            "not checking 3975.2.0 updates are disabled in the configuration of zincati",
        ),
        (
            UpdateStanding(
                UpdateState.NOT_CHECKING, checks=CheckState.STALE, check_unit="update-engine"
            ),
            "not checking 3975.2.0 update-engine has not completed a check since it started",
        ),
    ],
)
def test_a_host_that_is_not_up_to_date_says_what_it_is(update: UpdateStanding, row: str) -> None:
    other = replace(FINE, node="node-2", update=update, note="the server sent no update")
    text = status_text([FINE, other], now=datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert text.splitlines()[2].split() == ["node-2", *row.split()]
    assert "Up to date:" not in text


def test_hosts_that_are_behind_can_be_told_to_look_for_an_update() -> None:
    text = status_text([FINE, replace(FINE, node="node-2", update=BEHIND)])
    assert text.endswith("2 nodes: 1 up to date, 1 behind\nNext:\n    rollout check-update")


@pytest.mark.parametrize("operation", [UpdateOperation.UNKNOWN, UpdateOperation.NOT_ASKED])
def test_only_hosts_with_update_engine_can_be_told_to_look_for_an_update(operation: str) -> None:
    """Doctor says where to look on the others."""
    behind = replace(FINE, node="node-2", update=BEHIND, operation=operation)
    assert status_text([FINE, behind]).endswith("1 behind\nNext:\n    rollout doctor")
    both = [replace(FINE, update=BEHIND), behind]
    assert status_text(both).endswith("Next:\n    rollout check-update")
    standing = replace(ROLLED_BACK, newest_version="4152.0.0")
    rolled_back = replace(FINE, update=standing, operation=operation)
    assert "Next:" not in status_text([rolled_back])


def test_hosts_that_find_no_updates_need_a_fix_before_they_look_for_one() -> None:
    stale = replace(BEHIND, checks=CheckState.STALE, last_checked="2026-02-20T10:00:00Z")
    text = status_text([FINE, replace(FINE, node="node-2", update=stale)])
    assert text.endswith("Next:\n    rollout doctor")


@pytest.mark.parametrize(
    ("reason", "note", "row"),
    [
        ("paused", "by ana", "paused       3975.2.0 → 4081.2.1  by ana"),
        ("cordoned", "", "cordoned     3975.2.0 → 4081.2.1"),
        ("rival", "kured is rebooting it", "3975.2.0 → 4081.2.1  kured is rebooting it"),
        ("rival", "locksmithd runs on the host", "locksmithd runs on the host"),
        (
            "not-ready",
            "it is not Ready: no network",
            "not ready    3975.2.0 → 4081.2.1  it is not Ready: no network",
        ),
    ],
)
def test_a_row_has_the_state_and_what_the_state_does_not_say(
    reason: str, note: str, row: str
) -> None:
    other = replace(WAITING, node="node-2")
    rows = [kept(reason, note, "--allow it"), other, replace(SILENT, node="node-3")]
    line = status_text(rows).splitlines()[1]
    assert line.endswith(row)
    assert "--allow" not in line


def test_a_version_that_was_rolled_back_from_is_not_looked_for_again() -> None:
    """Neither on the host itself, nor on those that would get the same."""
    rolled_back = replace(FINE, update=ROLLED_BACK)
    text = status_text([rolled_back, replace(FINE, node="node-2", update=BEHIND)])
    assert "rollout check-update" not in text
    assert "A check for updates may stage 4081.2.1 again." in text


def test_a_newer_version_than_the_one_that_was_rolled_back_from_is_looked_for() -> None:
    rolled_back = replace(FINE, update=replace(ROLLED_BACK, newest_version="4152.0.0"))
    assert status_text([rolled_back]).endswith("Next:\n    rollout check-update")


def test_a_failed_node_that_is_in_service_again_counts_as_failed_like_in_the_heading() -> None:
    record = StoredRecord("run", "", "", ended=True, plan=None)
    run = Unfinished(record, failed_in_service={"node-1": "drain-failed", "node-2": "rolled-back"})
    states = nodes_under_way(run, {})
    assert {name: entry.phase for name, entry in states.items()} == {"node-1": Phase.FAILED}


def test_status_says_how_far_a_rollout_has_come_with_a_node() -> None:
    cordoned = replace(kept("left-cordoned", "left cordoned by a rollout"), schedulable=False)
    beside = FollowUp("Rollout x is running, wave 3 of 6.", "rollout status --watch")
    under_way = replace(
        cordoned,
        under_way="rebooting, wave 3 of 6",
        phase="rebooting",
        progress="wave 3 of 6",
    )
    lines = status_text([under_way, WAITING], unfinished_rollout=beside).splitlines()
    assert lines[1] == "node-1  rebooting  3975.2.0 → 4081.2.1  wave 3 of 6"
    assert lines[-3:] == [beside.sentence, "Next:", f"    {beside.command}"]


def test_status_offers_to_go_on_without_a_failed_node_after_the_release() -> None:
    retry = Way("After fixing node-1", "rollout resume --retry-failed", starts_nodes=True)
    without = Way("To continue without node-1", "rollout resume", starts_nodes=True)
    beside = FollowUp.of_ways("Left over.", (retry, without), is_first=False)
    held = Memory(
        versions={"2": VersionFailures(("node-1",), "", held_since="2026-11-23T01:00:00Z")}
    )
    text = status_text(
        [WAITING], unfinished_rollout=beside, memory=held, with_flags="{} --context a".format
    )
    assert text.splitlines()[-6:] == [
        "After fixing node-1:",
        "    rollout release 2 --context a",
        "    rollout resume --retry-failed --context a",
        "To continue without node-1:",
        "    rollout release 2 --context a",
        "    rollout resume --context a",
    ]


def test_a_held_version_says_on_how_many_nodes_it_is_staged_if_any() -> None:
    at = "2026-11-23T01:00:00Z"
    failures = VersionFailures(("node-1",), at, held_since=at)
    staged = status_text([WAITING], memory=Memory(versions={WAITING.staged_version: failures}))
    assert f"most recently at {at}; it is staged on 1 node." in staged
    elsewhere = status_text([WAITING], memory=Memory(versions={"0.0.1": failures}))
    assert f"most recently at {at}." in elsewhere


def test_what_is_said_of_more_than_half_of_the_rows_stands_once() -> None:
    held = kept("version-held", "version 2 is held: it failed on 1 node", "rollout release 2")
    rows = [replace(held, node=f"worker-{number}") for number in range(4)]
    alone = replace(kept("paused", "by annotation"), node="cp-1")
    *table, total, line = status_text([*rows, alone], width=160).splitlines()
    assert [row.split()[1] for row in table[1:5]] == ["held"] * 4
    assert total == "5 nodes: 4 held, 1 paused"
    assert line == "4 of 5 nodes: version 2 is held: it failed on 1 node"
    # what only half of them have is said in the rows
    others = [replace(WAITING, node=f"cp-{number}") for number in range(4)]
    assert status_text([*rows, *others], width=160).count("version 2 is held") == 4
    assert status_text(rows, width=None).count("(rollout release 2)") == 4


COLUMNS = (
    Column("NODE"),
    Column("ZONE", drop_order=1),
    Column("PODS", drop_order=2, right=True),
    Column("NODES", wraps=True),
    Column("WHY", note=True),
)


ROWS = [
    (
        "worker-1",
        "eu-1a",
        "12",
        "a-long-name-1, a-long-name-2, a-long-name-3",
        "as many as may be away at once by the rules",
    ),
    ("worker-2", "eu-1b", "3", "a-long-name-4", ""),
]


@pytest.mark.parametrize("room", [60, 80, 100, 120])
def test_wide_status_fits_its_terminal_and_names_the_columns_that_do_not(room: int) -> None:
    statuses = [replace(WAITING, operation="UPDATE_STATUS_UPDATED_NEED_REBOOT", pool="web"), SILENT]
    text = status_text(statuses, width=None, room=room)
    assert longest(text.partition("\nNext:")[0]) <= room
    gone = re.search(r"\((.*): a wider terminal\)", text)
    titles = {*text.split("\n")[0].split(), *(gone[1].split(", ") if gone else ())}
    assert titles >= {
        "NODE",
        "STATE",
        "READY",
        "SCHEDULABLE",
        "OPERATION",
        "VERSION",
        "REBOOT",
        "POOL",
    }


def longest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_then_the_note_goes_below_its_row() -> None:
    heading, first, note, _ = table_text(COLUMNS, ROWS, 76).splitlines()
    assert heading.split() == ["NODE", "ZONE", "PODS", "NODES"]
    assert first.endswith("a-long-name-3")
    assert note == "    as many as may be away at once by the rules"


def test_then_columns_leave_in_their_stated_order_and_are_named() -> None:
    one = table_text(COLUMNS, ROWS, 40).splitlines()
    assert one[0].split() == ["NODE", "PODS", "NODES"]
    assert one[-1] == "(ZONE: -o wide)"
    two = table_text(COLUMNS, ROWS, 34).splitlines()
    assert two[0].split() == ["NODE", "NODES"]
    assert two[-1] == "(ZONE, PODS: -o wide)"
    assert max(map(len, two)) <= 34


def test_at_every_width_that_holds_what_stays_no_line_is_longer_and_nothing_is_lost() -> None:
    for width in range(32, 160):
        text = table_text(COLUMNS, ROWS, width)
        assert longest(text) <= width
        words = text.replace(",", " ").split()
        assert {f"a-long-name-{number}" for number in range(1, 5)} <= set(words)
        assert "rules" in words


# What is printed of three hundred hosts' findings.


UNREACHABLE = "{0}: cannot connect to 10.0.{1}.{2}:22: connection refused"


NAMES = [f"worker-{number}" for number in range(1, 301)]


def many() -> tuple[Check, ...]:
    checks = [
        failed(CheckName.SSH, name, UNREACHABLE.format(name, 1, i), Fix("Is it up?"))
        for i, name in enumerate(NAMES)
    ]
    checks += [passed(CheckName.RIGHT, f"get {name}", "granted") for name in NAMES]
    checks += [
        warned(CheckName.CLOCK, name, f"its clock is {40 + i} s ahead", Fix("See timedatectl."))
        for i, name in enumerate(NAMES[:3])
    ]
    checks.append(
        warned(CheckName.CLOCK, "worker-9", "its clock is stopped", Fix("See timedatectl."))
    )
    return sort_checks(checks)


def test_findings_that_are_alike_are_one_line() -> None:
    lines = doctor_text(many()).splitlines()
    assert len(lines) == 8
    assert lines[0].startswith("✘ ssh")
    assert (
        "worker-1, worker-2, worker-3, worker-4, worker-5 and 295 more: 300 failures, for example worker-1: cannot"
        " connect" in lines[0]
    )
    assert lines[1].strip() == "fix: Is it up?"
    assert (
        "worker-1, worker-2, worker-3: 3 warnings, for example its clock is 40 s ahead" in lines[2]
    )
    assert "worker-9: its clock is stopped" in lines[4]
    assert lines[-1] == "300 checks passed (-v lists them), 4 warnings, 300 failed."


def test_what_passed_is_counted_and_listed_where_asked_for() -> None:
    good = tuple(passed(CheckName.SSH, name, "answers") for name in NAMES[:3])
    assert doctor_text(good, follow_up=FollowUp("", "rollout plan")).splitlines() == [
        "All 3 checks passed (-v lists them).",
        "Next:",
        "    rollout plan",
    ]
    every = doctor_text(good, show_all=True).splitlines()
    assert every[:3] == [f"✔ ssh                {name}: answers" for name in NAMES[:3]]
    assert every[-1] == "All 3 checks passed."
    bad = (*good, failed(CheckName.SSH, "worker-9", "does not respond", Fix("Is it up?")))
    told = doctor_text(
        bad, follow_up=FollowUp("", "rollout doctor", lead="After fixing what failed")
    ).splitlines()
    assert told[-2:] == ["After fixing what failed:", "    rollout doctor"]


def test_the_commands_of_a_fix_stand_below_it_on_lines_of_their_own() -> None:
    checks = [
        failed(
            CheckName.RIVAL,
            name,
            "another coordinator holds it",
            Fix.with_commands(
                "Stop it; or, if it was removed",
                f"kubectl annotate node {name} a.example/in-progress-",
                f"kubectl label node {name} b.example/before-reboot-",
            ),
        )
        for name in ("worker-1", "worker-2")
    ]
    assert doctor_text(checks, width=60).splitlines()[2:7] == [
        "                     fix: Stop it; or, if it was removed:",
        "    kubectl annotate node worker-1 a.example/in-progress-",
        "    kubectl label node worker-1 b.example/before-reboot-",
        "    kubectl annotate node worker-2 a.example/in-progress-",
        "    kubectl label node worker-2 b.example/before-reboot-",
    ]


def test_what_differs_in_an_annotations_name_is_not_alike() -> None:
    """The fix of one would not mend the other."""
    names = (
        "flatcar-linux-update.v1.flatcar-linux.net/reboot-paused",
        "container-linux-update.v1.coreos.com/reboot-paused",
    )
    checks = [
        warned(
            CheckName.NODE,
            f"worker-{number}",
            f"paused by annotation {name}",
            Fix(f"Remove {name} of worker-{number}"),
        )
        for name in names
        for number in (1, 2)
    ]
    lines = [line.strip() for line in doctor_text(checks).splitlines()]
    assert [line for line in lines if line.startswith("fix")] == [
        f"fix (for worker-1): Remove {name} of worker-1" for name in names
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_command_is_broken(width: int) -> None:
    """One at a sentence's end stands alone on its line, without what would be pasted with it; one
    in quotes stays.
    """
    command = (
        "rollout known-hosts --out /etc/rollout/known_hosts --fingerprints consoles/ --node"
        " worker-2"
    )
    finding = f"! worker-2  its key has changed (Its console confirms the new one: {command})"
    *told, pasted = wrap(finding, width).splitlines()
    assert pasted == f"    {command}"
    assert (
        " ".join(" ".join(told).split())
        == "! worker-2 its key has changed. Its console confirms the new one:"
    )
    quoted = "`rollout resume --retry-failed --node worker-2` goes on"
    assert quoted.partition(" goes")[0] in wrap(
        f"A rollout is unfinished, and nobody works on it: {quoted}", width
    )
    inner = "rollout release 4081.2.1 --context staging"
    sentence = f"4081.2.1 failed on 3 nodes. Release it: {inner}; or wait for the next version."
    assert inner in wrap(sentence, width)
    columns = (Column("NODE"), Column("NOTE", note=True))
    assert inner in table_text(columns, [("worker-2", sentence)], width)
