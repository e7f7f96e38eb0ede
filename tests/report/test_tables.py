import json
from dataclasses import replace

from rollout.execution.rollout.rehearsal import Rehearsal
from rollout.model.host import LoggedInUser
from rollout.model.json_text import json_document
from rollout.model.plan import TimeEstimate
from rollout.model.progress import Findings, NodeCondition, NodeResult, NotStarted, Outcome, Phase, RunResult
from rollout.planning.explanation import Explanation, NotThere
from rollout.planning.status import NodeStatus
from rollout.report.findings import explanation_text, rehearsal_text
from rollout.report.status import status_text
from rollout.report.summary import summary_text
from tests.report.builders import STATUS_FIELDS, plan

WAITING = NodeStatus(
    "node-1", "10.0.0.1", True, True, True, "UPDATE_STATUS_UPDATED_NEED_REBOOT", "3975.2.0", "4081.2.1", "b", "", ""
)
SILENT = NodeStatus(
    "node-2", "10.0.0.2", False, False, False, "", "", "", "", "unreachable: refused", "\x1b[31mrefused", judged=False
)


def test_status_has_a_row_a_node() -> None:
    header, first, second, _, total, further = status_text([WAITING, SILENT]).splitlines()
    assert header.split() == ["NODE", "READY", "SCHEDULABLE", "OPERATION", "VERSION", "REBOOT", "NOTE"]
    assert first.split() == ["node-1", "yes", "yes", "updated-need-reboot", "3975.2.0", "→", "4081.2.1", "yes"]
    assert second.split() == ["node-2", "no", "no", "-", "-", "?", "\\x1b[31mrefused"]
    assert total == "1 node of 2 waits for a reboot, 1 unknown."
    assert further == "Why some are unknown, and how to fix it: rollout doctor"


def test_signs_say_at_a_glance_what_waits_and_what_is_in_its_way() -> None:
    """Where a person looks on; programs get the words alone."""
    paused = replace(WAITING, node="node-3", reason="paused: by an operator")
    waiting, silent, held = status_text([WAITING, SILENT, paused], signs=True).splitlines()[1:4]
    assert waiting.endswith("  ~ yes")
    assert "  ! ?  " in silent
    assert not {"~", "!"} & set(held)


def test_status_as_json_has_exactly_the_fields_of_the_contract() -> None:
    [row] = json.loads(json_document([WAITING]))
    assert list(row) == STATUS_FIELDS


def test_summary_names_failures_their_hints_and_who_never_began() -> None:
    result = RunResult(
        (
            NodeResult("node-1", Outcome.SUCCEEDED, Phase.DONE, 65, version="4081.2.1"),
            NodeResult("node-2", Outcome.NOT_BACK, Phase.REBOOTING, 900, "no answer", "look at its console", "", True),
        ),
        (),
        (NotStarted("node-3", "1 node failed"),),
    )
    text = summary_text(plan(), result)
    assert "node-1  succeeded    3975.2.0 → 4081.2.1  1m05s" in text
    assert "node-2 failed (not-back, last phase rebooting): no answer" in text
    assert "  hint: look at its console" in text
    assert "kubectl uncordon node-2" in text
    assert "Not started, 1 node failed: node-3" in text
    assert text.splitlines()[-2:] == [
        "1 node succeeded, 1 failed, 1 not started.",
        "Go on: rollout resume --retry-failed",
    ]


