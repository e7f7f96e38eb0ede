"""The soft taint set on nodes that wait, and taken away again, many nodes side by side.

It spares pods a second move, and nothing depends on it: a node on which it cannot be set goes its
way without it, and one on which it stays is told of. Every write names the version of the Node that
it was decided on, for taints are written as a whole, and those of others must stay.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from rollout.errors import ApiNotFoundError, FencedError, RolloutError
from rollout.execution.base.deadline import Deadline, Guard, PatientApi, StopRequest
from rollout.execution.base.reporting import Reporter
from rollout.execution.node.marking import write_node
from rollout.gather.cluster.snapshot import read_nodes
from rollout.model.cluster import Node
from rollout.model.soft_taint import (
    AWAITING_REBOOT,
    Patch,
    deferral_patch,
    undo_deferral_patch,
    with_soft_taint,
)
from rollout.model.text import listed
from rollout.model.timestamps import timestamp

# A thousand nodes take a second or two, and the API server's flow control has seats to spare.
_AT_ONCE = 8
# Patience with an API server that is away: what waits for it anyway has more.
_SECONDS = 60.0
_NAMED = 5
TAINT = f"{AWAITING_REBOOT.key}:{AWAITING_REBOOT.effect}"
REMOVAL = f"kubectl taint node NAME {TAINT}-"

_Change = Callable[[Node], Patch | None]


@dataclass(frozen=True, slots=True)
class Tainting:
    """Sets and removes it; `stop` ends the setting early, for nothing is begun any more then."""

    cluster: PatientApi
    check: Guard
    report: Reporter
    stop: StopRequest

    @contextmanager
    def while_waiting(
        self, waiting: Collection[str], others: Collection[str]
    ) -> Iterator[set[str]]:
        """While nodes wait: on those that do from the first, at the end on none of these, nor of the `others`.

        It stays on those that are put into the set that is given.
        """
        kept: set[str] = set()
        if len(waiting) > 1 and (failed := self._write(waiting, self._tainted)):
            self.report.notice(
                f"no soft taint on {_first(failed)}. Pods may move there and once more"
            )
        try:
            yield kept
        finally:
            self.clear({*waiting, *others} - kept)

    def defer(self, name: str, by: str, *, taint: bool) -> None:
        """Leave this node for a run from elsewhere; that it cannot be marked so is told, and changes nothing else."""
        at = timestamp(self.report.now)
        if failed := self._write((name,), lambda node: deferral_patch(node, by, at, taint=taint)):
            self.report.notice(f"{name} could not be marked for the next run: {failed[name]}")

    def _tainted(self, node: Node) -> Patch | None:
        spec = {} if self.stop.requested else with_soft_taint(node)
        return {"spec": spec} if spec else None

    def clear(self, names: Collection[str] | None = None) -> dict[str, str]:
        """Take it, and the marks of nodes left for a run from elsewhere, away from these nodes, or from all (None).

        Returned are those on which it stays, each with why.
        """
        failed = self._write(names, undo_deferral_patch)
        if failed:
            self.report.notice(f"the soft taint stays on {_first(failed)}. Remove it: {REMOVAL}")
        return failed

    def _write(self, names: Collection[str] | None, change: _Change) -> dict[str, str]:
        deadline = self.cluster.deadline_within(_SECONDS)
        try:
            self.check()
            nodes = self.cluster.ask(read_nodes, deadline)
        except FencedError:
            return {}
        except RolloutError as error:
            return dict.fromkeys(names or ("nodes that cannot be read",), error.message)
        meant = [
            node
            for node in nodes
            if (names is None or node.name in names) and change(node) is not None
        ]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="taint") as pool:
            reasons = pool.map(lambda node: self._failure(node, change, deadline), meant)
            return {node.name: why for node, why in zip(meant, reasons, strict=True) if why}

    def _failure(self, node: Node, change: _Change, deadline: Deadline) -> str:
        """Why the change could not be written; empty where it was, or where this process may not act any more."""
        try:
            write_node(self.cluster, self.check, node.name, change, within=deadline)
        except (FencedError, ApiNotFoundError):
            return ""
        except RolloutError as error:
            return error.message
        return ""


def _first(failed: Mapping[str, str]) -> str:
    return f"{listed(list(failed), _NAMED)}: {next(iter(failed.values()))}"
