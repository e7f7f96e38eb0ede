"""The screen of a plan: the ordinary is not told, nothing else is lost, and a command to copy stays
in one piece.
"""

import re
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from rollout.model.host import UpdateStanding, UpdateState
from rollout.model.plan import (
    BlockerKind,
    Estimate,
    Exclusion,
    ExclusionReason,
    PlanSummary,
    PlanWarning,
    RolloutPlan,
    TimeEstimate,
    Wave,
)
from rollout.model.policy import DrainPolicy, Policy
from rollout.model.quantity import Count
from rollout.report.plan_screen import brief_text, consequence_text, finding_lines, plan_text
from tests.report.builders import blocker, plan, planned

ZONES = {"node-1": "a", "node-2": "b", "node-3": "b"}


def of_waves(*notes: str) -> RolloutPlan:
    """A node a wave, all alike but for their notes."""
    waves = tuple(
        Wave(index, (planned(f"node-{index}"),), "full wave", note, estimate=Estimate(180))
        for index, note in enumerate(notes, 1)
    )
    return replace(
        plan(), waves=waves, excluded=(), summary=PlanSummary(len(waves), len(waves), 1, 28)
    )


def rows(made: RolloutPlan, width: int = 120) -> list[list[str]]:
    """Of the table, by their cells."""
    table = plan_text(made, zone_by_node={}, width=width).split("\n\n")[1]
    return [
        [cell.strip() for cell in line.split("  ") if cell.strip()] for line in table.splitlines()
    ]


@pytest.mark.parametrize(
    "note", ["", "canary", "pool web; PDB shop/db currently allows no evictions"]
)
def test_only_what_nobody_expects_is_noted(note: str) -> None:
    cells = rows(of_waves(note))[1]
    assert cells == ["1", "node-1", "5", "3m", *([note] if note else [])]


def test_equal_waves_of_one_node_that_follow_are_one_row() -> None:
    made = of_waves("PDB a/b currently allows no evictions", *["control plane"] * 3)
    assert rows(made)[1:] == [
        ["1", "node-1", "5", "3m", "PDB a/b currently allows no evictions"],
        ["2\N{EN DASH}4", "node-2, then node-3, then node-4", "15", "9m", "control plane"],
    ]


def test_more_than_twenty_rows_are_grouped_and_wide_has_them_all() -> None:
    def wave(index: int) -> Wave:
        nodes = tuple(planned(f"node-{index}-{number}") for number in range(3))
        return Wave(index, nodes, "full wave: at most 3 at once", estimate=Estimate(60 + index))

    made = replace(plan(), waves=tuple(map(wave, range(1, 31))), excluded=())
    assert rows(made, 80)[1:] == [["1\N{EN DASH}30", "90 nodes, 3 per wave", "450", "38m"]]
    assert all(node.name in plan_text(made, zone_by_node={}) for node in made.nodes)
    few = replace(made, waves=made.waves[:20])
    assert len(rows(few)) == 21


def test_wide_has_every_column_and_why_nodes_are_left_out() -> None:
    text = plan_text(plan(), zone_by_node=ZONES)
    assert ["WAVE", "NODES", "ZONES", "PODS", "VERSION", "NOTE"] in map(
        str.split, text.splitlines()
    )
    assert "· node-4  paused: paused by an annotation" in text


@pytest.mark.parametrize(
    ("estimate", "sentence"),
    [
        (
            TimeEstimate(1560, assumed_reboot=180),
            "About 26 min (no history yet: assuming 3 min per reboot).",
        ),
        (TimeEstimate(45, usual_reboot=27), "About 45s."),
    ],
)
def test_an_estimate_is_one_sentence(estimate: TimeEstimate, sentence: str) -> None:
    made = replace(of_waves(""), estimate=estimate)
    assert (
        plan_text(made, zone_by_node={}, width=120).splitlines()[-1]
        == f"{sentence} 28 pods will be evicted."
    )


