"""What is told of a plan besides its waves: what stands in its way, one node explained, a dry run's objections."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import TextWrapper
from typing import TypeVar

from tabulate import tabulate

from rollout.execution.rollout.rehearsal import Rehearsal
from rollout.model.plan import Blocker, BlockerKind, PlanWarning
from rollout.model.text import NOTHING, counted, or_nothing, printable, shortened
from rollout.planning.explanation import Explanation
from rollout.report.columns import Column, table_text, wrapped

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


_POD_HEADERS = ("POD", "ACTION", "REASON", "BUDGETS", "NOTE")


def explanation_text(explanation: Explanation) -> str:
    """Where the node is, why, why not earlier, and what happens to its pods."""
    if not explanation.wave:
        return f"{printable(explanation.node)} is not planned: {printable(explanation.because)}"
    parts = ("\n".join(_place(explanation)), _pods(explanation), "\n".join(_findings(explanation)))
    return "\n\n".join(part for part in parts if part)


def _place(explanation: Explanation) -> Iterable[str]:
    company = f", with {shortened(explanation.together_with)}" if explanation.together_with else ", alone"
    yield f"{printable(explanation.node)} is in wave {explanation.wave}{company}: {printable(explanation.because)}"
    # a plan may have hundreds of waves, and of most of them the same is to be said
    for because, alike in groupby(explanation.not_earlier, key=lambda earlier: tuple(earlier.because)):
        waves = [earlier.wave for earlier in alike]
        number = f"wave {waves[0]}" if len(waves) == 1 else f"waves {waves[0]} to {waves[-1]}"
        yield f"  not in {number}: {'; '.join(map(printable, because))}"
    if explanation.arrivals:
        yield f"By then, {counted(explanation.arrivals, 'pod')} from earlier waves will have moved to it, and move on."


def _pods(explanation: Explanation) -> str:
    rows = [
        (
            printable(fate.pod),
            fate.action,
            fate.reason,
            or_nothing(", ".join(printable(budget) for budget in fate.budgets)),
            printable("; ".join(dict.fromkeys(note for note in (fate.message, *fate.warnings) if note))),
        )
        for fate in explanation.pods
    ]
    return tabulate(rows, headers=_POD_HEADERS, tablefmt="plain", disable_numparse=True) if rows else ""


def _findings(explanation: Explanation) -> Iterable[str]:
    for blocker in explanation.blockers:
        yield f"Blocker {blocker.kind}: {printable(blocker.object)} {printable(blocker.message)}"
    for warning in explanation.warnings:
        yield f"Warning {warning.kind}: {printable(warning.object)} {printable(warning.message)}"


_REHEARSAL_COLUMNS = (
    Column("NODE", wraps=True),
    Column("EVICTIONS", right=True),
    Column("THE API SERVER OBJECTS", note=True),
)
# More nodes than these are no rows to be read one by one.
_MANY = 20


def rehearsal_text(nodes: Sequence[Rehearsal], width: int | None = None) -> str:
    """A row a node, with the objections below one another, and what it comes to. `width` in columns, None for no limit.

    Of many nodes, those without an objection are one row.
    """
    table = table_text(_REHEARSAL_COLUMNS, list(_rows(nodes)), width)
    objections = sum(len(node.objections) for node in nodes)
    objected = counted(objections, "objection") if objections else "no objection"
    sentence = f"Dry run: nothing was changed; {objected} by the API server."
    return f"{table}\n\n{wrapped(sentence, width)}"


def _rows(nodes: Sequence[Rehearsal]) -> Iterator[tuple[str, ...]]:
    fine = [node for node in nodes if not node.objections] if len(nodes) > _MANY else []
    if fine:
        names = shortened([node.node for node in fine], most=3)
        yield f"{counted(len(fine), 'node')}: {names}", str(sum(node.evictions for node in fine)), NOTHING
    yield from (_row(node) for node in nodes if not fine or node.objections)


def _row(node: Rehearsal) -> tuple[str, ...]:
    objections = "\n".join(printable(objection) for objection in node.objections)
    return (printable(node.node), str(node.evictions), objections or NOTHING)
