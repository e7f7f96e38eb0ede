"""The connections of a command: the API server and the hosts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, TypeVarTuple

from rollout.cli import wiring
from rollout.cli.settings.schema import Settings
from rollout.cli.terminal import say
from rollout.execution.base.deadline import Deadline, has_answered, patiently
from rollout.ports import ClusterApi, HostExecutor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_START_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Connections:
    """The API server, and the shell of the hosts."""

    api: ClusterApi
    shell: HostExecutor


def connect(settings: Settings) -> Connections:
    return Connections(wiring.cluster_api(settings), wiring.host_shell(settings.ssh))


def with_patience(action: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Return what the action returns, tried again for a minute while the API server answers with errors.

    A server that cannot be reached at all raises at once.
    """
    reported = list[BaseException]()

    def notice(error: BaseException) -> None:
        # Each attempt may fail differently; the first failure says enough.
        if not reported:
            say(f"waiting for the API server: {error}")
        reported.append(error)

    return patiently(
        lambda: action(*arguments),
        Deadline(wiring.system_clock(), _START_PATIENCE),
        notice,
        passing=has_answered,
    )
