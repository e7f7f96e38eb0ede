"""The rules of a run are said in the words that an operator would write them with."""

from dataclasses import replace

from rollout.cli.settings.rules import policy_of
from rollout.cli.settings.schema import Settings, settings
from rollout.model.gates import GatePolicy, WindowPolicy
from rollout.model.policy import DrainPolicy, Policy, Pool
from rollout.model.quantity import Count, Duration
from rollout.planning.document import policy_document
from rollout.report.rules import POOL, changed_rules, written_rules


def test_every_rule_has_the_name_of_a_flag_or_a_key() -> None:
    """Whoever reads it can write it."""
    known = {*settings(), *(f"--{setting.key.flag}" for setting in settings().values() if setting.key.flag)}
    assert {name.split()[0] for name, _value in written_rules(policy_document(Policy()))} <= known


def test_no_value_is_a_word_of_python() -> None:
    rules = replace(Policy(), pools=(Pool("web", "tier=web", reboot_idle=True, ramp=(Count(1), Count(5))),))
    values = dict(written_rules(policy_document(rules)))
    assert not any(word in value for value in values.values() for word in ("None", "True", "False", "{", "["))
    assert values["--delete-emptydir-data"] == "yes"
    assert values["--grace-period"] == ""
    assert values[POOL] == "web, tier=web; ramp 1; 5; reboot-idle yes"


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


def test_rules_of_another_version_are_said_as_they_are() -> None:
    assert changed_rules({"gates": {"moon_phase": "full"}, "pools": "none", "canary": None}) == (
        "--moon-phase full, --pools none, --canary none"
    )
