import json
from dataclasses import replace

from rollout.execution.rollout.rehearsal import Rehearsal
from rollout.model.host import LoggedInUser
from rollout.model.json_text import json_document
from rollout.model.plan import Estimate, PlanSummary, PlanWarning, TimeEstimate, Wave
from rollout.planning.explanation import Explanation, NotThere
from rollout.planning.status import NodeStatus
from rollout.report.findings import explanation_text, rehearsal_text
from rollout.report.status import status_text
from rollout.report.tables import plan_text
from tests.report.builders import STATUS_FIELDS, blocker, plan, planned

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
    signed, plain = (plan_text(plan(), zones={}, signs=signs).splitlines() for signs in (True, False))
    assert [line.replace(" ~ ", "   ") for line in signed] == plain
    assert sum(" ~ " in line for line in signed) == 2


def test_status_as_json_has_exactly_the_fields_of_the_contract() -> None:
    [row] = json.loads(json_document([WAITING]))
    assert list(row) == STATUS_FIELDS


def test_plan_shows_waves_exclusions_and_the_sum() -> None:
    text = plan_text(plan(), zones={"node-1": "a", "node-2": "b", "node-3": "b"})
    lines = text.splitlines()
    assert lines[0] == "Plan 0123456789abcdef for https://127.0.0.1:6443, made 2026-03-04T05:06:07Z"
    assert " ".join(lines[3].split()) == "1 - node-1 a 5 2 3975.2.0 → 4081.2.1 the canary goes alone"
    assert " ".join(lines[4].split()) == "2 - node-2, node-3 b 10 4 3975.2.0 → 4081.2.1 up to 2 at once"
    assert "node-4      paused    paused by an annotation" in text
    assert lines[-1] == "3 nodes in 2 waves; 1 node left out."
    assert "Blockers" not in text


def test_a_time_that_the_scheduler_decides_is_shown_as_a_range() -> None:
    open_, certain = TimeEstimate(506, ("it was",), 479, 629), TimeEstimate(506, ("it was",))
    last = [plan_text(replace(plan(), estimate=estimate), zones={}).splitlines()[-1] for estimate in (open_, certain)]
    assert last == [
        "It takes about 8m26s (7m59s to 10m29s, by which of equal nodes the scheduler chooses): it was.",
        "It takes about 8m26s: it was.",
    ]


def test_plan_names_blockers_and_warnings_with_what_clears_them() -> None:
    text = plan_text(
        plan(blockers=(blocker(),), warnings=(PlanWarning("node-1", "pod/a/b", "loses its data"),)), zones={}
    )
    assert "  budget-never: node-2, pdb/shop/cart never allows an eviction: mend its selector" in text
    assert "  loses its data: pod/a/b on node-1" in text


def test_plan_with_nothing_to_do_says_so() -> None:
    empty = replace(plan(), waves=(), summary=PlanSummary(0, 0, 0))
    assert plan_text(empty, zones={}).splitlines()[-1] == "Nothing to do: no node is planned; left out: 1 paused."


def test_plan_says_when_fewer_waves_are_conceivable() -> None:
    text = plan_text(replace(plan(), summary=PlanSummary(3, 2, 1)), zones={})
    assert "no plan has fewer than 1" in text


def test_a_wide_wave_wraps_within_the_width() -> None:
    nodes = tuple(planned(f"node-with-a-long-name-{number}") for number in range(12))
    wide = replace(plan().waves[0], nodes=nodes, because="as many as a quarter of the selected nodes allows at once")
    text = plan_text(replace(plan(), waves=(wide,)), zones={}, width=120)
    assert max(len(line) for line in text.splitlines()) <= 120
    assert all(node.name in text for node in nodes)


def test_many_waves_that_are_alike_are_one_row_in_which_each_node_is_named() -> None:
    def wave(index: int, because: str, seconds: int) -> Wave:
        return Wave(index, (planned(f"node-{index}"),), because, estimate=Estimate(seconds))

    waves = tuple(wave(index, "the canary" if index == 1 else "full wave", 60 + index % 3) for index in range(1, 601))
    long = replace(plan(), waves=(*waves, wave(601, "control plane", 70), wave(602, "control plane", 70)))
    lines = plan_text(long, zones={}, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 120
    text = " ".join(" ".join(lines).split())
    assert all(f" {node.name}" in text for node in long.nodes)
    assert "full wave: node-2, node-3," in text
    assert [line.split()[0] for line in lines if "→" in line] == ["1", "2-600", "601", "602"]
    # every row, where every column is asked for, and where a few more rows hurt nobody
    assert len(plan_text(long, zones={}).splitlines()) > 600
    few = replace(plan(), waves=waves[:20])
    assert len(plan_text(few, zones={}, width=160).splitlines()) > 20


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
    lines = explanation_text(Explanation("n", 600, "the rest", not_earlier=tuple(earlier))).splitlines()
    assert lines[1:] == [
        "  not in waves 1 to 6: it is full",
        "  not in wave 7: a budget",
        "  not in waves 8 to 599: it is full",
    ]
