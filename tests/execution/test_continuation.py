"""What is left of a rollout's rules once a part of it has been done."""

import pytest
from msgspec.structs import replace

from rollout.execution.record.record import StoredRecord
from rollout.execution.record.unfinished import MarkedNode, Unfinished
from rollout.execution.rollout.continuation import plan_continuation, restrict_rules, rules_of
from rollout.model import marks
from rollout.model.cluster import ConditionStatus, Taint
from rollout.model.gates import AlertPolicy, GatePolicy
from rollout.model.plan import BlockerKind
from rollout.model.policy import Policy, Pool
from rollout.model.progress import Phase
from rollout.model.quantity import Count
from rollout.planning.plan.build import build_plan
from rollout.planning.plan.joining import remaining_ramp
from tests.planning.builders import budget, inputs, node, pod
from tests.planning.test_remedies import control_plane


@pytest.mark.parametrize(
    ("sizes", "taken", "left"),
    [
        ((), 3, ()),
        ((1, 3, 10), 0, (1, 3, 10)),
        ((1, 3, 10), -1, (1, 3, 10)),
        ((1, 3, 10), 1, (3, 10)),
        ((1, 3, 10), 2, (2, 10)),
        ((1, 3, 10), 4, (10,)),
        ((1, 3, 10), 40, (10,)),
    ],
)
def test_a_ramp_goes_on_from_where_it_was(
    sizes: tuple[int, ...], taken: int, left: tuple[int, ...]
) -> None:
    assert remaining_ramp(sizes, taken) == tuple(map(Count, left))


def test_what_is_left_of_each_pools_canaries_and_ramp() -> None:
    canary = Pool("canary", "tier=canary", canary=2, max_unavailable=Count(50, percent=True))
    web = Pool("web", "tier=web", canary=0, ramp=(Count(1), Count(3)))
    nodes = [
        node(f"{tier}-{number}", labels={"tier": tier})
        for tier in ("canary", "web", "x")
        for number in range(4)
    ]
    plan = build_plan(
        inputs(nodes, policy=Policy(pools=(canary, web), canary=1, max_unavailable=Count(9)))
    )
    record = StoredRecord("this", "", "", ended=False, plan=plan)
    begun = MarkedNode(
        next(each for each in plan.nodes if each.name == "web-0"),
        Phase.DRAINING,
        "this",
        is_cordoned_now=True,
    )
    pending = tuple(each for each in plan.nodes if each.name not in {"canary-0", "web-0"})
    unfinished = Unfinished(record, in_flight=(begun,), untouched_nodes=pending, done=("canary-0",))
    rest = plan_continuation(
        unfinished,
        inputs(nodes),
        {each.name for each in nodes},
        retry_failed=False,
        skip_blocked=False,
    ).plan
    left = {pool.name: pool for pool in rest.policy.pools}
    assert left["canary"].canary == 1
    assert left["canary"].max_unavailable == Count(2)
    assert left["web"].ramp == (Count(3),)
    assert left["web"].max_unavailable is None
    assert left["web"].canary == 0
    assert rest.policy.canary == 1
    assert rest.waves[0].nodes == (begun.node,)


@pytest.mark.parametrize(
    ("phase", "reachable", "stopped"),
    [
        (Phase.REBOOTING, ("cp-1", "cp-2", "cp-3"), set()),
        (Phase.REBOOTING, ("cp-2", "cp-3"), {"cp-2", "cp-3"}),
        (Phase.FAILED, ("cp-1", "cp-2", "cp-3"), {"cp-2", "cp-3"}),
    ],
)
def test_a_member_of_the_control_plane_that_is_brought_back_first_blocks_no_other(
    phase: Phase, reachable: tuple[str, ...], stopped: set[str]
) -> None:
    """One that failed does, and so does one without a host: nobody brings it back."""
    given = control_plane("cp-1", "cp-2", "cp-3", unready="cp-1")
    marked = {marks.RUN: "this", marks.PHASE: phase}
    down = replace(
        given.snapshot.nodes[0],
        ready=ConditionStatus.UNKNOWN,
        unschedulable=True,
        annotations=marked,
    )
    plan = build_plan(given)
    item = MarkedNode(plan.nodes[0], phase, "this", is_cordoned_now=True)
    failed_nodes = (item,) if phase is Phase.FAILED else ()
    unfinished = Unfinished(
        StoredRecord("this", "", "", ended=False, plan=replace(plan, blockers=())),
        in_flight=() if failed_nodes else (item,),
        failed=failed_nodes,
        untouched_nodes=plan.nodes[1:],
    )
    now = replace(given, snapshot=replace(given.snapshot, nodes=(down, *given.snapshot.nodes[1:])))
    rest = plan_continuation(
        unfinished, now, reachable, retry_failed=False, skip_blocked=False
    ).plan
    blocked = {
        entry.node for entry in rest.blockers if entry.kind is BlockerKind.CONTROL_PLANE_UNHEALTHY
    }
    assert blocked == stopped


