"""What earlier rollouts, and people, have left that holds nodes back. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rollout.errors import ApiError
from rollout.gather.cluster.documents import Document
from rollout.gather.doctor.checks import Check, CheckName, failed, warned
from rollout.model.cluster import Node
from rollout.model.memory import Memory, Pause
from rollout.model.pause import pause_on
from rollout.model.text import counted, shell_word

_ANEW = "Reset it: rollout release --all."


def memory_checks(memory: Memory, subject: str) -> Iterator[Check]:
    """One verdict for each thing to know; `subject` is the ConfigMap with its namespace."""
    if memory.problem:
        yield warned(CheckName.MEMORY, subject, memory.problem, _ANEW)
    for version, failures in memory.versions.items():
        if failures.held_since:
            message = f"held since {failures.held_since}: it failed on {counted(len(failures.nodes), 'node')}"
            fix = f"Once its cause is known: rollout release {shell_word(version)}."
            yield warned(CheckName.MEMORY, version, message, fix)


def unwritable_checks(
    record: tuple[Document, ApiError | None], memory: tuple[Document, ApiError | None]
) -> Iterator[Check]:
    """Of the record and the memory, each with why it cannot be written, None if it can.

    No rollout begins without its record; a person's goes on without a memory.
    """
    for (document, why), name, verdict, without in (
        (record, CheckName.LOCK, failed, "no rollout can begin"),
        (memory, CheckName.MEMORY, warned, "failures are not remembered, and no pass of operate begins"),
    ):
        if why:
            message = f"cannot be written, so {without}: {why.message}"
            yield verdict(name, document.origin, message, document.way_out(why))


def pause_checks(memory: Memory, nodes: Sequence[Node], now: datetime | None) -> Iterator[Check]:
    """The pause of all nodes, and pauses that have ended by themselves; what else is paused, planning tells."""
    if memory.pause is not None:
        yield _pause_check("all nodes", memory.pause, "--all", now)
    for node in nodes:
        pause = pause_on(node)
        if pause is not None and pause.is_over(now):
            yield _pause_check(node.name, pause, node.name, now)


def _pause_check(subject: str, pause: Pause, named: str, now: datetime | None) -> Check:
    if pause.is_over(now):
        return warned(CheckName.PAUSE, subject, f"its pause is over: {pause}", f"Tidy up: rollout unpause {named}.")
    return warned(CheckName.PAUSE, subject, str(pause), f"Where it is no longer wanted: rollout unpause {named}.")
