"""The rules of a run are said in the words that an operator would write them with."""

from rollout.cli.settings.rules import policy_of
from rollout.cli.settings.schema import Settings, settings
from rollout.model.gates import GatePolicy, WindowPolicy
from rollout.model.policy import DrainPolicy, Policy
from rollout.model.quantity import Count, Duration
from rollout.planning.plan.document import policy_document
from rollout.report.rules import changed_rules, written_rules


def test_every_rule_has_the_name_of_a_flag_or_a_key() -> None:
    """Whoever reads it can write it."""
    known = {*settings(), *(f"--{setting.key.flag}" for setting in settings().values() if setting.key.flag)}
    assert {name.split()[0] for name, _value in written_rules(policy_document(Policy()))} <= known


def test_what_was_changed_reads_as_it_was_written() -> None:
    rules = Policy(
        prefer_no_schedule_taint=True,
        max_unavailable=Count(25, percent=True),
        drain=DrainPolicy(force=True, delete_emptydir_data=False, timeout=Duration(60)),
        gates=GatePolicy(windows=WindowPolicy(("22:00 8h", "Sat 10:00 4h"), wait=True)),
        own_reboot_command=True,
    )
    assert changed_rules(policy_document(rules)) == (
        "--max-unavailable 25%, --drain-timeout 1m, --force, no --delete-emptydir-data, "
        "reboot.command, --window 22:00 8h; Sat 10:00 4h, gates.wait-window"
    )
    assert changed_rules(policy_document(policy_of(Settings()))) == "all defaults"
    assert changed_rules(None) == "all defaults"