@pytest.mark.parametrize(("cordoned_by_us", "blocked"), [(True, set()), (False, {"w-2"})])
def test_a_node_under_way_has_room_for_others_pods_once_its_cordon_is_taken_back(
    *, cordoned_by_us: bool, blocked: set[str]
) -> None:
    nodes = [node("w-1"), node("w-2")]
    pods = [pod("a", "w-2"), pod("b", "w-2")]
    budgets = [budget("web", allowed=1, expected=2)]
    plan = build_plan(inputs(nodes, pods=pods, budgets=budgets))
    marked = {
        marks.RUN: "this",
        marks.PHASE: "rebooting",
        **({marks.CORDONED_BY_US: "true"} if cordoned_by_us else {}),
    }
    taints = (Taint("node.kubernetes.io/unreachable", "", "NoSchedule"),)
    down = replace(
        nodes[0],
        ready=ConditionStatus.UNKNOWN,
        unschedulable=True,
        annotations=marked,
        taints=taints,
    )
    begun = MarkedNode(
        next(each for each in plan.nodes if each.name == "w-1"),
        Phase.REBOOTING,
        "this",
        is_cordoned_now=True,
    )
    pending = tuple(each for each in plan.nodes if each.name == "w-2")
    unfinished = Unfinished(
        StoredRecord("this", "", "", ended=False, plan=plan),
        in_flight=(begun,),
        untouched_nodes=pending,
    )
    given = inputs([down, nodes[1]], pods=pods, budgets=budgets)
    rest = plan_continuation(
        unfinished, given, {"w-1", "w-2"}, retry_failed=False, skip_blocked=False
    ).plan
    assert {entry.node for entry in rest.blockers} == blocked


def waves_of_the_rest(*, done: int, begun: int) -> tuple[list[tuple[int, int]], int]:
    """The number and the size of each wave that is left of four with two nodes, and the last
    number.
    """
    nodes = [node(f"w-{number}") for number in range(8)]
    policy = Policy(max_unavailable=Count(2), canary=0)
    plan = build_plan(inputs(nodes, policy=policy))
    items = [
        MarkedNode(each, Phase.REBOOTING, "this", is_cordoned_now=True)
        for each in plan.nodes[done : done + begun]
    ]
    unfinished = Unfinished(
        StoredRecord("this", "", "", ended=False, plan=plan),
        in_flight=tuple(items),
        untouched_nodes=plan.nodes[done + begun :],
        done=tuple(each.name for each in plan.nodes[:done]),
    )
    given = inputs(nodes, policy=policy)
    rest = plan_continuation(
        unfinished, given, {each.name for each in nodes}, retry_failed=False, skip_blocked=False
    ).plan
    return [(wave.index, len(wave.nodes)) for wave in rest.waves], rest.last_wave


@pytest.mark.parametrize(
    ("done", "begun", "waves"),
    [
        (0, 0, [(1, 2), (2, 2), (3, 2), (4, 2)]),
        (4, 0, [(3, 2), (4, 2)]),
        (2, 2, [(2, 2), (3, 2), (4, 2)]),
        (3, 1, [(2, 1), (3, 2), (4, 2)]),
    ],
)
def test_the_waves_of_a_resumed_rollout_keep_their_numbers(
    done: int, begun: int, waves: list[tuple[int, int]]
) -> None:
    assert waves_of_the_rest(done=done, begun=begun) == (waves, 4)


@pytest.mark.parametrize(
    ("last_wave", "is_under_way", "number"), [(0, False, 1), (2, False, 3), (2, True, 2)]
)
def test_no_wave_gets_the_number_of_one_that_an_earlier_process_grouped_anew(
    last_wave: int, number: int, *, is_under_way: bool
) -> None:
    """Of each planned wave a node is left, so none of them has ended."""
    nodes = [node(f"w-{number}") for number in range(8)]
    given = inputs(nodes, policy=Policy(max_unavailable=Count(2)))
    plan = build_plan(given)
    left = plan.nodes[1::2]
    begun = (
        (MarkedNode(left[0], Phase.REBOOTING, "this", is_cordoned_now=True),)
        if is_under_way
        else ()
    )
    unfinished = Unfinished(
        StoredRecord("this", "", "", ended=False, plan=plan, last_wave=last_wave),
        in_flight=begun,
        untouched_nodes=left[len(begun) :],
        done=tuple(each.name for each in plan.nodes[::2]),
    )
    rest = plan_continuation(
        unfinished, given, {each.name for each in nodes}, retry_failed=False, skip_blocked=False
    ).plan
    assert rest.waves[0].index == number


def recorded(policy: Policy, *, ended: bool) -> Unfinished:
    """A rollout of eight nodes that an operating process left, none of them rebooted."""
    plan = build_plan(inputs([node(f"w-{number}") for number in range(8)], policy=policy))
    return Unfinished(
        StoredRecord("this", "", "", ended=ended, plan=plan, unattended=True),
        untouched_nodes=plan.nodes[1:],
    )


def test_the_gates_of_a_rollout_with_nothing_under_way_are_todays() -> None:
    """A Prometheus that is gone would hold it for ever."""
    alerts = Policy(gates=GatePolicy(alerts=AlertPolicy("http://gone")))
    everything = {f"w-{number}" for number in range(8)}
    interrupted = restrict_rules(recorded(alerts, ended=False), Policy(), everything)
    assert rules_of(interrupted).gates.alerts.url == "http://gone"
    ended = restrict_rules(recorded(alerts, ended=True), Policy(), everything)
    assert rules_of(ended).gates == Policy().gates
