"""Options of the commands that act: the lock, how to stop, where to keep the journal, what to do with the blocked."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rollout.cli.options import values
from rollout.cli.options.general import CLUSTER, GENERAL, NODES
from rollout.cli.options.policy import SkipBlockedOption
from rollout.model.quantity import Duration

STOPPING = "Stopping"

IgnoreOption = Annotated[
    bool,
    typer.Option(
        "--ignore-blockers",
        envvar="ROLLOUT_IGNORE_BLOCKERS",
        show_envvar=False,
        help="Start all the same: nodes whose drain is bound to fail are tried, and given back when it does.",
    ),
]


RequireAllOption = Annotated[
    bool,
    typer.Option(
        "--require-all",
        envvar="ROLLOUT_REQUIRE_ALL",
        show_envvar=False,
        help="Begin nothing (exit code 4) where a node that was asked for cannot be reached, judged or rebooted.",
        rich_help_panel=NODES,
    ),
]


class StopMode(StrEnum):
    """What a first signal does to the nodes in flight."""

    FINISH = "finish"
    REVERT = "revert"


@dataclass(frozen=True, slots=True)
class LockOptions:
    """How the lock is held."""

    lease_duration: Annotated[
        Duration,
        typer.Option(
            "--lease-duration",
            envvar="ROLLOUT_LEASE_DURATION",
            show_envvar=False,
            metavar="DURATION",
            parser=values.some_time,
            help="How long the Lease goes unrenewed before another process may take it; whole seconds.",
            rich_help_panel=CLUSTER,
        ),
    ] = Duration(30)
    force_unlock: Annotated[
        str,
        typer.Option(
            "--force-unlock",
            envvar="ROLLOUT_FORCE_UNLOCK",
            show_envvar=False,
            metavar="RUN",
            help="Do not wait for the Lease of this run: you have made sure that nobody is running it.",
            show_default=False,
            rich_help_panel=CLUSTER,
        ),
    ] = ""

    @property
    def seconds(self) -> int:
        """The Lease's duration as it stands in the Lease."""
        return max(1, round(self.lease_duration))


@dataclass(frozen=True, slots=True)
class StopOptions:
    """What a first Ctrl-C or SIGTERM does."""

    stop: Annotated[
        StopMode,
        typer.Option(
            "--stop",
            envvar="ROLLOUT_STOP",
            show_envvar=False,
            help="At the first Ctrl-C: finish the nodes in flight, or revert those that are not rebooting yet.",
            rich_help_panel=STOPPING,
        ),
    ] = StopMode.FINISH


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Where the run is written down."""

    journal: Annotated[
        Path | None,
        typer.Option(
            "--journal",
            envvar="ROLLOUT_JOURNAL",
            show_envvar=False,
            metavar="FILE",
            help="Where to write the run down. Default: a file a run in $XDG_STATE_HOME/rollout/runs.",
            rich_help_panel=GENERAL,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class LeftoverOptions:
    """What an interrupted rollout's failed and blocked nodes are to be when it goes on."""

    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed",
            envvar="ROLLOUT_RETRY_FAILED",
            show_envvar=False,
            help="Take the nodes that failed again, too.",
        ),
    ] = False
    finish_begun: Annotated[
        bool,
        typer.Option(
            "--finish-begun",
            envvar="ROLLOUT_FINISH_BEGUN",
            show_envvar=False,
            help="Where its record is gone or not understood: finish begun nodes by their marks, start no other.",
        ),
    ] = False
    require_all: RequireAllOption = False
    skip_blocked: SkipBlockedOption = False
    ignore_blockers: IgnoreOption = False
