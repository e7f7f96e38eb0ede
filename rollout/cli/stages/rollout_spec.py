from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rollout.cli.settings.reading import CommandSettings
from rollout.cli.settings.rules import policy_of, refuse_finalizing, selection_of
from rollout.gather.hosts.probe_command import Probe
from rollout.model.policy import Policy, Selection

if TYPE_CHECKING:
    from rollout.model.plan import RolloutPlan


class Fresh(Struct, frozen=True):
    """A person starts a rollout."""


class Saved(Struct, frozen=True):
    """A person runs a saved plan, with its selection and policy."""

    plan: "RolloutPlan"
    file: Path


class Interrupted(Struct, frozen=True):
    """A person resumes a rollout, which has its own policy."""


class Unattended(Struct, frozen=True):
    """operate starts a rollout, or resumes one, which has its own policy."""

    is_resumption: bool = False


Origin = Fresh | Saved | Interrupted | Unattended


class RolloutSpec(Struct, frozen=True):
    settings: CommandSettings
    selection: Selection
    policy: Policy
    origin: Origin = Fresh()

    @property
    def namespace(self) -> str:
        return self.settings.lock.namespace

    @property
    def unattended(self) -> bool:
        return isinstance(self.origin, Unattended)

    @property
    def probe(self) -> Probe:
        policy = self.policy
        command = self.settings.detect.command
        return Probe(policy.sources, command, unwanted_version=policy.rollback)


def new_rollout_spec(settings: CommandSettings, *, rollback: str = "") -> RolloutSpec:
    """Raise `UsageError` for contradicting settings.

    `rollback` is the version to roll back from, or empty.
    """
    policy = replace(policy_of(settings), rollback=rollback)
    refuse_finalizing(settings, rollback)
    return RolloutSpec(settings, selection_of(settings), policy)
