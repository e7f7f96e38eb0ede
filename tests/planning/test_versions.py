"""Which hosts are up to date: those that run the newest version that the cluster knows of, and no
others.
"""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import Sign, Source, SourceAnswer, short_checksum
from rollout.model.host import (
    HostFacts,
    HostObservation,
    UpdateOperation,
    UpdateStanding,
    UpdateState,
    UpdateStatus,
)
from rollout.model.plan import WarningKind
from rollout.model.quantity import Duration
from rollout.model.update_checks import CheckState, UnitState, UpdateChecks
from rollout.planning.eligibility import versions
from rollout.planning.eligibility.versions import KnownVersions
from rollout.planning.eligibility.windows import Schedule
from rollout.planning.plan.build import build_plan
from rollout.planning.plan.finish_by import finish_date
from tests.planning.builders import NEW, NOW, OLD, facts, inputs, node


def running(name: str, version: str, group: str = "stable", os_id: str = "flatcar") -> HostFacts:
    return facts(name, staged=False, running_version=version, group=group, os_id=os_id)


def update_standings(
    *hosts: HostFacts, others: tuple[Node, ...] = ()
) -> Mapping[str, UpdateStanding]:
    observations: dict[str, HostObservation] = {host.host.name: host for host in hosts}
    nodes = [node(name) for name in observations]
    known = KnownVersions.of([*nodes, *others], observations)
    return {one.name: known.standing(one, host) for one, host in zip(nodes, hosts, strict=True)}


def states(*hosts: HostFacts, others: tuple[Node, ...] = ()) -> list[UpdateState]:
    return [standing.state for standing in update_standings(*hosts, others=others).values()]


def test_hosts_of_one_version_are_up_to_date() -> None:
    assert states(running("a", NEW), running("b", NEW)) == [UpdateState.UP_TO_DATE] * 2


def test_a_host_that_runs_less_than_another_is_behind() -> None:
    found = update_standings(running("a", OLD), running("b", NEW))
    assert found["a"] == UpdateStanding(UpdateState.BEHIND, NEW, behind=True)
    assert found["b"].state is UpdateState.UP_TO_DATE


def test_a_host_that_runs_less_than_another_has_staged_is_behind() -> None:
    assert states(running("a", OLD), facts("b"))[0] is UpdateState.BEHIND


def test_versions_are_compared_as_numbers() -> None:
    found = update_standings(running("a", "4081.2.9"), running("b", "4081.2.10"))
    assert found["a"] == UpdateStanding(UpdateState.BEHIND, "4081.2.10", behind=True)


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (running("a", "4152.2.0"), running("b", "4187.1.0", "beta")),
        (running("a", "3510.3.6", "lts"), running("b", "4152.2.0")),
        (running("a", "4152.2.0"), running("b", "41.20241027.3.0", "", "fedora")),
        (
            running("a", "40.20241006.3.0", "", "fedora"),
            running("b", "41.20241027.2.0", "", "fedora"),
        ),
        (running("a", "4152.2.0", "canary"), running("b", "4081.2.0", "production")),
    ],
    ids=[
        "stable and beta",
        "lts and stable",
        "Flatcar and Fedora CoreOS",
        "Fedora's streams",
        "own groups",
    ],
)
def test_hosts_of_different_streams_are_not_compared(one: HostFacts, another: HostFacts) -> None:
    assert states(one, another) == [UpdateState.UP_TO_DATE] * 2


def test_versions_of_fedora_coreos_are_compared_within_their_stream() -> None:
    found = states(
        running("a", "40.20241006.3.0", "", "fedora"), running("b", "41.20241027.3.0", "", "fedora")
    )
    assert found == [UpdateState.BEHIND, UpdateState.UP_TO_DATE]


def test_a_host_that_has_just_changed_its_channel_is_compared_with_the_new_one() -> None:
    moved_up = running("a", "4152.2.0", "beta")
    assert states(moved_up, running("b", "4187.1.0", "beta"))[0] is UpdateState.BEHIND


def test_a_host_that_has_left_beta_does_not_make_stable_hosts_behind() -> None:
    assert (
        states(running("a", "4152.2.0"), running("b", "4187.1.0")) == [UpdateState.UP_TO_DATE] * 2
    )