def test_summary_says_what_was_seen_of_a_node_that_failed() -> None:
    seen = Findings(
        "node-2 (core@10.0.0.2:22): \x1b[2Jno route",
        (NodeCondition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting", "2026-03-04T05:06:07Z"),),
        "openstack console log show 1b2c",
    )
    failed = NodeResult("node-2", Outcome.NOT_BACK, Phase.REBOOTING, 900, "no answer", findings=seen)
    lines = summary_text(plan(), RunResult((failed,))).splitlines()
    assert "  last SSH error: node-2 (core@10.0.0.2:22): \\x1b[2Jno route" in lines
    told = "NodeStatusUnknown: Kubelet stopped posting"
    assert f"  Node condition Ready is Unknown since 2026-03-04T05:06:07Z: {told}" in lines
    assert "  console: openstack console log show 1b2c" in lines


def test_a_rehearsal_counts_objections() -> None:
    text = rehearsal_text([Rehearsal("node-1", 4, ()), Rehearsal("node-2", 1, ("shop/cart-1: not now",))])
    rows = [line.split(maxsplit=2) for line in text.splitlines()[1:3]]
    assert rows == [["node-1", "4", "-"], ["node-2", "1", "shop/cart-1: not now"]]
    assert text.splitlines()[-1] == "Dry run: nothing was changed; 1 objection by the API server."
    many = [Rehearsal(f"node-{number}", 2, ("not now",) if number == 40 else ()) for number in range(100)]
    _, fine, objected, _, last = rehearsal_text(many).splitlines()
    assert fine.split() == ["99", "nodes:", "node-0,", "node-1,", "node-2", "and", "96", "more", "198", "-"]
    assert objected.split() == ["node-40", "2", "not", "now"]
    assert "1 objection" in last
    narrow = rehearsal_text([*many, Rehearsal("node-x", 1, ("no to one", "no to two"))], 40).splitlines()
    assert narrow[1].split()[-1] == "198"
    assert narrow[-5:-3] == ["    no to one", "    no to two"]


def test_status_says_how_far_a_rollout_has_come_with_a_node() -> None:
    cordoned = replace(WAITING, schedulable=False, reason="left-cordoned: left cordoned by a rollout")
    text = status_text([replace(cordoned, under_way="rebooting, wave 3 of 6"), WAITING])
    assert "rebooting, wave 3 of 6" in text
    assert "left-cordoned" not in text


def test_status_counts_users_and_names_them_where_it_is_wide() -> None:
    there = replace(WAITING, group="stable", users=(LoggedInUser("core", "pts/0"), LoggedInUser("ada", "tty1")))
    nobody = replace(WAITING, node="node-3", users=())
    text = status_text([there, SILENT, nobody], wide=True)
    header, first, second, third, _, total, _ = text.splitlines()
    assert header.split()[-3:] == ["GROUP", "USERS", "NOTE"]
    assert "stable   core (pts/0), ada (tty1)" in first
    assert (second.split()[6:8], third.split()[-2:]) == (["-", "?"], ["-", "-"])
    assert total.endswith(" 2 users logged in on 1 node.")
    assert "GROUP" not in status_text([there])


def test_what_is_said_of_several_nodes_stands_once() -> None:
    held = replace(WAITING, reason="version-held: version 2 is held: it failed on 1 node (rollout release 2)")
    rows = [replace(held, node=f"worker-{number}") for number in range(4)]
    *table, total, line = status_text(rows, width=160).splitlines()
    assert [row.split()[-1] for row in table[1:5]] == ["version-held"] * 4
    assert total == "4 nodes of 4 wait for a reboot."
    sentence = "version 2 is held: it failed on 1 node (rollout release 2)"
    assert line == f"version-held (worker-0, worker-1, worker-2, worker-3): {sentence}"
    # one of another kind is said in its row
    alone = replace(WAITING, node="cp-1", reason="paused: by its annotation")
    assert "    paused: by its annotation" in status_text([*rows, alone], width=80).splitlines()


def test_what_is_remembered_is_not_said_of_each_node_too() -> None:
    sentence = "version 2 is held: it failed on 1 node"
    rows = [replace(WAITING, node=name, reason=f"version-held: {sentence} (rollout release 2)") for name in "ab"]
    remembered = [f"{sentence}; staged on 2 of these. Release it: rollout release 2"]
    assert status_text(rows, width=100, remembered=remembered).count(sentence) == 1
    assert status_text(rows, width=100).splitlines()[-1] == f"version-held (a, b): {sentence} (rollout release 2)"
    assert status_text(rows).count(sentence) == 2


def test_an_explanation_says_once_what_keeps_a_node_out_of_many_waves() -> None:
    earlier = [NotThere(wave, ("it is full",) if wave != 7 else ("a budget",)) for wave in range(1, 600)]
    lines = explanation_text(Explanation("n", 600, "the rest", not_earlier=tuple(earlier)), TimeEstimate()).splitlines()
    assert lines[1:] == [
        "  not in waves 1 to 6: it is full",
        "  not in wave 7: a budget",
        "  not in waves 8 to 599: it is full",
    ]
