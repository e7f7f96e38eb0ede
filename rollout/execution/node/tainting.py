"""Sets and removes the soft taint on waiting nodes, which spares pods a second move."""

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from msgspec import Struct

from rollout.errors import ApiNotFoundError, FencedError, RolloutError
from rollout.execution.base.deadline import Deadline, GracefulStop, Guard, PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.node.marking import Change, write_node
from rollout.gather.cluster.snapshot import read_nodes
from rollout.model.cluster import Node
from rollout.model.soft_taint import (
    AWAITING_REBOOT,
    Patch,
    deferral_patch,
    soft_taint_patch,
    undo_deferral_patch,
)
from rollout.model.text import listed
from rollout.model.timestamps import timestamp

_AT_ONCE = 8
# How long to wait for the API server.
_SECONDS = 60.0
_NAMED = 5
TAINT = f"{AWAITING_REBOOT.key}:{AWAITING_REBOOT.effect}"
REMOVAL = f"kubectl taint node NAME {TAINT}-"


class Tainting(Struct, frozen=True):
    """Writes the soft taint and the mark of nodes that are left to a later run."""

    cluster: PatientApi
    check_may_act: Guard
    report: Reporter
    stop: GracefulStop

    @contextmanager
    def while_waiting(
        self, *, waiting: Collection[str], others: Collection[str]
    ) -> Iterator[set[str]]:
        """Taint the waiting nodes until the exit, which also untaints the `others`.

        Nodes added to the yielded set keep the taint.
        """
        kept: set[str] = set()
        # Pods of a single node cannot move to another waiting node.
        if len(waiting) > 1:
            failed = self._change_nodes(waiting, self._taint_patch)
            if failed:
                self.report.notice(
                    f"the soft taint is missing on {_name_failed(failed)}. Pods may be scheduled"
                    " there, and then have to move again"
                )
        try:
            yield kept
        finally:
            self.clear({*waiting, *others} - kept)

    def mark_deferred(self, name: str, by: str, *, taint: bool) -> None:
        """Mark the node for a later run by another process; failures are only reported."""
        at = timestamp(self.report.now)
        failed = self._change_nodes((name,), lambda node: deferral_patch(node, by, at, taint=taint))
        if failed:
            self.report.notice(f"{name} could not be marked for the next run: {failed[name]}")

    def _taint_patch(self, node: Node) -> Patch | None:
        if self.stop.is_due:
            return None
        spec = soft_taint_patch(node)
        return {"spec": spec} if spec else None

    def clear(self, names: Collection[str] | None = None) -> dict[str, str]:
        """Remove taint and deferral, from all nodes by default; return why nodes keep them."""
        failed = self._change_nodes(names, undo_deferral_patch)
        if failed:
            self.report.notice(
                f"the soft taint stays on {_name_failed(failed)}. Remove it: {REMOVAL}"
            )
        return failed

    def _change_nodes(self, names: Collection[str] | None, change: Change) -> dict[str, str]:
        """Change these nodes, or all; return why it failed, by node."""
        deadline = self.cluster.deadline_within(_SECONDS)
        try:
            self.check_may_act()
            nodes = self.cluster.ask(read_nodes, deadline)
        except FencedError:
            return {}
        except RolloutError as error:
            all_nodes = ("nodes that cannot be read",)
            return dict.fromkeys(names or all_nodes, error.message)
        selected = [node for node in nodes if names is None or node.name in names]
        changing = [node for node in selected if change(node) is not None]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="taint") as pool:
            failures = pool.map(lambda node: self._try_write(node, change, deadline), changing)
            return {node.name: why for node, why in zip(changing, failures, strict=True) if why}

    def _try_write(self, node: Node, change: Change, deadline: Deadline) -> str:
        """Return why the change failed; empty if it did not, or this process may not act."""
        try:
            write_node(self.cluster, self.check_may_act, node.name, change, within=deadline)
        except (FencedError, ApiNotFoundError):
            return ""
        except RolloutError as error:
            return error.message
        return ""


def _name_failed(failed: Mapping[str, str]) -> str:
    first_reason = next(iter(failed.values()))
    return f"{listed(list(failed), _NAMED)}: {first_reason}"
