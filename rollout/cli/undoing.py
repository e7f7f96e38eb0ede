"""The acting stage of abort."""

import sys

from rollout.cli import wiring
from rollout.cli.gathering import Connections, ask_named, read_nodes
from rollout.cli.options import LeaseOptions, SshOptions
from rollout.cli.run_options import LockOptions
from rollout.cli.running import run_options
from rollout.cli.terminal import show, show_bytes
from rollout.execution.rollout.abort import Aborted, abort
from rollout.execution.rollout.ports import Ports
from rollout.model.json_text import json_line
from rollout.report.observers import Unfailing
from rollout.report.plain import PlainLines
from rollout.report.unfinished import aborted_text


def undo(connections: Connections, ssh: SshOptions, lease: LeaseOptions, lock: LockOptions, *, wait: float) -> Aborted:
    """Undo it, telling each node's end on standard error."""
    targets = ask_named(read_nodes(connections), (), connections, ssh)
    observer = Unfailing(PlainLines(sys.stderr))
    ports = Ports(connections.api, connections.shell, wiring.system_clock(), observer)
    return abort(targets.hosts, ports, run_options(len(targets.selected), ssh, lease, lock), wait=wait)


def show_undone(aborted: Aborted, *, as_json: bool) -> None:
    """Tell what came of it."""
    if not as_json:
        show(aborted_text(aborted))
        return
    left = [{"node": name, "message": why} for name, why in aborted.left.items()]
    show_bytes(json_line({"run": aborted.run, "reverted": aborted.reverted, "left": left}))