def test_a_node_whose_host_was_not_asked_counts_by_its_image() -> None:
    other = node("b", os_image=f"Flatcar Container Linux by Kinvolk {NEW} (Oklo)")
    assert states(running("a", OLD), others=(other,)) == [UpdateState.BEHIND]


@pytest.mark.parametrize(
    "image",
    [
        "Flatcar Container Linux by Kinvolk 4187.1.0 (Oklo)",
        "Ubuntu 24.04.1 LTS",
        "Fedora CoreOS 41.20241027.3.0",
    ],
)
def test_an_image_of_another_stream_does_not_count(image: str) -> None:
    assert states(running("a", NEW), others=(node("b", os_image=image),)) == [
        UpdateState.UP_TO_DATE
    ]


def test_versions_without_an_order_are_not_called_newer_or_older() -> None:
    found = states(running("a", "24.04", "", "ubuntu"), running("b", "22.04", "", "ubuntu"))
    assert found == [UpdateState.IDLE] * 2


def test_without_an_order_a_staged_version_is_newer_than_the_one_it_replaces() -> None:
    staged = facts("b", running_version="v1", os_id="other", group="")
    found = update_standings(running("a", "v1", "", "other"), staged)
    assert found["a"] == UpdateStanding(UpdateState.BEHIND, NEW, behind=True)


def test_without_an_order_a_staged_downgrade_makes_no_host_behind() -> None:
    update = UpdateStatus(UpdateOperation.NEED_REBOOT, "418.1")
    downgraded = facts("b", running_version="418.2", os_id="other", group="", update=update)
    assert states(running("a", "418.2", "", "other"), downgraded)[0] is UpdateState.IDLE


@pytest.mark.parametrize(
    ("os_id", "version"), [("ubuntu", "24.04"), ("debian", "12"), ("fedora", "41")]
)
def test_hosts_of_packages_are_up_to_date_only_if_they_look_for_updates(
    os_id: str, version: str
) -> None:
    unknown = running("a", version, "", os_id)
    checks = UpdateChecks("rpm-ostreed-automatic.timer", RUNNING, silence_seconds=60.0)
    found = states(unknown, replace(running("b", version, "", os_id), checks=checks))
    assert found == [UpdateState.IDLE, UpdateState.UP_TO_DATE]


def test_nightly_builds_of_one_version_are_not_compared() -> None:
    found = states(
        running("a", "4200.0.0+nightly-1", "alpha"), running("b", "4200.0.0+nightly-2", "alpha")
    )
    assert found == [UpdateState.IDLE] * 2


def test_a_host_without_a_version_is_idle() -> None:
    assert states(running("a", "")) == [UpdateState.IDLE]


def rolled_back(name: str, to: str) -> Node:
    result = (
        f'{{"outcome": "rolled-back", "from": "{NEW}", "version": "{to}", "at":'
        ' "2026-03-01T10:00:00Z"}'
    )
    return node(name, annotations={marks.LAST_RESULT: result})


def test_a_host_that_was_rolled_back_says_so_even_if_it_is_alone() -> None:
    standing = KnownVersions.of([], {}).standing(rolled_back("a", OLD), running("a", OLD))
    assert standing.state is UpdateState.ROLLED_BACK
    assert standing.rolled_back_from == NEW
    assert standing.rolled_back_at == "2026-03-01T10:00:00Z"


def test_a_rollback_is_over_once_the_host_runs_another_version() -> None:
    host = running("a", NEW)
    known = KnownVersions.of([node("a")], {"a": host})
    assert known.standing(rolled_back("a", OLD), host).state is UpdateState.UP_TO_DATE


@pytest.mark.parametrize(
    ("operation", "state"),
    [
        (UpdateOperation.REPORTING_ERROR, UpdateState.CHECK_FAILED),
        (UpdateOperation.DOWNLOADING, UpdateState.UPDATING),
        (UpdateOperation.CHECKING, UpdateState.UP_TO_DATE),
        (UpdateOperation.NOT_ASKED, UpdateState.UP_TO_DATE),
    ],
)
def test_what_update_engine_does_goes_before_the_version(
    operation: UpdateOperation, state: UpdateState
) -> None:
    host = facts(
        "a", update=UpdateStatus(operation), running_version=NEW, sources=(Source.UPDATE_ENGINE,)
    )
    assert states(host) == [state]


