"""The screen of `plan`: what differs from the ordinary, at a glance; and the few lines that `apply` shows of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby

from rollout.model.plan import (
    BlockerKind,
    Exclusion,
    ExclusionReason,
    PlannedNode,
    RolloutPlan,
    Wave,
)
from rollout.model.text import counted, elapsed, natural_key, printable, shortened
from rollout.planning.plan.rules import relaxed_rules
from rollout.report.columns import Column, Row, table_text, wrapped
from rollout.report.plan_parts import (
    estimate_text,
    finding_lines,
    nobody,
    planned_version,
    roughly,
)
from rollout.report.rules import rule_lines
from rollout.report.sentences import extent, grouped, in_brief

_COLUMNS = (
    Column("WAVE", right=True),
    Column("NODES", wraps=True),
    Column("ZONES", leaves=1),
    Column("PODS", leaves=2, right=True),
    Column("TIME", leaves=3, right=True),
    Column("VERSION"),
    Column("NOTE", note=True),
)
# More rows than these are no rows to be read one by one; nor are more names.
_MANY = 20
_MOST_NAMED = 8
# Of most nodes nothing else is to be said on most days.
_ORDINARY = ExclusionReason.NO_UPDATE
# Where a finding's own fix is; without a wave it is the next command.
_SEE = " → rollout doctor"
# What the rows of the table say.
_SEEN = "--max-unavailable"
# What the lines of apply come to at most, and those of them that tell what is wrong.
_BRIEF, _BRIEF_FINDINGS = 10, 3


def plan_text(
    plan: RolloutPlan,
    *,
    zones: Mapping[str, str],
    width: int | None = None,
    now: datetime | None = None,
    where: str = "",
    blocked: str = "",
    beside: str = "",
    next_step: str = "",
) -> str:
    """Show where, the waves, what is wrong, the rules as they stand `now`, how long it takes, and what to do next.

    `zones` are by Node name; `where` is the cluster as its operators call it. Without a `width` there is every row and
    every column. `blocked` says that apply will not start, `beside` that another rollout is not over;
    `next_step` is a command, which is never broken.
    """
    rules = rule_lines(plan.policy, now) if now else ()
    if beside:
        plan = _without_what_it_began(plan)
    notes = (*warning_lines(plan, is_wide=width is None), *_left_out(plan, is_wide=width is None), *rules)
    blockers = [f"✘ {line}" for line in finding_lines(plan.blockers)]
    parts = [
        [_heading(plan, where), "", table_text(_COLUMNS, _wave_rows(plan, zones, width), width)] if plan.waves else [],
        notes,
        [estimate_text(plan) if plan.waves else nobody(plan)],
        [line for line in (*blockers, blocked, beside) if line],
        ["Next:", f"    {next_step}"] if next_step else [],
    ]
    return wrapped("\n\n".join("\n".join(part) for part in parts if any(part)), width)


def _without_what_it_began(plan: RolloutPlan) -> RolloutPlan:
    """Return the plan without its findings about the nodes of a rollout that is not over, of which a sentence tells."""
    excluded = tuple(left for left in plan.excluded if left.reason is not ExclusionReason.LEFT_CORDONED)
    blockers = tuple(blocker for blocker in plan.blockers if blocker.kind is not BlockerKind.NODES_UNAVAILABLE)
    return replace(plan, excluded=excluded, blockers=blockers)


def brief_text(
    plan: RolloutPlan, *, zones: Mapping[str, str], width: int | None, where: str = "", next_step: str = ""
) -> str:
    """Show the same in ten lines, as far as names allow it, before a question; all of it without a `width`.

    What stands in the way is left to the refusal.
    """
    if width is None or not plan.waves:
        return plan_text(plan, zones=zones, width=width, where=where, next_step=next_step)
    findings = list(warning_lines(plan))
    more = len(findings) - _BRIEF_FINDINGS
    further = f"! {counted(more, 'more finding')}: rollout plan" if more > 0 else ""
    parts = (_weaknesses(plan), *findings[:_BRIEF_FINDINGS], further, estimate_text(plan))
    tail = [wrapped(line, width) for line in parts if line]
    rows = _wave_rows(plan, zones, width)
    room = max(1, _BRIEF - 2 - sum(text.count("\n") + 1 for text in tail))
    shown = len(rows) if len(rows) <= room else max(1, room - 1)
    left = [f"(… {counted(len(rows) - shown, 'more row')}: rollout plan)"] if shown < len(rows) else []
    table = table_text(_COLUMNS, rows[:shown], width)
    return "\n".join((wrapped(_heading(plan, where), width), table, *left, *tail))


def _weaknesses(plan: RolloutPlan) -> str:
    sentences = (sentence for sentence in relaxed_rules(plan.policy) if not sentence.startswith(_SEEN))
    flags = "; ".join(sentence.partition(":")[0] for sentence in sentences)
    return f"! as you asked, not the default: {printable(flags)}" if flags else ""


def file_text(plan: RolloutPlan, file: str, width: int | None) -> str:
    """Tell which saved plan it is, and what it gives up, before it runs."""
    name = f"{printable(file)}, made {printable(plan.created_at)}: {extent(plan)}"
    lines = (f"{name}, of {printable(plan.cluster.server)}", *(f"! {printable(s)}" for s in relaxed_rules(plan.policy)))
    return "\n".join(wrapped(line, width) for line in lines)


def _heading(plan: RolloutPlan, where: str) -> str:
    """How many nodes, of which cluster, and their versions where these are the same for all."""
    versions = set(map(planned_version, plan.nodes))
    step = f"   {versions.pop()}" if len(versions) == 1 else ""
    return f"{counted(plan.summary.nodes, 'node')} on {printable(where or plan.cluster.server)}{step}"


def warning_lines(plan: RolloutPlan, *, is_wide: bool = False) -> Iterator[str]:
    """Yield what stops nothing, and who cannot be taken for what nobody has decided on: a line a finding."""
    troubled = [left for left in plan.excluded if left.reason.is_trouble]
    causes = (((left.reason, left.message if is_wide else _cause(plan, left)), left.node) for left in troubled)
    for (reason, message), names in grouped(causes).items():
        yield f"! {shortened(names)}  {reason}: {printable(message)}"
    yield from (f"! {line}" for line in finding_lines(plan.warnings))


def _cause(plan: RolloutPlan, left: Exclusion) -> str:
    """Why a node is left out; of a host that is not reached, doctor tells the rest."""
    if left.reason is not ExclusionReason.UNREACHABLE:
        return left.message
    return f"{in_brief(left.message)}{_SEE if plan.waves else ''}"


def _left_out(plan: RolloutPlan, *, is_wide: bool) -> Iterator[str]:
    """Who has nothing to do, or is held back; with why, where there is room for everything."""
    left = [left for left in plan.excluded if not left.reason.is_trouble]
    if is_wide:
        alike = grouped(((item.reason, item.message), item.node) for item in left).items()
        yield from (f"· {shortened(names)}  {reason}: {printable(message)}" for (reason, message), names in alike)
    elif groups := grouped((item.reason, item.node) for item in left if item.reason is not _ORDINARY):
        yield f"Left out: {'; '.join(f'{shortened(names)} ({reason})' for reason, names in groups.items())}"


def _wave_rows(plan: RolloutPlan, zones: Mapping[str, str], width: int | None) -> Sequence[Row]:
    """Return a row a wave; equal waves of one node that follow are one row.

    So are, where there are too many rows, waves of the same size. Without a `width` each wave is told whole.
    """
    groups = [[wave] for wave in plan.waves]
    for alike in (_equal, _similar) if width is not None else ():
        groups = [[*group] for _, group in groupby(plan.waves, key=alike)]
        if len(groups) <= _MANY:
            break
    everywhere = {zones.get(node.name, "") for node in plan.nodes}
    is_wide, is_mixed = width is None, width is None or len(set(map(planned_version, plan.nodes))) > 1

    def row(group: Sequence[Wave]) -> Row:
        nodes = [node for wave in group for node in _in_order(wave)]
        here = dict.fromkeys(printable(zones.get(node.name, "")) for node in nodes)
        is_everywhere = len(here) > 2 and everywhere == here.keys() and not is_wide  # noqa: PLR2004 - one or two are named
        seconds = sum(wave.estimate.seconds for wave in group)
        first, last = group[0].index, group[-1].index
        notes = [wave.because if is_wide else wave.note for wave in (group[:1] if len(group) > _MANY else group)]
        return (
            str(first) if first == last else f"{first}\N{EN DASH}{last}",
            _every_name(group[0]) if is_wide else _names(group, nodes),
            "all" if is_everywhere else " ".join(here).strip(),
            str(sum(map(_pods, group))),
            roughly(seconds) if seconds else "",
            "\n".join(_versions(nodes)) if is_mixed else "",
            "; ".join(dict.fromkeys(printable(note) for note in notes if note)),
        )

    return list(map(row, groups))


def _equal(wave: Wave) -> tuple[object, ...]:
    own = 0 if len(wave.nodes) == 1 and not wave.rolling else wave.index
    return own, wave.note, _versions(wave.nodes), _pods(wave), roughly(wave.estimate.seconds)


def _similar(wave: Wave) -> tuple[object, ...]:
    return wave.index if wave.rolling else 0, len(wave.nodes), wave.note.partition(";")[0], _versions(wave.nodes)


def _every_name(wave: Wave) -> str:
    """So that a plan can be searched for a node, and when those begin that follow one another."""
    begins = wave.rolling.begins if wave.rolling else {}
    later = {name: f" (+{elapsed(seconds)})" for name, seconds in begins.items() if seconds}
    return ", ".join(f"{printable(node.name)}{later.get(node.name, '')}" for node in wave.nodes)


def _in_order(wave: Wave) -> Sequence[PlannedNode]:
    """By name, unless they begin one after another."""
    return wave.nodes if wave.rolling else sorted(wave.nodes, key=lambda node: natural_key(node.name))


def _names(group: Sequence[Wave], nodes: Sequence[PlannedNode]) -> str:
    """One after another where waves share a row; how many, where they are too many to be read."""
    names = [printable(node.name) for node in nodes]
    if len(group) == 1:
        return shortened(names, _MANY, " ")
    size = len(group[0].nodes)
    if size > 1 or len(names) > _MOST_NAMED:
        return f"{len(nodes)} nodes, {'one after another' if size == 1 else f'{size} a wave'}"
    return ", then ".join(names)


def _pods(wave: Wave) -> int:
    return sum(node.evict for node in wave.nodes)


def _versions(nodes: Iterable[PlannedNode]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(planned_version, nodes)))
