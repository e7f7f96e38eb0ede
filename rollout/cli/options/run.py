"""Options of the commands that act: consent, how to stop, where to keep the journal, what to do with leftovers."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from rollout.cli.options.cluster import LeaseOptions, LockOptions, NameOptions
from rollout.cli.options.declaration import OWN, STOPPING, Flag
from rollout.cli.options.detect import DetectCommandOptions
from rollout.cli.options.general import JournalOptions
from rollout.cli.options.metrics import MetricsOptions
from rollout.cli.options.nodes import IgnoreOption, IncludeHeldOption, RequireAllOption, SkipBlockedOption
from rollout.cli.options.notify import NotifyOptions
from rollout.cli.options.reboot import RebootOptions
from rollout.cli.options.ssh import PlaybookOptions, SshOptions

YesOption = Annotated[bool, Flag(OWN, "Do not ask.", short="-y")]


class StopMode(StrEnum):
    """What a first signal does to the nodes in flight."""

    FINISH = "finish"
    REVERT = "revert"


@dataclass(frozen=True, slots=True)
class StopOptions:
    """What a first Ctrl-C or SIGTERM does."""

    stop: Annotated[
        StopMode,
        Flag(STOPPING, "At the first Ctrl-C: finish the nodes in flight, or revert those that are not rebooting yet."),
    ] = StopMode.FINISH


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """How this process works on a rollout: none of it stands in a plan."""

    ssh: SshOptions
    playbooks: PlaybookOptions
    reboot: RebootOptions
    lease: LeaseOptions
    lock: LockOptions
    stop: StopOptions
    journal: JournalOptions
    notify: NotifyOptions
    naming: NameOptions = field(default_factory=NameOptions)
    metrics: MetricsOptions = field(default_factory=MetricsOptions)
    detect: DetectCommandOptions = field(default_factory=DetectCommandOptions)


@dataclass(frozen=True, slots=True)
class LeftoverOptions:
    """What an interrupted rollout's failed and blocked nodes are to be when it goes on."""

    retry_failed: Annotated[bool, Flag(OWN, "Try the failed nodes again, too.")] = False
    finish_begun: Annotated[
        bool,
        Flag(OWN, "If its record is gone or not understood: finish started nodes by their marks, start no others."),
    ] = False
    require_all: RequireAllOption = False
    skip_blocked: SkipBlockedOption = False
    include_held: IncludeHeldOption = False
    ignore_blockers: IgnoreOption = False