@pytest.mark.parametrize(
    "version", [f"{'9' * 6000}.2.0", f"4152.{'9' * 6000}.0"], ids=["major", "channel"]
)
def test_a_number_that_no_version_has_is_not_computed_with(version: str) -> None:
    """Whoever writes the status of one Node could end every plan."""
    strange = node("b", os_image=f"Flatcar Container Linux by Kinvolk {version}")
    assert states(running("a", NEW), others=(strange,)) == [UpdateState.UP_TO_DATE]
    assert states(running("a", version), running("b", NEW)) == [
        UpdateState.IDLE,
        UpdateState.UP_TO_DATE,
    ]


RUNNING = UnitState("loaded", "active", "enabled")
MASKED = UnitState("masked", "inactive", "masked")
FAILED = UnitState("loaded", "failed", "enabled")
DAY = 86_400.0


def checked(version: str, service: UnitState, silence: float | None = None) -> HostFacts:
    checks = UpdateChecks("update-engine", service, silence_seconds=silence)
    return replace(running("a", version), checks=checks)


@pytest.mark.parametrize(
    ("service", "silence", "checks"),
    [
        (RUNNING, 3600.0, CheckState.WORKING),
        (RUNNING, 2 * DAY, CheckState.WORKING),
        (RUNNING, 2 * DAY + 1, CheckState.STALE),
        (RUNNING, None, CheckState.WORKING),
        (RUNNING, -5 * DAY, CheckState.WORKING),
        (MASKED, None, CheckState.MASKED),
        (MASKED, 9 * DAY, CheckState.MASKED),
        (FAILED, None, CheckState.FAILED),
        (UnitState("loaded", "inactive", "disabled"), None, CheckState.STOPPED),
        (UnitState(), None, CheckState.UNKNOWN),
        (UnitState("not-found", "inactive"), None, CheckState.UNKNOWN),
    ],
)
def test_only_a_host_that_looks_for_updates_is_up_to_date(
    service: UnitState, silence: float | None, checks: CheckState
) -> None:
    newest = update_standings(checked(NEW, service, silence), running("b", NEW))["a"]
    assert newest.checks is checks
    is_current = checks in (CheckState.WORKING, CheckState.UNKNOWN)
    assert newest.state is (UpdateState.UP_TO_DATE if is_current else UpdateState.NOT_CHECKING)
    assert not newest.behind
    older = update_standings(checked(OLD, service, silence), running("b", NEW))["a"]
    assert (older.state, older.behind, older.checks) == (UpdateState.BEHIND, True, checks)


@pytest.mark.parametrize(
    ("silence", "state"),
    [(DAY, UpdateState.UPDATING), (3 * DAY, UpdateState.NOT_CHECKING)],
    ids=["working", "stuck"],
)
def test_a_download_that_never_ends_is_no_update(silence: float, state: UpdateState) -> None:
    downloading = UpdateStatus(UpdateOperation.DOWNLOADING)
    host = replace(checked(NEW, RUNNING, silence), update=downloading)
    assert states(host) == [state]


def test_a_service_whose_configuration_turns_updates_off_does_not_check() -> None:
    host = running("a", NEW)
    on = replace(host, checks=UpdateChecks("zincati", RUNNING))
    off = replace(host, checks=UpdateChecks("zincati", RUNNING, is_disabled=True))
    masked = replace(host, checks=UpdateChecks("zincati", MASKED, is_disabled=True))
    assert states(on) == [UpdateState.UP_TO_DATE]
    assert states(off) == [UpdateState.NOT_CHECKING]
    assert off.checks.check_state() is CheckState.DISABLED
    # What keeps the service from running comes first.
    assert masked.checks.check_state() is CheckState.MASKED


def test_how_long_a_host_may_go_without_a_check_is_a_setting() -> None:
    host = checked(NEW, RUNNING, 3 * DAY)
    known = KnownVersions.of([node("a")], {"a": host})
    assert known.standing(node("a"), host, Duration(3 * DAY)).is_current
    assert not known.standing(node("a"), host, Duration(3 * DAY - 1)).is_current


