"""The check of a journal: what a real run has left keeps every rule, and each broken rule is found
at its line.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.journal import read_journal
from rollout.model.progress import Edge, Phase
from rollout.report.journal_check import (
    CheckedJournal,
    Rule,
    Violation,
    check_journal,
    violation_text,
)
from tests.report import journals

# Four nodes in two waves: killed after the first node was drained, then resumed.
INTERRUPTED = Path(__file__).with_name("interrupted.jsonl")
Lines = list[dict[str, Any]]


@pytest.fixture
def lines() -> Lines:
    return [dict(record) for record in read_journal(INTERRUPTED)]


def checked(lines: Lines) -> CheckedJournal:
    return check_journal(enumerate(lines, start=1))


def rules(lines: Lines) -> set[Rule]:
    return {violation.rule for violation in checked(lines).violations}


def place(lines: Lines, **fields: Any) -> int:
    """The place of the last line that has these fields."""
    return max(index for index, line in enumerate(lines) if line.items() >= fields.items())


def moved(lines: Lines, node: str, edge: Edge) -> int:
    return place(lines, type="step", node=node, edge=edge.value)


def plan_of(lines: Lines) -> dict[str, Any]:
    plan: dict[str, Any] = lines[place(lines, type="plan")]["plan"]
    return plan


def test_a_real_journal_keeps_every_rule(lines: Lines) -> None:
    assert checked(lines).violations == ()


def test_the_cordon_of_a_node_that_was_taken_up_before_it_is_no_second_start(
    lines: Lines,
) -> None:
    taken_up = place(lines, type="step", edge=Edge.TAKEN_UP.value)
    cordon = {**lines[taken_up], "phase": "cordoned", "edge": Edge.CORDONED.value}
    lines[taken_up]["phase"] = "pending"
    lines.insert(taken_up + 1, cordon)
    assert checked(lines).violations == ()
    lines.insert(taken_up + 2, cordon)
    assert Rule.STARTED_ONCE in rules(lines)


def test_what_was_verified_is_counted(lines: Lines) -> None:
    result = checked(lines)
    assert result.processes == 2
    assert result.nodes == 4
    assert result.most_in_flight == 2
    assert result.limit == 2
    assert result.moves == sum("edge" in line and line["type"] == "step" for line in lines)


def test_a_journal_that_was_cut_off_anywhere_keeps_every_rule(lines: Lines) -> None:
    assert [end for end in range(len(lines)) if checked(lines[:end]).violations] == []


@pytest.mark.parametrize("edge", [Edge.EVICTED, Edge.DRAIN_STARTED, Edge.BOOTED, Edge.READY])
def test_a_move_that_is_left_out_is_found_at_the_next(lines: Lines, edge: Edge) -> None:
    index = moved(lines, "worker-3", edge)
    del lines[index]
    following = next(
        number
        for number, line in enumerate(lines[index:], start=index + 1)
        if line.get("node") == "worker-3" and "edge" in line
    )
    found = {violation.rule: violation.line for violation in checked(lines).violations}
    assert found[Rule.TRANSITION] == following


def test_a_move_tells_where_it_began(lines: Lines) -> None:
    del lines[moved(lines, "worker-3", Edge.BOOTED)]
    violation = next(
        violation for violation in checked(lines).violations if violation.rule is Rule.TRANSITION
    )
    assert violation.node == "worker-3"
    assert violation.phase is Phase.REBOOTING
    assert violation.edge is Edge.READY


def test_an_edge_that_leads_elsewhere_is_found(lines: Lines) -> None:
    lines[moved(lines, "worker-3", Edge.EVICTED)]["phase"] = "rebooting"
    assert Rule.TRANSITION in rules(lines)


def test_a_node_is_taken_up_only_where_the_table_says(lines: Lines) -> None:
    lines[moved(lines, "worker-2", Edge.TAKEN_UP)]["phase"] = "booted"
    assert Rule.TRANSITION in rules(lines)


def _limit_of_one(lines: Lines) -> None:
    plan_of(lines)["policy"]["max_unavailable"] = 1


def _limit_of_pool(lines: Lines) -> None:
    plan = plan_of(lines)
    plan["policy"]["pools"] = [{"name": "edge", "selector": "edge", "max_unavailable": 1}]
    for wave in plan["waves"]:
        for node in wave["nodes"]:
            node["pool"] = "edge"


def _smaller_share(lines: Lines) -> None:
    plan_of(lines)["policy"]["max_unavailable"] = "50%"
    lines[place(lines, type="run")]["selected"] = 2


def _reboot_before_drain(lines: Lines) -> None:
    del lines[moved(lines, "worker-3", Edge.EVICTED)]


def _unproven_end(lines: Lines) -> None:
    del lines[moved(lines, "worker-3", Edge.READY)]


def _success_while_booting(lines: Lines) -> None:
    del lines[moved(lines, "worker-3", Edge.PROVEN)]


def _uncordoned_though_not_back(lines: Lines) -> None:
    del lines[moved(lines, "worker-3", Edge.PROVEN)]
    end = lines[place(lines, type="node_finished", node="worker-3")]
    end.update(outcome="not-back", edge="returned")


def _started_again(lines: Lines) -> None:
    index = moved(lines, "worker-4", Edge.CORDONED)
    lines.insert(place(lines, type="summary"), deepcopy(lines[index]))


def _done_node_started_by_another_process(lines: Lines) -> None:
    lines.extend(deepcopy(lines[place(lines, type="run") :]))


def _ended_again(lines: Lines) -> None:
    index = place(lines, type="node_finished", node="worker-4")
    lines.insert(index, deepcopy(lines[index]))


def _before_its_wave(lines: Lines) -> None:
    del lines[place(lines, type="wave_started", index=2)]


def _next_wave_too_early(lines: Lines) -> None:
    wave = lines.pop(place(lines, type="wave_started", index=2))
    lines.insert(moved(lines, "worker-1", Edge.BOOTED), wave)


def _wave_after_failure(lines: Lines) -> None:
    end = lines[place(lines, type="node_finished", node="worker-1")]
    del lines[moved(lines, "worker-1", Edge.PROVEN)]
    end.update(outcome="not-back", edge="failed")


def _evicted_after_drain(lines: Lines) -> None:
    index = place(lines, type="evicted", node="worker-4")
    lines.insert(moved(lines, "worker-4", Edge.BOOTED), lines.pop(index))


def _end_left_out(lines: Lines) -> None:
    del lines[place(lines, type="node_finished", node="worker-3")]


def _wrong_summary(lines: Lines) -> None:
    lines[-1]["succeeded"] = ["worker-1", "worker-2", "worker-4"]


BREAKS: list[tuple[Callable[[Lines], None], Rule, str]] = [
    (_limit_of_one, Rule.LIMIT, "worker-3"),
    (_limit_of_pool, Rule.LIMIT, "worker-3"),
    (_smaller_share, Rule.LIMIT, "worker-3"),
    (_reboot_before_drain, Rule.DRAINED, "worker-3"),
    (_unproven_end, Rule.PROVEN, "worker-3"),
    (_success_while_booting, Rule.PROVEN, "worker-3"),
    (_uncordoned_though_not_back, Rule.PROVEN, "worker-3"),
    (_started_again, Rule.STARTED_ONCE, "worker-4"),
    (_done_node_started_by_another_process, Rule.STARTED_ONCE, "worker-4"),
    (_ended_again, Rule.ENDED_ONCE, "worker-4"),
    (_before_its_wave, Rule.PLANNED, "worker-4"),
    (_next_wave_too_early, Rule.WAVE_ORDER, ""),
    (_wave_after_failure, Rule.MAX_FAILURES, "worker-4"),
    (_evicted_after_drain, Rule.EVICTION, "worker-4"),
    (_end_left_out, Rule.ENDED, ""),
    (_wrong_summary, Rule.SUMMARY, ""),
]


@pytest.mark.parametrize(
    ("break_rule", "rule", "node"), BREAKS, ids=[mutate.__name__ for mutate, _, _ in BREAKS]
)
def test_a_broken_rule_is_found(
    lines: Lines, break_rule: Callable[[Lines], None], rule: Rule, node: str
) -> None:
    break_rule(lines)
    assert (rule, node) in {
        (violation.rule, violation.node) for violation in checked(lines).violations
    }


def test_each_rule_has_a_journal_that_breaks_it() -> None:
    assert {rule for _, rule, _ in BREAKS} | {Rule.TRANSITION} == set(Rule)


def test_a_violated_pool_limit_is_reported_with_that_limit(lines: Lines) -> None:
    _limit_of_pool(lines)
    found = [violation for violation in checked(lines).violations if violation.rule is Rule.LIMIT]
    assert {violation.limit for violation in found} == {1}


def test_a_limit_of_unknown_many_nodes_is_not_verified(lines: Lines) -> None:
    plan_of(lines)["policy"]["max_unavailable"] = "50%"
    del lines[place(lines, type="run")]["selected"]
    assert checked(lines).limit is None
    assert checked(lines).violations == ()


def test_another_rollout_in_the_file_is_another_matter(lines: Lines) -> None:
    again = json.loads(json.dumps(lines).replace(lines[0]["run"], journals.RUN))
    assert checked([*lines, *again]).violations == ()


@pytest.mark.parametrize("rule", list(Rule))
def test_a_violation_is_a_sentence(rule: Rule) -> None:
    violation = Violation(7, rule, "worker-1", Phase.READY, Edge.PROVEN, ("worker-2",), 2, 1)
    text = violation_text(violation)
    assert "worker-" in text
    assert "{" not in text