def idle(name: str, state: UpdateState, message: str = "nothing is staged") -> Exclusion:
    update = UpdateStanding(
        state, "4152.2.0", "4152.2.0" if state is UpdateState.ROLLED_BACK else ""
    )
    return Exclusion(name, ExclusionReason.NO_UPDATE, message, update=update)


def without_waves(*excluded: Exclusion) -> RolloutPlan:
    return replace(plan(), waves=(), excluded=excluded, blockers=(), warnings=())


def test_nodes_that_run_the_newest_version_are_up_to_date() -> None:
    made = without_waves(
        idle("node-1", UpdateState.UP_TO_DATE), idle("node-2", UpdateState.UP_TO_DATE)
    )
    assert plan_text(made, zone_by_node={}, width=80) == "Nothing to do: 2 nodes are up to date."


def test_a_rollback_without_nodes_says_that_it_holds_nothing() -> None:
    why = "/dev/sda4 has never booted successfully"
    left = Exclusion("node-1", ExclusionReason.NO_PREVIOUS_VERSION, why)
    made = without_waves(left)
    back = replace(made, policy=replace(made.policy, rollback="4152.2.0"))
    said = "this does not hold the version. To hold it anyway, run: rollout hold 4152.2.0"
    assert said in plan_text(back, zone_by_node={}, width=200)
    assert said not in plan_text(made, zone_by_node={}, width=200)


@pytest.mark.parametrize(
    ("left", "line"),
    [
        (
            idle("node-2", UpdateState.ROLLED_BACK),
            "! node-2  rolled back from 4152.2.0, and nothing is staged now",
        ),
        (
            idle("node-2", UpdateState.CHECK_FAILED, "no response"),
            "! node-2  check failed: no response",
        ),
        (
            idle("node-2", UpdateState.BEHIND),
            "Left out: node-2 (behind: the newest version in the cluster is 4152.2.0)",
        ),
        (idle("node-2", UpdateState.IDLE), "Left out: node-2 (idle)"),
    ],
)
def test_a_plan_calls_no_other_node_up_to_date(left: Exclusion, line: str) -> None:
    made = without_waves(idle("node-1", UpdateState.UP_TO_DATE), left)
    assert left.update
    word = left.update.state.replace("-", " ")
    ending = f"Nothing to do: no update is staged on 2 nodes: 1 up to date, 1 {word}."
    assert plan_text(made, zone_by_node={}, width=100) == f"{line}\n\n{ending}"


def test_a_plan_of_a_version_that_did_not_tell_calls_no_node_up_to_date() -> None:
    made = without_waves(Exclusion("node-1", ExclusionReason.NO_UPDATE, "nothing is staged"))
    assert (
        plan_text(made, zone_by_node={}, width=80)
        == "Nothing to do: no update is staged on 1 node."
    )


def test_a_rollout_that_is_not_over_is_told_once() -> None:
    begun = Exclusion("node-9", ExclusionReason.LEFT_CORDONED, "cordoned by unfinished rollout r")
    away = replace(
        blocker(),
        node="node-9",
        kind=BlockerKind.NODES_UNAVAILABLE,
        message="is still cordoned by r",
    )
    made = replace(plan(blockers=(blocker(), away)), excluded=(begun,))
    alone = plan_text(made, zone_by_node={}, width=120)
    beside = plan_text(
        made, zone_by_node={}, width=120, unfinished_rollout="Rollout r is interrupted."
    )
    assert alone.count("node-9") == 2
    assert "node-9" not in beside
    assert beside.splitlines()[-1] == "Rollout r is interrupted."
    assert "✘ node-2" in beside


def test_equal_findings_are_told_once_with_a_count() -> None:
    lost = [
        PlanWarning("node-1", f"pod/shop/web-6d4cf56db6-abcd{n}", "loses its data") for n in "efg"
    ]
    alone = PlanWarning("node-2", "pod/shop/db-0", "will be down until the reboot is done")
    of_node = PlanWarning("node-3", "node/node-3", "two users are logged in")
    assert list(finding_lines([*lost, alone, of_node])) == [
        "shop/web (3 pods)  loses its data",
        "node-2  pod shop/db-0  will be down until the reboot is done",
        "node-3  two users are logged in",
    ]


