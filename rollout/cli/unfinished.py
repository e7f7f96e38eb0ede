"""A rollout that stands on the cluster unfinished: found, shown, and refused to begin another beside."""

import time
from collections.abc import Sequence

from rollout.cli.gathering import Connections, with_patience
from rollout.cli.terminal import say, show, show_bytes
from rollout.errors import ApiError, BlockedError
from rollout.execution.lock import read_lease
from rollout.execution.record.record import read_record
from rollout.execution.record.unfinished import Unfinished, assess, look
from rollout.gather.doctor.checks import Check, CheckName, failed, passed, warned
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.json_text import json_document
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi
from rollout.report.unfinished import heading, run_document, run_text, ways_out

# A renewal takes a moment to arrive, on a busy machine more than one.
_ON_ITS_WAY = 2.0
_LOOK_AGAIN = 0.5
_LONG = 15.0
_TRY = "Try: kubectl get lease node-rollout"


def find_unfinished(connections: Connections, namespace: str) -> Unfinished | None:
    """What an interrupted rollout has left, or None."""
    return with_patience(lambda: look(connections.api, namespace))


def refuse_unfinished(connections: Connections, nodes: Sequence[Node], namespace: str) -> None:
    """`BlockedError` while another rollout is under way, or was interrupted."""
    found = assess(with_patience(lambda: read_record(connections.api, namespace)), nodes)
    if found is not None and found.blocks:
        raise BlockedError(
            heading(found),
            hint=f"If nobody is running it: {ways_out(found)}.",
        )


def mention_run(connections: Connections, nodes: Sequence[Node], namespace: str) -> None:
    """Say that there is one, beside the nodes; a user who may not see it is told nothing."""
    try:
        found = assess(read_record(connections.api, namespace), nodes)
    except ApiError:
        return
    if found is not None:
        say(f"{heading(found)}. See: rollout status --run")


def show_run(connections: Connections, namespace: str, *, as_json: bool) -> None:
    """The run with its nodes, and whether its process lives; `null` where there is none."""
    found = find_unfinished(connections, namespace)
    renewed = found is not None and is_alive(connections.api, namespace)
    if as_json:
        show_bytes(json_document(run_document(found, renewed=renewed)))
    else:
        show(run_text(found, renewed=renewed))


def lock_check(connections: Connections, namespace: str) -> Check:
    """Whether a rollout could take the lock now, and whose it is where it could not."""
    subject = f"{namespace}/{marks.LEASE_NAME}"
    try:
        found = find_unfinished(connections, namespace)
        holder = with_patience(lambda: read_lease(connections.api, namespace)).holder
        alive = bool(holder) and is_alive(connections.api, namespace)
    except ApiError as error:
        return warned(CheckName.LOCK, subject, f"the lock cannot be seen: {error.message}", error.hint or _TRY)
    if alive:
        fix = "Wait until it has ended: rollout status --run shows it."
        return warned(CheckName.LOCK, subject, f"held by {holder}: a rollout is under way", fix)
    if found is not None:
        fix = f"{ways_out(found)}."
        tell = failed if found.blocks else warned
        return tell(CheckName.LOCK, subject, heading(found), fix)
    if holder:
        message = f"held by {holder}, which does not renew it: it is taken once it has expired"
        return warned(CheckName.LOCK, subject, message, "Make sure that no rollout of this holder runs any more.")
    return passed(CheckName.LOCK, subject, "the lock is free, and no rollout is unfinished")


def is_alive(api: ClusterApi, namespace: str) -> bool:
    """Whether a holder renews the Lease while we look on, for as long as it may take to: no clock but ours is asked."""
    first = with_patience(lambda: read_lease(api, namespace))
    seconds = first.renewal + _ON_ITS_WAY
    if first.holder and seconds > _LONG:
        say(f"looking for up to {Duration(round(seconds))} whether {first.holder} renews the lock")
    current, end = first, time.monotonic() + seconds
    while current.holder and time.monotonic() < end:
        time.sleep(_LOOK_AGAIN)
        current = with_patience(lambda: read_lease(api, namespace))
        if current.holder and current.version != first.version:
            return True
    return False
