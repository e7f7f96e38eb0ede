"""Which of two policies' rules hold for a rollout that an operating process goes on with."""

import pytest
from msgspec.structs import fields, replace

from rollout.model.detection import Source
from rollout.model.gates import AlertPolicy, GatePolicy, HookPolicy, WindowPolicy
from rollout.model.policy import (
    CompletionFallback,
    CompletionPolicy,
    ControlPlaneOrder,
    CourtesyPolicy,
    Critical,
    DrainPolicy,
    Policy,
    Pool,
    Restart,
)
from rollout.model.quantity import Count, Duration
from rollout.planning.plan.joining import is_regrouped, stricter_policy

LOOSE = Policy(
    max_unavailable=Count(50, percent=True),
    include_cordoned=True,
    include_held=True,
    reboot_idle=True,
    drain=DrainPolicy(
        grace_period=5,
        force=True,
        disable_eviction=True,
        pod_selector="a=b",
        skip_wait_for_delete_timeout=9,
        completion=CompletionPolicy(fallback=CompletionFallback.EVICT),
        restart=Restart.BLOCKED,
    ),
    settle_timeout=Duration(0),
    max_failures=Count(9),
    gates=GatePolicy(health_checks=1, ignored_rivals=("kured", "fluo")),
    detect=(Source.UPDATE_ENGINE, Source.ANNOTATION),
)
STRICT = Policy(
    max_unavailable=Count(2),
    canary=2,
    spread_by="zone",
    control_plane=ControlPlaneOrder.EXCLUDE,
    control_plane_selector="role=leader",
    drain=DrainPolicy(
        delete_emptydir_data=False,
        critical=(Critical("shop", "app=db", 2),),
        completion=CompletionPolicy(("job-name",)),
    ),
    settle_timeout=Duration(900),
    max_failures=Count(1),
    own_reboot_command=True,
    detect=(Source.ANNOTATION,),
    ramp=(Count(1), Count(10, percent=True)),
    exclude_from_load_balancers=Duration(30),
    courtesy=CourtesyPolicy(Duration(1), Duration(2)),
    gates=GatePolicy(
        windows=WindowPolicy(("01:00 1h",)),
        hooks=HookPolicy(before=("a/b",), after=("c/d",), prefix="p/"),
        alerts=AlertPolicy("http://a"),
        blocking_pods=("x=y",),
        health_checks=5,
        soak=Duration(60),
    ),
)


def requested(count: int, pool: str = "") -> dict[str, str]:
    return {f"{pool}-{number}": pool for number in range(count)}


def test_of_loose_and_strict_rules_the_strict_hold_whichever_were_first() -> None:
    assert stricter_policy(LOOSE, STRICT, requested(20)) == STRICT
    # what runs on hosts, and is written on Nodes, is today's alone
    gates = replace(STRICT.gates, hooks=HookPolicy())
    assert stricter_policy(STRICT, LOOSE, requested(20)) == replace(
        STRICT, own_reboot_command=False, gates=gates
    )


def test_every_rule_was_thought_of() -> None:
    """A rule that is neither here nor in the table of the test above came later."""
    neutral = {
        "skip_blocked",
        "reboot_timeout",
        "ready_timeout",
        "prefer_no_schedule_taint",
        "strategy",
        "pools",
        # Only a person starts or continues a rollback.
        "rollback",
    }
    differing = {
        item.name
        for item in fields(Policy)
        if getattr(LOOSE, item.name) != getattr(STRICT, item.name)
    }
    assert differing | neutral == {item.name for item in fields(Policy)}


def test_sources_of_today_count_if_none_is_in_both() -> None:
    standing = Policy(detect=(Source.UPDATE_ENGINE,))
    today = Policy(detect=(Source.RPM_OSTREE,))
    assert stricter_policy(standing, today, requested(3)).detect == (Source.RPM_OSTREE,)


def test_windows_are_those_of_today_where_it_has_any() -> None:
    night, noon = (
        Policy(gates=GatePolicy(windows=WindowPolicy((text,)))) for text in ("01:00 1h", "12:00 1h")
    )
    assert stricter_policy(night, noon, requested(3)).gates.windows.windows == ("12:00 1h",)
    assert stricter_policy(night, Policy(), requested(3)).gates.windows.windows == ("01:00 1h",)


def test_a_pools_windows_are_those_of_today_where_it_has_any() -> None:
    night, noon = (
        Policy(pools=(Pool("web", "a=b", window=(text,)),)) for text in ("01:00 1h", "12:00 1h")
    )
    without = Policy(pools=(Pool("web", "a=b"),))
    held = [
        stricter_policy(night, today, requested(3)).pools[0].window
        for today in (noon, without, Policy())
    ]
    assert held == [("12:00 1h",), ("01:00 1h",), ("01:00 1h",)]


def test_pools_of_one_name_are_joined_and_their_gaps_are_the_rollouts_rules() -> None:
    standing = Policy(
        canary=1, pools=(Pool("web", "a=b", max_unavailable=Count(5), reboot_idle=True),)
    )
    today = Policy(
        canary=3, reboot_idle=True, pools=(Pool("web", "a=b", max_unavailable=Count(2), canary=0),)
    )
    (pool,) = stricter_policy(standing, today, requested(10)).pools
    assert pool.max_unavailable == Count(2)
    assert pool.canary == 1
    assert pool.reboot_idle


def test_percentages_of_a_pool_refer_to_its_own_nodes() -> None:
    share = Count(50, percent=True)
    standing = Policy(pools=(Pool("db", "a=b", max_unavailable=share, ramp=(share,)),))
    today = Policy(pools=(Pool("db", "a=b", max_unavailable=Count(3), ramp=(Count(3),)),))
    nodes = requested(96) | requested(4, "db")
    (pool,) = stricter_policy(standing, today, nodes).pools
    assert pool.max_unavailable == share
    assert pool.ramp == (share,)


def test_pools_of_other_nodes_cannot_be_compared() -> None:
    one = Policy(pools=(Pool("web", "a=b"),))
    other = Policy(pools=(Pool("web", "a=c"),))
    assert is_regrouped(one, other)
    assert is_regrouped(one, Policy())
    assert not is_regrouped(one, replace(one, canary=4))


def test_alerts_that_either_counts_count() -> None:
    one = AlertPolicy("http://a", matchers=('team="a"',))
    other = AlertPolicy("http://b", matchers=('team="b"',))
    rules = stricter_policy(
        Policy(gates=GatePolicy(alerts=one)), Policy(gates=GatePolicy(alerts=other)), requested(3)
    )
    assert rules.gates.alerts == AlertPolicy("http://b")
    alike = AlertPolicy("http://b", matchers=('team="a"',))
    assert stricter_policy(
        Policy(gates=GatePolicy(alerts=one)), Policy(gates=GatePolicy(alerts=alike)), requested(3)
    ).gates.alerts == (alike)


@pytest.mark.parametrize(("nodes", "limit"), [(4, Count(50, percent=True)), (20, Count(3))])
def test_percentages_are_compared_as_numbers(nodes: int, limit: Count) -> None:
    rules = stricter_policy(Policy(Count(3)), Policy(Count(50, percent=True)), requested(nodes))
    assert rules.max_unavailable == limit
