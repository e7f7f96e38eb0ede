"""What a server decides, as values: whose request it is, and which slots it may reserve."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.fleetlock import GroupRules, Slot, Slots, SlotState, zincati_id
from rollout.model.policy import Policy, Selection
from rollout.model.quantity import Count
from rollout.server.admission import SlotLimits, reserve_within_limits
from rollout.server.nodes import node_of_host
from rollout.server.protocol import AnswerKind, Denied, FleetLockAnswer, HostRequest
from rollout.server.service import AnswerLog
from rollout.server.state import SlotStore
from tests.execution.fake_cluster import FakeCluster, FakeServer
from tests.execution.simulated import SetClock
from tests.planning import builders
from tests.planning.builders import NOW, ago, cordoned

MACHINE = "1c09ca98649c4c7abc779cd04c96812e"
HOST_ID = "978a225b3d7b40e9acd7ce9b62f68444"


def node(
    name: str, *, ready: bool = True, machine: str = "", boot: str = "b1", **annotations: str
) -> Node:
    marked = {f"{marks.PREFIX}{key.replace('_', '-')}": value for key, value in annotations.items()}
    return builders.node(
        name,
        ready=ready,
        labels={"zone": name[-1]},
        annotations=marked,
        boot_id=boot,
        machine_id=machine,
    )


def slot(name: str, group: str = "default", state: SlotState = SlotState.HELD) -> Slot:
    return Slot(
        group,
        name,
        f"uid-{name}",
        "id",
        f"fleetlock-{name}",
        "2026-11-23T01:00:00Z",
        "b1",
        state=state,
    )


@pytest.mark.parametrize(
    "written", [MACHINE, MACHINE.upper(), "1c09ca98-649c-4c7a-bc77-9cd04c96812e"]
)
def test_the_id_is_the_one_that_zincati_makes(written: str) -> None:
    assert zincati_id(written) == HOST_ID


def test_a_machine_id_that_two_nodes_have_is_nobodys() -> None:
    nodes = [node("a", machine=MACHINE), node("b", machine=MACHINE)]
    with pytest.raises(Denied) as denied:
        node_of_host(HOST_ID, nodes)
    assert denied.value.answer.kind is AnswerKind.DOUBLED_ID
    with pytest.raises(Denied) as denied:
        node_of_host("0", nodes)
    assert denied.value.answer.kind is AnswerKind.UNKNOWN_ID


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["x", "y"])), max_size=20),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sets(st.sampled_from("abcdefgh")),
)
def test_no_order_of_requests_exceeds_a_limit(
    requests: list[tuple[str, str]], most: int, away: int, unready: set[str]
) -> None:
    nodes = {name: node(name, ready=name not in unready) for name in "abcdefgh"}
    limits = SlotLimits(nodes, Selection(), Policy(max_unavailable=Count(away)), None)
    slots = Slots()
    for name, group in requests:
        try:
            slots = reserve_within_limits(slots, slot(name, group), GroupRules(Count(most)), limits)
        except Denied as denied:
            assert denied.answer.kind in (AnswerKind.SEMAPHORE_FULL, AnswerKind.MAX_UNAVAILABLE)  # noqa: PT017 - either is right
    assert all(len(slots.counted(group)) <= most for group in "xy")
    assert not slots.all or len(slots.nodes | unready) <= away
    assert len(slots.all) == len(slots.nodes)


@pytest.mark.parametrize(("seconds", "may_reserve"), [(60, False), (24 * 3600, True)])
def test_a_node_that_someone_else_drains_counts_and_one_cordoned_long_ago_does_not(
    seconds: int, *, may_reserve: bool
) -> None:
    nodes = {"a": cordoned("a", ago(seconds)), "b": node("b")}
    limits = SlotLimits(nodes, Selection(), Policy(), NOW)
    if may_reserve:
        assert reserve_within_limits(Slots(), slot("b"), GroupRules(), limits).nodes == {"b"}
        return
    with pytest.raises(Denied) as denied:
        reserve_within_limits(Slots(), slot("b"), GroupRules(), limits)
    assert denied.value.answer.kind is AnswerKind.MAX_UNAVAILABLE


def test_an_absent_node_counts_as_unavailable_but_not_toward_its_group() -> None:
    nodes = {name: node(name, ready=name != "a") for name in "abcd"}
    slots = Slots((slot("a", state=SlotState.ABSENT),))
    assert not slots.counted("default")
    two = SlotLimits(nodes, Selection(), Policy(max_unavailable=Count(2)), None)
    assert reserve_within_limits(slots, slot("b"), GroupRules(), two).nodes == {"a", "b"}
    with pytest.raises(Denied) as denied:
        reserve_within_limits(
            slots, slot("b"), GroupRules(), SlotLimits(nodes, Selection(), Policy(), None)
        )
    assert denied.value.answer.kind is AnswerKind.MAX_UNAVAILABLE


def test_an_absent_host_that_reports_holds_no_second_place_in_its_group() -> None:
    slots = Slots((slot("a", state=SlotState.ABSENT), slot("b"))).report("fleetlock-a")
    assert [each.node for each in slots.counted("default")] == ["b"]
    reported = slots.of_node("a")
    assert reported is not None
    assert reported.has_reported
    assert reported.is_canceled, "its node is returned without another reboot"


def test_a_denial_names_only_the_nodes_that_count_toward_the_group() -> None:
    nodes = {name: node(name, ready=name != "a") for name in "abc"}
    slots = Slots((slot("a", state=SlotState.ABSENT), slot("b")))
    limits = SlotLimits(nodes, Selection(), Policy(max_unavailable=Count(3)), None)
    with pytest.raises(Denied) as denied:
        reserve_within_limits(slots, slot("c"), GroupRules(), limits)
    assert denied.value.answer.value == "all 1 slots of the group default are held, by b"


def test_nodes_of_two_zones_wait_for_each_other() -> None:
    nodes = {name: node(name) for name in ("a1", "b1", "c2")}
    limits = SlotLimits(
        nodes, Selection(), Policy(max_unavailable=Count(3), spread_by="zone"), None
    )
    slots = reserve_within_limits(Slots(), slot("a1"), GroupRules(Count(3)), limits)
    slots = reserve_within_limits(slots, slot("b1"), GroupRules(Count(3)), limits)
    with pytest.raises(Denied) as denied:
        reserve_within_limits(slots, slot("c2"), GroupRules(Count(3)), limits)
    assert denied.value.answer.kind is AnswerKind.NOT_NOW


def test_control_plane_nodes_go_one_at_a_time() -> None:
    label = {"node-role.kubernetes.io/control-plane": ""}
    nodes = {name: replace(node(name), labels=label if name != "c" else {}) for name in "abc"}
    limits = SlotLimits(nodes, Selection(), Policy(max_unavailable=Count(3)), None)
    slots = reserve_within_limits(
        reserve_within_limits(Slots(), slot("a"), GroupRules(Count(3)), limits),
        slot("c"),
        GroupRules(Count(3)),
        limits,
    )
    with pytest.raises(
        Denied, match="control-plane nodes reboot one at a time, and a holds a slot"
    ):
        reserve_within_limits(slots, slot("b"), GroupRules(Count(3)), limits)


def test_a_grant_that_is_sent_too_late_becomes_a_denial() -> None:
    granted = FleetLockAnswer(AnswerKind.GRANTED, "", until=10.0)
    denied = FleetLockAnswer(AnswerKind.PAUSED, "", until=10.0)
    assert granted.valid_at(10.0) is granted
    assert granted.valid_at(10.1).kind == AnswerKind.LOCK_LOST
    assert denied.valid_at(10.1).kind.status == 503
    assert FleetLockAnswer(AnswerKind.RELEASED, "").valid_at(1e9).kind.status == 200


SLOT = Slot("default", "a", "uid-a", "id", "fleetlock-a", "2026-11-23T01:00:00Z", "b1")


def test_a_change_is_not_hidden_by_a_look_that_began_before_it_was_written() -> None:
    store = SlotStore(FakeCluster(FakeServer()), SetClock(), "kube-system")

    def reserve(slots: Slots) -> Slots:
        assert store.read_now() == slots
        return slots.add(SLOT)

    assert store.change(reserve).nodes == {"a"}
    assert store.read_unless_fresh().nodes == store.cached.nodes == {"a"}


# What an operator reads at night: each no once, and not a line for each host of a thousand.


FULL = FleetLockAnswer(
    AnswerKind.SEMAPHORE_FULL, "all 1 slots of the group default are held, by worker-1"
)


DRAINING = FleetLockAnswer(AnswerKind.WAITING_FOR_DRAIN, "worker-1 is draining")


STRANGER = FleetLockAnswer(
    AnswerKind.UNKNOWN_ID, "no Node has the machine ID from which this ID is derived"
)


def shown_name(host_id: str) -> str:
    if host_id.startswith("x"):
        raise Denied(AnswerKind.UNKNOWN_ID, "")
    return f"worker-{host_id}"


@dataclass
class Written:
    """A log, and what stands in it."""

    clock: SetClock = field(default_factory=SetClock)
    lines: list[str] = field(default_factory=list)
    log: AnswerLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = AnswerLog(self.clock, self.lines.append, shown_name)

    def note(self, host_id: str, answer: FleetLockAnswer, group: str = "default") -> int:
        """How many lines that makes."""
        before = len(self.lines)
        self.log.note(HostRequest(host_id, group), answer)
        return len(self.lines) - before


def test_a_host_that_is_told_the_same_again_is_no_news() -> None:
    log = Written()
    assert [log.note("1", DRAINING) for _ in range(5)] == [1, 0, 0, 0, 0]
    assert log.lines == [
        "worker-1 requests a reboot, group default: waiting_for_drain: worker-1 is draining"
    ]
    assert log.note("2", DRAINING) == 1
    assert [
        log.note("1", answer)
        for answer in (FleetLockAnswer(AnswerKind.GRANTED, "drained"), DRAINING)
    ] == [
        1,
        1,
    ]


def test_what_all_hosts_are_told_is_told_of_the_first_and_again_in_an_hour() -> None:
    log = Written()
    assert sum(log.note(str(number), FULL) for number in range(1000)) == 1
    assert (
        log.note(
            "7",
            FleetLockAnswer(
                AnswerKind.SEMAPHORE_FULL, "all 1 slots of the group default are held, by worker-2"
            ),
        )
        == 1
    )
    assert sum(log.note(str(number), FULL) for number in range(1000)) == 0
    log.clock.seconds = 3601
    assert sum(log.note(str(number), FULL) for number in range(1000)) == 1


def test_strangers_fill_no_log_and_keep_no_known_host_out_of_it() -> None:
    log = Written()
    assert sum(log.note(f"x{number}", STRANGER) for number in range(20_000)) == 1
    assert log.note("2", FULL) == 1
    assert log.note("1", DRAINING) == 1
    assert log.note("1", DRAINING) == 0
    log.clock.seconds = 3601
    assert [log.note("xy", STRANGER) for _ in range(2)] == [1, 0]
