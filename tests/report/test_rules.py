from datetime import UTC, datetime

from rollout.model.courtesy import CourtesyPolicy
from rollout.model.gates import AlertPolicy, GatePolicy, HookPolicy, WindowPolicy
from rollout.model.policy import DrainPolicy, Policy, Pool
from rollout.model.quantity import Count, Duration
from rollout.report.rules import rule_lines

# a Wednesday
NOW = datetime(2026, 3, 4, 5, 0, tzinfo=UTC)


def told(policy: Policy, now: datetime = NOW) -> list[str]:
    return list(rule_lines(policy, now))


def test_defaults_are_not_told() -> None:
    assert told(Policy()) == []
    assert told(Policy(ready_timeout=Duration(60))) == ["Limits: Ready 1m"]


def windows(*written: str, wait: bool = False) -> Policy:
    return Policy(gates=GatePolicy(windows=WindowPolicy(written, wait=wait)))


def test_a_window_says_when_it_opens_next_or_how_long_it_stays_open() -> None:
    (closed,) = [line for line in told(windows("sat 02:00 4h", wait=True)) if line.startswith("Window: ")]
    assert "sat 02:00 4h: closed, opens in 2d21h (Sat 2026-03-07 " in closed
    assert closed.endswith("apply waits for it")
    (open_now,) = [line for line in told(windows("wed 04:00 2h")) if line.startswith("Window: ")]
    assert open_now.endswith("wed 04:00 2h: open for another 1h00m")


def test_gates_pools_and_what_weakens_safety_are_told() -> None:
    lines = told(
        Policy(
            max_unavailable=Count(25, percent=True),
            canary=1,
            own_reboot_command=True,
            drain=DrainPolicy(disable_eviction=True, force=True),
            pools=(Pool("web", "pool=web", after=("db",), drain_timeout=Duration(60)),),
            gates=GatePolicy(
                alerts=AlertPolicy("http://prometheus:9090"),
                hooks=HookPolicy(before=("example.com/ready",)),
                blocking_pods=("app=backup",),
                soak=Duration(300),
            ),
        )
    )
    text = "\n".join(lines)
    for part in (
        "25% at once, canary 1",
        "soak 5m",
        "web, pool=web; after db; drain-timeout 1m",
        "alerts of http://prometheus:9090",
        "before the drain: example.com/ready, 1h at most",
        "no pod of app=backup on the node",
        "the operator's own reboot.command",
        "! --disable-eviction: pods are deleted",
        "! --force: pods that nothing starts again",
    ):
        assert part in text


def test_what_is_done_for_people_and_programs_is_told() -> None:
    courtesy = CourtesyPolicy(
        drain_delay=Duration(60),
        wait_for_users=Duration(1800),
        wall=True,
        pre_reboot_node_labels=("maintenance=true",),
        post_reboot_node_labels=("maintenance=false",),
        fluo_labels=True,
    )
    lines = [
        line.removeprefix("Courtesy: ") for line in told(Policy(courtesy=courtesy)) if line.startswith("Courtesy: ")
    ]
    assert lines == [
        "drain delayed by 1m",
        "logged-in users are told and waited for, 30m at most",
        "labels from the cordon on: maintenance=true",
        "labels at the end: maintenance=false",
        "FLUO's labels kept up to date",
    ]
    assert not any(line.startswith("! --") for line in told(Policy(courtesy=courtesy)))
    (only_told,) = [line for line in told(Policy(courtesy=CourtesyPolicy(wall=True))) if line.startswith("Courtesy")]
    assert only_told.endswith("logged-in users are told and not waited for")
