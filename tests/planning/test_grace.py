"""How long the nodes in flight may take."""

from dataclasses import replace

from rollout.model.gates import GatePolicy, HookPolicy
from rollout.model.policy import CourtesyPolicy, DrainPolicy, Policy, Pool
from rollout.model.quantity import Duration
from rollout.planning.play.pace import slowest_node_seconds

POLICY = Policy(drain=DrainPolicy(timeout=Duration(100)), reboot_timeout=Duration(200), ready_timeout=Duration(30))


def test_each_step_may_take_all_its_time() -> None:
    assert slowest_node_seconds(POLICY) == 330
    assert slowest_node_seconds(replace(POLICY, exclude_from_load_balancers=Duration(60))) == 390
    waits = CourtesyPolicy(drain_delay=Duration(5), reboot_delay=Duration(7), wait_for_users=Duration(9))
    assert slowest_node_seconds(replace(POLICY, courtesy=waits)) == 351


def test_the_slowest_pool_counts() -> None:
    slow = Pool("slow", "pool=slow", drain_timeout=Duration(1000), ready_timeout=Duration(1))
    other = Pool("other", "pool=other", reboot_timeout=Duration(500))
    assert slowest_node_seconds(replace(POLICY, pools=(slow, other))) == 1000 + 500 + 30


def test_checks_count_where_there_are_any() -> None:
    def with_hooks(*before: str) -> Policy:
        return replace(POLICY, gates=GatePolicy(hooks=HookPolicy(before=before, after=("a",), timeout=Duration(7))))

    assert slowest_node_seconds(with_hooks()) == 337
    assert slowest_node_seconds(with_hooks("b")) == 344
