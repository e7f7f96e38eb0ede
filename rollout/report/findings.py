"""What stands in a plan's way and what it warns of, said once however many pods and nodes it is said of."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from textwrap import TextWrapper
from typing import TypeVar

from rollout.model.plan import Blocker, BlockerKind, PlanWarning
from rollout.model.text import counted, printable, shortened
from rollout.report.columns import wrapped

Finding = TypeVar("Finding", Blocker, PlanWarning)

_OF_THE_START = (BlockerKind.RIVAL, BlockerKind.NODES_UNAVAILABLE)


def findings(blockers: Sequence[Blocker], warnings: Sequence[PlanWarning], width: int | None) -> Iterable[str]:
    """Paragraphs under their headings; none where there is nothing to say."""
    for heading, sentences in lists_of_findings(blockers, warnings):
        yield _paragraphs(heading, sentences, width)


def lists_of_findings(
    blockers: Sequence[Blocker], warnings: Sequence[PlanWarning]
) -> Iterator[tuple[str, Iterable[str]]]:
    """Headings with their sentences."""
    start = [finding for finding in blockers if finding.kind in _OF_THE_START]
    of_nodes = [finding for finding in blockers if finding.kind not in _OF_THE_START]
    if start:
        yield "Nothing can start (apply refuses):", blocker_sentences(start)
    if of_nodes:
        nodes = counted(len({finding.node for finding in of_nodes}), "node")
        heading = f"Blockers on {nodes} (apply refuses to start; --skip blocked leaves these nodes out):"
        yield heading, blocker_sentences(of_nodes)
    if warnings:
        yield "Warnings:", map(_of_many, _alike(warnings))


def blocker_sentences(blockers: Sequence[Blocker]) -> Iterable[str]:
    """A sentence a cause, whatever the number of pods and nodes."""
    for kind in dict.fromkeys(blocker.kind for blocker in blockers):
        for said_of in _alike([blocker for blocker in blockers if blocker.kind is kind]):
            is_of_one = len({blocker.object for blocker in said_of}) == 1
            yield f"{kind}: {_about(said_of) if is_of_one else _of_many(said_of)}"


def _alike(findings: Iterable[Finding]) -> Iterable[list[Finding]]:
    """Findings by their sentence."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.message, []).append(finding)
    return groups.values()


def _of_many(said_of: Sequence[Finding]) -> str:
    """The sentence, and what it is said of: each object once, with its nodes."""
    nodes: dict[str, list[str]] = {}
    for finding in said_of:
        nodes.setdefault(finding.object, []).extend([finding.node] if finding.node else [])
    subjects = [
        f"{subject} on {shortened(places)}" if places and places != [subject.removeprefix("node/")] else subject
        for subject, places in nodes.items()
    ]
    return f"{printable(said_of[0].message)}: {shortened(subjects)}"


def _about(said_of: Sequence[Blocker]) -> str:
    """Return the sentence of one object, which stands first, behind the nodes that it keeps from going."""
    first = said_of[0]
    nodes = [blocker.node for blocker in said_of if blocker.node and blocker.object != f"node/{blocker.node}"]
    where = f"{shortened(nodes)}, " if nodes else ""
    return f"{where}{printable(first.object)} {printable(first.message)}"


def _paragraphs(heading: str, sentences: Iterable[str], width: int | None) -> str:
    wrap = TextWrapper(width or sys.maxsize, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join((wrapped(heading, width), *(wrap.fill(sentence) for sentence in sentences)))