def test_a_host_that_waits_for_its_reboot_is_not_behind() -> None:
    observations: dict[str, HostObservation] = {
        "a": facts("a"),
        "b": running("b", NEW),
        "c": running("c", OLD),
    }
    found = versions.update_standings(
        [node(name) for name in observations], observations, Duration(DAY)
    )
    assert {name: standing.behind for name, standing in found.items()} == {"b": False, "c": True}


def hop(name: str, staged: str) -> HostFacts:
    return facts(name, update=UpdateStatus(UpdateOperation.NEED_REBOOT, staged))


def test_a_host_that_has_to_go_through_a_version_is_reckoned_with_twice() -> None:
    """Its update server does not offer the newest version before the one in between."""
    nodes = [node("a"), node("b")]
    plans = [
        build_plan(inputs(nodes, observations={"a": hop("a", staged), "b": running("b", NEW)}))
        for staged in ("4100.2.0", NEW)
    ]
    (between,), (direct,) = ([one for wave in made.waves for one in wave.nodes] for made in plans)
    assert (between.next_version, direct.next_version) == (NEW, "")
    (told,) = [found for found in plans[0].warnings if found.kind is WarningKind.MORE_UPDATES]
    assert told.message == (
        f"needs another reboot after 4100.2.0, for {NEW}: run rollout again once that is staged"
    )
    ends = [finish_date(made, Schedule.of(made.policy.gates.windows), NOW) for made in plans]
    twice, once = (end - NOW for end in ends if end)
    assert twice == 2 * once + timedelta(minutes=30)


@pytest.mark.parametrize("staged", ["4230.1.0", "4152.2.0+nightly", "odd", ""])
def test_a_staged_version_that_is_not_known_to_be_older_is_the_last(staged: str) -> None:
    observations: dict[str, HostObservation] = {"a": hop("a", staged), "b": running("b", NEW)}
    known = KnownVersions.of([node("a"), node("b")], observations)
    assert known.after_staged(hop("a", staged)) == ""


FIRST, SECOND, THIRD = (f"sha256:{digit * 64}" for digit in "123")


def image(name: str, current: str, *, fallback: str = "", target: str = "") -> HostFacts:
    """A host in image mode. All its images have the same version."""
    sign = Sign(
        Source.BOOTC,
        SourceAnswer.NEEDED if target else SourceAnswer.NOT_NEEDED,
        version=short_checksum(target),
        target=target,
        current=current,
        fallback=fallback,
    )
    host = running(name, "42.20250901.0", "", "fedora")
    return replace(host, sources=(Source.BOOTC,), signs=(sign,))


def test_a_rollback_of_one_host_makes_no_other_host_behind() -> None:
    back = image("a", FIRST, fallback=SECOND)
    assert back.image_sign
    sign = replace(back.image_sign, fallback_is_newer=True)
    assert states(replace(back, signs=(sign,)), image("b", SECOND)) == [UpdateState.IDLE] * 2


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([image("a", FIRST), image("b", FIRST)], [UpdateState.UP_TO_DATE] * 2),
        ([image("a", FIRST), image("b", SECOND)], [UpdateState.IDLE] * 2),
        (
            [image("a", FIRST), image("b", SECOND, fallback=FIRST)],
            [UpdateState.BEHIND, UpdateState.UP_TO_DATE],
        ),
        ([image("a", FIRST), image("b", FIRST, target=SECOND)], [UpdateState.BEHIND]),
        (
            [image("a", FIRST, fallback=SECOND), image("b", SECOND, fallback=FIRST)],
            [UpdateState.IDLE] * 2,
        ),
        (
            [image("a", THIRD, fallback=SECOND), image("b", SECOND, fallback=FIRST)],
            [UpdateState.UP_TO_DATE, UpdateState.BEHIND],
        ),
    ],
    ids=["alike", "no order", "kept", "staged", "rolled back", "two behind"],
)
def test_images_of_one_version_are_told_apart_by_their_digests(
    hosts: list[HostFacts], expected: list[UpdateState]
) -> None:
    found = update_standings(*hosts)
    idle = [name for name, host in zip("ab", hosts, strict=True) if host.counts_as_unstaged]
    assert [found[name].state for name in idle] == expected
    newest = {one.newest_version for one in found.values() if one.state is UpdateState.BEHIND}
    assert newest <= {short_checksum(SECOND), short_checksum(THIRD)}
