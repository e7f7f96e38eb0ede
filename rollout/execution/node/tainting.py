"""Sets the soft taint, which spares pods a second move."""

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
_SECONDS = 60.0
_NAMED = 5
TAINT = f"{AWAITING_REBOOT.key}:{AWAITING_REBOOT.effect}"
REMOVAL = f"kubectl taint node NAME {TAINT}-"


class Tainting(Struct, frozen=True):
    cluster: PatientApi
    check_may_act: Guard
    report: Reporter
    stop: GracefulStop

    @contextmanager
    def while_waiting(
        self, *, waiting: Collection[str], others: Collection[str]
    ) -> Iterator[set[str]]:
        """Nodes that are added to the yielded set keep the taint.

        The exit also untaints the `others`.
        """
        keep_tainted: set[str] = set()
        # No pod can be moved to another waiting node.
        if len(waiting) > 1:
            reason_by_node = self._change_nodes(waiting, self._taint_patch)
            if reason_by_node:
                self.report.notice(
                    f"the soft taint is missing on {_name_nodes(reason_by_node)}. Pods may be"
                    " scheduled there, and then have to move again"
                )
        try:
            yield keep_tainted
        finally:
            self.clear({*waiting, *others} - keep_tainted)

    def mark_deferred(self, name: str, by: str, *, taint: bool) -> None:
        at = timestamp(self.report.now)
        reason_by_node = self._change_nodes(
            (name,), lambda node: deferral_patch(node, by, at, taint=taint)
        )
        if reason_by_node:
            why = reason_by_node[name]
            self.report.notice(f"{name} could not be marked for the next run: {why}")

    def _taint_patch(self, node: Node) -> Patch | None:
        if self.stop.is_due:
            return None
        spec = soft_taint_patch(node)
        return {"spec": spec} if spec else None

    def clear(self, names: Collection[str] | None = None) -> dict[str, str]:
        """By default, clear all nodes; return why some keep the taint."""
        reason_by_node = self._change_nodes(names, undo_deferral_patch)
        if reason_by_node:
            self.report.notice(
                f"the soft taint stays on {_name_nodes(reason_by_node)}. Remove it: {REMOVAL}"
            )
        return reason_by_node

    def _change_nodes(self, names: Collection[str] | None, change: Change) -> dict[str, str]:
        """If this process may no longer act, the next one does it."""
        deadline = self.cluster.deadline_within(_SECONDS)
        try:
            self.check_may_act()
            nodes = self.cluster.ask(read_nodes, deadline)
        except FencedError:
            return {}
        except RolloutError as error:
            unread_nodes = names or ("nodes that cannot be read",)
            return dict.fromkeys(unread_nodes, error.message)
        selected = [node for node in nodes if names is None or node.name in names]
        # This spares requests.
        to_change = [node for node in selected if change(node) is not None]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="taint") as pool:
            reasons = pool.map(lambda node: self._try_write(node, change, deadline), to_change)
            return {node.name: why for node, why in zip(to_change, reasons, strict=True) if why}

    def _try_write(self, node: Node, change: Change, deadline: Deadline) -> str:
        try:
            write_node(self.cluster, self.check_may_act, node.name, change, within=deadline)
        except (FencedError, ApiNotFoundError):
            return ""
        except RolloutError as error:
            return error.message
        return ""


def _name_nodes(reason_by_node: Mapping[str, str]) -> str:
    first_reason = next(iter(reason_by_node.values()))
    return f"{listed(list(reason_by_node), _NAMED)}: {first_reason}"
