from datetime import UTC, datetime

from msgspec.structs import replace

from rollout.cli.settings.rules import policy_of
from rollout.cli.settings.schema import Settings, settings
from rollout.model.gates import AlertPolicy, GatePolicy, HookPolicy, WindowPolicy
from rollout.model.policy import CourtesyPolicy, DrainPolicy, Policy, Pool
from rollout.model.quantity import Count, Duration
from rollout.planning.plan.document import policy_document
from rollout.report.rules import changed_rules, flat_rules, rule_lines
from tests.report.journals import policy

# a Wednesday
NOW = datetime(2026, 3, 4, 5, 0, tzinfo=UTC)


def told(rules: Policy) -> list[str]:
    """As of a command, which keeps the soft taint."""
    return list(rule_lines(replace(rules, prefer_no_schedule_taint=True), NOW))


def test_defaults_are_not_told() -> None:
    assert told(Policy()) == []
    assert told(Policy(ready_timeout=Duration(60))) == ["Rules: --ready-timeout 1m"]


def test_a_window_says_when_it_opens_next_or_how_long_it_stays_open() -> None:
    (closed,) = [line for line in told(policy("sat 02:00 4h")) if line.startswith("Window: ")]
    assert "sat 02:00 4h: closed, opens in 2d21h (Sat 2026-03-07 " in closed
    assert closed.endswith("apply waits for it")
    (open_now,) = [line for line in told(policy("wed 04:00 2h")) if line.startswith("Window: ")]
    assert open_now.endswith("wed 04:00 2h: open for another 1h00m")


def test_gates_pools_and_what_weakens_safety_are_told() -> None:
    lines = told(
        Policy(
            max_unavailable=Count(25, percent=True),
            canary=1,
            own_reboot_command=True,
            courtesy=CourtesyPolicy(drain_delay=Duration(60), fluo_labels=True),
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
        "Rules: --max-unavailable 25%",
        "--canary 1",
        "waves.soak 5m",
        "[[pool]] web, pool=web; after db; drain-timeout 1m",
        "alerts.prometheus-url http://prometheus:9090",
        "gates.before-reboot-annotations example.com/ready",
        "gates.blocking-pod-selector app=backup",
        "reboot.command",
        "drain.delay 1m, labels.fluo",
        "! --disable-eviction: pods are deleted",
        "! --force: pods that have no controller",
    ):
        assert part in text


# The rules of a run are said in the words that an operator would write them with.


def test_every_rule_has_the_name_of_a_flag_or_a_key() -> None:
    """Whoever reads it can write it."""
    known = {*settings(), *(f"--{setting.flag}" for setting in settings().values() if setting.flag)}
    # This one is a flag of plan alone.
    known.add("--rollback")
    assert {name.split()[0] for name, _value in flat_rules(policy_document(Policy()))} <= known


def test_what_was_changed_reads_as_it_was_written() -> None:
    rules = Policy(
        prefer_no_schedule_taint=True,
        max_unavailable=Count(25, percent=True),
        drain=DrainPolicy(force=True, delete_emptydir_data=False, timeout=Duration(60)),
        gates=GatePolicy(windows=WindowPolicy(("22:00 8h", "Sat 10:00 4h"), wait=True)),
        own_reboot_command=True,
    )
    assert changed_rules(policy_document(rules)) == (
        "--max-unavailable 25%, --drain-timeout 1m, --force, --no-delete-emptydir-data, "
        "reboot.command, --window 22:00 8h; Sat 10:00 4h, gates.wait-window"
    )
    assert changed_rules(policy_document(policy_of(Settings()))) == ""


def test_a_count_in_an_earlier_journal_is_text_and_no_change() -> None:
    assert changed_rules({"max_failures": "1", "max_unavailable": "3"}) == "--max-unavailable 3"


def test_rules_of_another_version_are_not_shown_as_flags() -> None:
    """Nor is a rule that has only the name of a flag."""
    policy = {
        "max_unavailable": 3,
        "kured_lock": True,
        "drain": {"force": True, "slow_start": "5m"},
        "gates": {"force": False},
    }
    assert changed_rules(policy) == (
        "--max-unavailable 3, --force; unknown to this version of rollout: kured_lock yes,"
        " drain.slow_start 5m, gates.force no"
    )
    assert (
        changed_rules({"kured_lock": None}) == "unknown to this version of rollout: kured_lock none"
    )
