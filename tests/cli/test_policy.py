"""Each rule of the settings reaches the policy of a rollout."""

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

import msgspec
import pytest

from rollout.cli.settings.rules import policy_of
from rollout.cli.settings.schema import Settings
from rollout.model.gates import GatePolicy
from rollout.model.policy import DrainPolicy, Policy
from rollout.model.quantity import Count, Duration

RULES = {
    "drain": (DrainPolicy, Policy),
    "gates": (GatePolicy,),
    "reboot": (Policy,),
    "waves": (GatePolicy, Policy),
}


def other(value: Any) -> Any:
    """Return a value of the same type that is not the default."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, Enum):
        return next(member for member in type(value) if member is not value)
    if isinstance(value, tuple):
        return (Count(7),)
    if isinstance(value, str):
        return "example.com/zone"
    if isinstance(value, Duration):
        return Duration(77)
    return Count(7) if isinstance(value, Count) else 7


def rules() -> Iterator[tuple[str, str]]:
    """Yield each setting that has a rule of the same name, as its table and its key."""
    settings = Settings()
    for table, policies in RULES.items():
        names = {rule.name for policy in policies for rule in msgspec.structs.fields(policy)}
        for item in dataclasses.fields(getattr(settings, table)):
            if item.name in names:
                yield table, item.name


@pytest.mark.sample(22)
@pytest.mark.parametrize(("table", "name"), list(rules()))
def test_a_changed_rule_changes_the_policy(table: str, name: str) -> None:
    settings = Settings()
    before = getattr(settings, table)
    changed = replace(before, **{name: other(getattr(before, name))})
    assert policy_of(replace(settings, **{table: changed})) != policy_of(settings)