def mixed_waves(sizes: Sequence[int], *, control_plane: int = 3) -> RolloutPlan:
    """Waves of these sizes, each with a note of its own, then control-plane nodes one by one."""
    waves = []
    for index, size in enumerate(sizes, 1):
        nodes = tuple(planned(f"worker-{index}-{number}") for number in range(size))
        waves.append(
            Wave(
                index,
                nodes,
                "full wave",
                f"step {index} of the ramp",
                estimate=Estimate(60 + index),
            )
        )
    for number in range(1, control_plane + 1):
        nodes = (planned(f"cp-{number}"),)
        waves.append(
            Wave(len(waves) + 1, nodes, "control plane", "control plane", estimate=Estimate(60))
        )
    everyone = sum(len(wave.nodes) for wave in waves)
    return replace(
        plan(),
        waves=tuple(waves),
        excluded=(),
        warnings=tuple(PlanWarning(f"node-{n}", f"pod/a/b{n}", f"finding {n}") for n in range(9)),
        policy=Policy(max_unavailable=Count(3), drain=DrainPolicy(force=True)),
        summary=PlanSummary(everyone, len(waves), 1, 28),
        estimate=TimeEstimate(600),
    )


CONTROL_PLANE = frozenset({"cp-1", "cp-2", "cp-3"})
WHOLE = "rollout plan -l pool=web --max-unavailable 3 -o wide"


def before_the_question(made: RolloutPlan, height: int | None) -> list[str]:
    text = brief_text(
        made,
        zone_by_node={},
        width=80,
        height=height,
        cluster_name="",
        next_step="",
        whole_command=WHOLE,
        control_plane=CONTROL_PLANE,
    )
    return text.splitlines()


@pytest.mark.parametrize("height", [None, 44])
def test_apply_shows_the_whole_plan_where_there_is_room(height: int | None) -> None:
    lines = before_the_question(mixed_waves([1, 2, 3] * 5), height)
    assert sum("step " in line for line in lines) == 15
    assert sum("finding " in line for line in lines) == 9
    assert WHOLE not in "\n".join(lines)


def test_apply_names_the_command_that_shows_a_plan_that_is_too_long() -> None:
    lines = before_the_question(mixed_waves([1, 2, 3] * 5), 18)
    assert len(lines) <= 18
    assert lines[-2:] == ["This is only part of the plan. To see all of it:", f"    {WHOLE}"]
    assert "! non-default options: --force" in lines
    assert "! 6 more findings" in lines


@pytest.mark.parametrize("height", range(8, 40))
def test_apply_never_hides_the_control_plane(height: int) -> None:
    lines = before_the_question(mixed_waves([1, 2, 3] * 5), height)
    assert any("cp-1, then cp-2, then cp-3" in line for line in lines)


@pytest.mark.parametrize("height", range(8, 40))
def test_apply_counts_every_node_of_a_plan_that_is_too_long(height: int) -> None:
    text = "\n".join(before_the_question(mixed_waves([1, 2, 3] * 5), height))
    grouped_rows = re.findall(r"(\d+) nodes, up to 3 per wave", text)
    assert grouped_rows in ([], ["30"])
    assert grouped_rows or text.count("step ") == 15


def test_a_question_says_what_is_about_to_happen() -> None:
    assert (
        consequence_text(mixed_waves([3, 2]))
        == "This drains and reboots 8 nodes, at most 3 at once, in about 10 min."
    )


def test_a_question_about_one_node_after_another_says_so() -> None:
    assert consequence_text(of_waves("", "")).startswith(
        "This drains and reboots 2 nodes, one at a time"
    )


def test_the_longest_wait_for_jobs_stands_beside_the_estimate() -> None:
    made = of_waves("")
    (wave,) = made.waves
    waiting = replace(wave.nodes[0], wait=2, wait_seconds=2400)
    changed = replace(made, waves=(replace(wave, nodes=(waiting, *wave.nodes[1:])),))
    assert "Drains wait up to 40 min for 2 pods to complete." in plan_text(
        changed, zone_by_node={}, width=120
    )
