"""Which nodes, and what becomes of those that cannot be rebooted."""

from dataclasses import dataclass
from typing import Annotated

from rollout.cli.options import values
from rollout.cli.options.declaration import NODES, OWN, Flag
from rollout.model.policy import Selection

SkipBlockedOption = Annotated[bool, Flag(NODES, "Leave out nodes with blockers, instead of refusing to start.")]
IgnoreOption = Annotated[
    bool, Flag(OWN, "Start anyway: nodes with blockers are tried, and given back when their drain fails.")
]
IncludeHeldOption = Annotated[
    bool,
    Flag(NODES, "Also take nodes whose staged version is held, because it failed on others (rollout release)."),
]
RequireAllOption = Annotated[
    bool,
    Flag(NODES, "Start nothing (exit code 4) if a requested node cannot be reached, judged or rebooted."),
]
DetectOption = Annotated[
    list[str] | None,
    Flag(
        NODES,
        "What says that a node needs a reboot: update-engine (the default), annotation (reboot-needed on the Node), "
        "reboot-required (the file in /run), rpm-ostree (a staged deployment), command (--detect-command). "
        "Repeatable, or with commas; any of them will do.",
        "SOURCE",
        read=values.sources,
    ),
]


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Which nodes."""

    selector: Annotated[
        str,
        Flag(
            NODES, "Nodes with these labels, as kubectl takes them.", "SELECTOR", short="-l", read=values.label_selector
        ),
    ] = ""
    node: Annotated[list[str] | None, Flag(NODES, "Only this node. Repeatable.", "NAME", read=values.names)] = None
    exclude: Annotated[
        list[str] | None,
        Flag(NODES, "Leave this node out; shell patterns are understood. Repeatable.", "NAME", read=values.names),
    ] = None

    @property
    def selection(self) -> Selection:
        """The same, as the plan records it."""
        return Selection(self.selector.strip(), node_names(self.node), node_names(self.exclude))


def names(written: list[str] | None) -> tuple[str, ...]:
    """Repeated and comma-separated names, each once, in order."""
    every = (name.strip() for value in written or () for name in value.split(","))
    return tuple(dict.fromkeys(name for name in every if name))


def node_names(written: list[str] | None) -> tuple[str, ...]:
    """The same of nodes, which may stand as kubectl and `-o name` write them: `node/worker-1`."""
    return tuple(dict.fromkeys(map(node_name, names(written))))


def node_name(written: str) -> str:
    """A node's name, without the kind before it."""
    return written.removeprefix("node/").removeprefix("nodes/")
