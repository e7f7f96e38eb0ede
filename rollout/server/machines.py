"""Which node asks: each by the id that Zincati makes of its machine id, from one list that a watch keeps fresh."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack

from rollout.errors import ApiError
from rollout.execution.base.deadline import is_passing
from rollout.execution.base.live_view import LiveView, Source
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.stop import StopRequest
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.listing import read_list
from rollout.gather.cluster.snapshot import NODES
from rollout.gather.cluster.watch_events import WatchEvent, decode_watch_line
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.fleetlock import is_fleetlock_run, zincati_id
from rollout.model.node_marks import last_result
from rollout.model.progress import Phase
from rollout.server.answers import Denied, Kind

_FOREVER = 10.0 * 365 * 24 * 3600
_AGAIN = 2.0


def by_id(nodes: Iterable[Node]) -> Mapping[str, tuple[str, ...]]:
    """Names of nodes by the id that their host asks by; those without a machine id have none."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if asked_as := zincati_id(node.machine_id):
            names[asked_as].append(node.name)
    return {asked_as: tuple(sorted(members)) for asked_as, members in names.items()}


def the_one(names: Iterable[str]) -> str:
    """The node that asks; `Denied` where none does, or it could be any of several."""
    match tuple(names):
        case (name,):
            return name
        case ():
            raise Denied(Kind.UNKNOWN_ID, "no Node has the machine id that this id is made of")
        case several:
            raise Denied(Kind.DOUBLED_ID, f"several Nodes have this machine id: {', '.join(several)}")


_UNGRANTED = ("", Phase.CORDONED, Phase.DRAINING, Phase.DRAINED)


def unasked(before: Mapping[str, Node], now: Mapping[str, Node]) -> tuple[str, ...]:
    """The nodes that were rebooted between two looks, by no rollout and without a grant."""
    return tuple(
        name
        for name, node in now.items()
        if (earlier := before.get(name)) is not None
        and earlier.uid == node.uid
        and node.boot_id
        and earlier.boot_id not in ("", node.boot_id)
        and not _was_meant(earlier, node)
    )


def _was_meant(earlier: Node, node: Node) -> bool:
    """Whether a rollout was at work on it, which leaves its marks, or the result that it ended with."""
    run = node.annotations.get(marks.RUN) or earlier.annotations.get(marks.RUN, "")
    if is_fleetlock_run(run):
        return node.annotations.get(marks.PHASE, "") not in _UNGRANTED or last_result(node).get("run") == run
    return bool(run) or last_result(node) != last_result(earlier)


class Machines:
    """The nodes as a watch tells of them. `follow` keeps it going; before the first list nobody is known.

    `rebooted` hears of nodes that were rebooted without having asked.
    """

    def __init__(self, cluster: PatientApi, rebooted: Callable[[Sequence[Node]], None]) -> None:
        self._cluster = cluster
        self._rebooted = rebooted
        self._view: LiveView[Node] | None = None
        self._lock = threading.Lock()
        self._news = -1
        self._nodes: Mapping[str, Node] = {}
        self._names: Mapping[str, tuple[str, ...]] = {}

    def follow(self, stop: StopRequest) -> None:
        """List and watch until `stop`; an API server that is away, or refuses, is asked again."""
        with ExitStack() as stack:
            while self._view is None and not stop.requested:
                view = LiveView(self._cluster, self._source(), self._cluster.deadline(_FOREVER))
                try:
                    self._view = stack.enter_context(view)
                except ApiError as error:
                    if not is_passing(error):
                        self._cluster.notice(error)
                    stop.wait(_AGAIN)
            before = self.nodes if self._view is not None else {}
            while not stop.wait(_AGAIN):
                now = self.nodes
                if moved := unasked(before, now):
                    self._rebooted([now[name] for name in moved])
                before = now

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name; `Denied` before they are known."""
        view = self._view
        if view is None:
            raise Denied(Kind.API_UNAVAILABLE, "the nodes have not been read yet")
        with self._lock:
            if view.news != self._news:
                self._news, items = view.news, view.items()
                self._nodes = {node.name: node for node in items}
                self._names = by_id(items)
            return self._nodes

    def name_of(self, asked_as: str) -> str:
        """The node whose host asks by this id; `Denied` where there is none, or more than one."""
        nodes = self.nodes
        return the_one(name for name in self._names.get(asked_as, ()) if name in nodes)

    def _source(self) -> Source[Node]:
        return Source(lambda: read_list(self._cluster.api, NODES, wire.WireNode, decode.node), NODES, {}, _line)


def _line(line: bytes) -> WatchEvent[Node]:
    return decode_watch_line(line, Node)
