"""A plan as text: the screen of `plan`, its short form in `apply`, a dry run, and the explanation of a node."""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby

from rollout.execution.rollout.ledger import Rehearsal
from rollout.model.host import UpdateState
from rollout.model.plan import (
    Blocker,
    BlockerKind,
    Exclusion,
    ExclusionReason,
    PlannedNode,
    PlanWarning,
    RolloutPlan,
    TimeEstimate,
    Wave,
)
from rollout.model.progress import RunResult, excluded_by_trouble
from rollout.model.quantity import LONGEST, Duration
from rollout.model.text import (
    counted,
    grouped,
    joined,
    natural_key,
    or_nothing,
    printable,
    shortened,
    version_step,
)
from rollout.model.timestamps import elapsed
from rollout.planning.plan.explanation import Explanation
from rollout.planning.plan.rules import relaxed_rules
from rollout.report.columns import Column, Row, table_text, wrap
from rollout.report.rules import rule_lines
from rollout.report.sentences import absence_counts, extent

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
# Notes of waves that share a row. If there are more, only -o wide shows them.
_MOST_NOTES = 3
# Of most nodes nothing else is to be said on most days.
_ORDINARY = ExclusionReason.NO_UPDATE
# Nodes that are up to date need no line, and the others are shown as findings.
_TOLD_ELSEWHERE = (UpdateState.UP_TO_DATE, UpdateState.ROLLED_BACK, UpdateState.CHECK_FAILED)
# Where a finding's own fix is; without a wave it is the next command.
_SEE = " → rollout doctor"
# The rows of the table show it.
_IN_THE_TABLE = "--max-unavailable"
# Findings that are shown of a plan that is too long for its terminal.
_BRIEF_FINDINGS = 3


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

    `zones` are by Node name; `where` is the cluster as its operators call it. Without a `width`
    there is every row and every column. `blocked` says that apply will not start, `beside` that
    another rollout is not over; `next_step` is a command, which is never broken.
    """
    rules = rule_lines(plan.policy, now) if now else ()
    if beside:
        plan = _without_what_it_began(plan)
    notes = (
        *warning_lines(plan, is_wide=width is None),
        *_left_out(plan, is_wide=width is None),
        *rules,
    )
    blockers = [f"✘ {line}" for line in finding_lines(plan.blockers)]
    parts = [
        (
            [_heading(plan, where), "", table_text(_COLUMNS, _wave_rows(plan, zones, width), width)]
            if plan.waves
            else []
        ),
        notes,
        [estimate_text(plan) if plan.waves else no_nodes_text(plan)],
        [line for line in (*blockers, blocked, beside) if line],
        ["Next:", f"    {next_step}"] if next_step else [],
    ]
    return wrap("\n\n".join("\n".join(part) for part in parts if any(part)), width)


def _without_what_it_began(plan: RolloutPlan) -> RolloutPlan:
    """Return the plan without its findings about the nodes of a rollout that is not over, of which a sentence tells."""
    excluded = tuple(
        left for left in plan.excluded if left.reason is not ExclusionReason.LEFT_CORDONED
    )
    blockers = tuple(
        blocker for blocker in plan.blockers if blocker.kind is not BlockerKind.NODES_UNAVAILABLE
    )
    return replace(plan, excluded=excluded, blockers=blockers)


def brief_text(
    plan: RolloutPlan,
    *,
    zones: Mapping[str, str],
    width: int | None,
    height: int | None = None,
    where: str = "",
    next_step: str = "",
    whole: str = "",
    control_plane: Container[str] = (),
) -> str:
    """Show a plan above a question: all of it if it has at most `height` lines, or if there is no `width`.

    Otherwise waves share rows, but those of the `control_plane` have their own, and `whole` is the
    command that shows everything. What prevents the start is left to the refusal.
    """
    if width is None or not plan.waves:
        return plan_text(plan, zones=zones, width=width, where=where, next_step=next_step)
    heading = wrap(_heading(plan, where), width)
    findings = [*warning_lines(plan), *_left_out(plan, is_wide=False)]
    estimate = estimate_text(plan)

    def text(rows: Sequence[Row], notes: Sequence[str], *last: str) -> str:
        lines = (wrap(line, width) for line in (_weaknesses(plan), *notes, estimate, *last) if line)
        return "\n".join((heading, table_text(_COLUMNS, rows, width), *lines))

    complete = text(_wave_rows(plan, zones, width), findings)
    if height is None or complete.count("\n") < height:
        return complete
    more = len(findings) - _BRIEF_FINDINGS
    notes = [
        *findings[:_BRIEF_FINDINGS],
        *([f"! {counted(more, 'more finding')}"] if more > 0 else []),
    ]
    last = ("This is not all of the plan. To see all of it:", f"    {whole}") if whole else ()
    room = height - text((), notes, *last).count("\n") - 1
    return text(
        _wave_rows(plan, zones, width, most=room, control_plane=control_plane), notes, *last
    )


def consequence(plan: RolloutPlan) -> str:
    """Say how many nodes are rebooted, how many at once, and how long that takes."""
    most = max(
        min(wave.rolling.in_flight if wave.rolling else LONGEST, len(wave.nodes))
        for wave in plan.waves
    )
    at_once = f"at most {most} at once" if most > 1 else "one at a time"
    seconds = plan.estimate.seconds
    takes = f", in about {_in_words(seconds)}" if seconds else ""
    return f"This drains and reboots {counted(plan.summary.nodes, 'node')}, {at_once}{takes}."


def _weaknesses(plan: RolloutPlan) -> str:
    rules = (rule for rule in relaxed_rules(plan.policy) if rule.setting != _IN_THE_TABLE)
    flags = "; ".join(rule.flag for rule in rules)
    return f"! as you asked, not the default: {printable(flags)}" if flags else ""


def file_text(plan: RolloutPlan, file: str, width: int | None) -> str:
    """Tell which saved plan it is, and what it gives up, before it runs."""
    name = f"{printable(file)}, made {printable(plan.created_at)}: {extent(plan)}"
    lines = (
        f"{name} on {printable(plan.cluster.server)}",
        *(f"! {printable(str(rule))}" for rule in relaxed_rules(plan.policy)),
    )
    return "\n".join(wrap(line, width) for line in lines)


def _heading(plan: RolloutPlan, where: str) -> str:
    """How many nodes, of which cluster, and their versions where these are the same for all."""
    versions = set(map(planned_version, plan.nodes))
    step = f"   {versions.pop()}" if len(versions) == 1 else ""
    return (
        f"{counted(plan.summary.nodes, 'node')} on {printable(where or plan.cluster.server)}{step}"
    )


def warning_lines(plan: RolloutPlan, *, is_wide: bool = False) -> Iterator[str]:
    """Yield what stops nothing, and who cannot be taken for what nobody has decided on: a line a finding."""
    troubled = [left for left in plan.excluded if left.reason.is_trouble]
    causes = (
        ((left.reason, left.message if is_wide else _cause(plan, left)), left.node)
        for left in troubled
    )
    for (reason, message), names in grouped(causes).items():
        yield f"! {shortened(names)}  {reason}: {printable(message)}"
    yield from _failed_updates(plan)
    yield from (f"! {line}" for line in finding_lines(plan.warnings))


def _failed_updates(plan: RolloutPlan) -> Iterator[str]:
    """Yield a line for the hosts whose last update, or last check for an update, failed."""
    for sentence, names in grouped(_update_sentences(plan)).items():
        yield f"! {shortened(names)}  {printable(sentence)}"


def _update_sentences(plan: RolloutPlan) -> Iterator[tuple[str, str]]:
    for left in plan.excluded:
        if left.update and left.update.state is UpdateState.ROLLED_BACK:
            yield (
                f"rolled back from {left.update.rolled_back_from}, and nothing is staged now",
                left.node,
            )
        elif left.update and left.update.state is UpdateState.CHECK_FAILED:
            yield f"check failed: {left.message}", left.node


def _cause(plan: RolloutPlan, left: Exclusion) -> str:
    """Why a node is left out; of a host that is not reached, doctor tells the rest."""
    if left.reason is not ExclusionReason.UNREACHABLE:
        return left.message
    return f"{left.brief or left.message}{_SEE if plan.waves else ''}"


def _left_out(plan: RolloutPlan, *, is_wide: bool) -> Iterator[str]:
    """Who has nothing to do, or is held back; with why, where there is room for everything."""
    left = [left for left in plan.excluded if not left.reason.is_trouble]
    if is_wide:
        alike = grouped(((item.reason, item.message), item.node) for item in left).items()
        yield from (
            f"· {shortened(names)}  {reason}: {printable(message)}"
            for (reason, message), names in alike
        )
    elif groups := grouped((word, item.node) for item in left if (word := _why_left_out(item))):
        yield (
            "Left out:"
            f" {'; '.join(f'{shortened(names)} ({word})' for word, names in groups.items())}"
        )


def _why_left_out(left: Exclusion) -> str:
    """Return why a node is left out, in a word; empty if it is up to date or has a line of its own."""
    if left.reason is not _ORDINARY:
        return left.reason
    if left.update is None or left.update.state in _TOLD_ELSEWHERE:
        return ""
    if left.update.state is UpdateState.BEHIND:
        return f"behind: the cluster has {left.update.newest_version}"
    return left.update.state


def _wave_rows(
    plan: RolloutPlan,
    zones: Mapping[str, str],
    width: int | None,
    *,
    most: int = _MANY,
    control_plane: Container[str] | None = None,
) -> Sequence[Row]:
    """Return a row a wave; equal waves of one node that follow are one row.

    With more rows than `most`, so are waves of the same size, and then, if `control_plane` names
    its nodes, all that follow one another with or without them. Without a `width` each wave is told
    whole.
    """

    def is_of_control_plane(wave: Wave) -> bool:
        return (
            any(node.name in control_plane for node in wave.nodes)
            if control_plane is not None
            else False
        )

    coarser: list[Callable[[Wave], object]] = [_equality_key, _similarity_key]
    coarser += [is_of_control_plane] if control_plane is not None else []
    groups = [[wave] for wave in plan.waves]
    for alike in coarser if width is not None else ():
        groups = [[*group] for _, group in groupby(plan.waves, key=alike)]
        if len(groups) <= most:
            break
    everywhere = {zones.get(node.name, "") for node in plan.nodes}
    is_wide = width is None
    is_mixed = width is None or len(set(map(planned_version, plan.nodes))) > 1

    def row(group: Sequence[Wave]) -> Row:
        nodes = [node for wave in group for node in _in_order(wave)]
        here = dict.fromkeys(printable(zones.get(node.name, "")) for node in nodes)
        is_everywhere = len(here) > 2 and everywhere == here.keys() and not is_wide  # noqa: PLR2004 - one or two are named
        seconds = sum(wave.estimate.seconds for wave in group)
        first = group[0].index
        last = group[-1].index
        notes = [
            wave.because if is_wide else wave.note
            for wave in (group[:1] if len(group) > _MANY else group)
        ]
        told = dict.fromkeys(printable(note) for note in notes if note)
        return (
            str(first) if first == last else f"{first}\N{EN DASH}{last}",
            _every_name(group[0]) if is_wide else _names(group, nodes),
            "all" if is_everywhere else " ".join(here).strip(),
            str(sum(map(_pods, group))),
            rough_duration(seconds) if seconds else "",
            "\n".join(_versions(nodes)) if is_mixed else "",
            "; ".join(told) if len(told) <= _MOST_NOTES else "",
        )

    return list(map(row, groups))


def _equality_key(wave: Wave) -> tuple[object, ...]:
    own = 0 if len(wave.nodes) == 1 and not wave.rolling else wave.index
    return own, wave.note, _versions(wave.nodes), _pods(wave), rough_duration(wave.estimate.seconds)


def _similarity_key(wave: Wave) -> tuple[object, ...]:
    return (
        wave.index if wave.rolling else 0,
        len(wave.nodes),
        wave.limit,
        _versions(wave.nodes),
    )


def _every_name(wave: Wave) -> str:
    """So that a plan can be searched for a node, and when those begin that follow one another."""
    begins = wave.rolling.begins if wave.rolling else {}
    later = {name: f" (+{elapsed(seconds)})" for name, seconds in begins.items() if seconds}
    return ", ".join(f"{printable(node.name)}{later.get(node.name, '')}" for node in wave.nodes)


def _in_order(wave: Wave) -> Sequence[PlannedNode]:
    """By name, unless they begin one after another."""
    return (
        wave.nodes if wave.rolling else sorted(wave.nodes, key=lambda node: natural_key(node.name))
    )


def _names(group: Sequence[Wave], nodes: Sequence[PlannedNode]) -> str:
    """One after another where waves share a row; how many, where they are too many to be read."""
    names = [printable(node.name) for node in nodes]
    if len(group) == 1:
        return shortened(names, _MANY, " ")
    sizes = {len(wave.nodes) for wave in group}
    size = max(sizes)
    if size > 1 or len(names) > _MOST_NAMED:
        a_wave = f"{size} a wave" if len(sizes) == 1 else f"up to {size} a wave"
        return f"{len(nodes)} nodes, {'one after another' if size == 1 else a_wave}"
    return ", then ".join(names)


def _pods(wave: Wave) -> int:
    return sum(node.evict for node in wave.nodes)


def _versions(nodes: Iterable[PlannedNode]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(planned_version, nodes)))


_MINUTE = 60
_HOUR = 3600


def estimate_text(plan: RolloutPlan) -> str:
    """Tell how long it takes, why that may be wrong, and how many pods move: in one line."""
    parts = []
    if plan.estimate.seconds:
        minutes = plan.estimate.assumed_reboot // _MINUTE
        doubt = f" (no history yet: assuming {minutes} min per reboot)" if minutes else ""
        parts.append(f"About {_in_words(plan.estimate.seconds)}{doubt}.")
    if pods := plan.summary.pods_to_move:
        parts.append(f"{counted(pods, 'pod')} move{'s' if pods == 1 else ''}.")
    return " ".join(parts)


def usual_reboot(estimate: TimeEstimate) -> str:
    """Return how long a reboot took in past runs, as `, usually 27s`; empty where none is recorded."""
    seconds = estimate.usual_reboot
    return f", usually {Duration(seconds)}" if seconds else ""


def rough_duration(seconds: float) -> str:
    """Write a stretch of time that nobody knows better: `45s`, `26m`, `1h02m`."""
    return f"{round(seconds / _MINUTE)}m" if _MINUTE <= seconds < _HOUR else elapsed(seconds)


def _in_words(seconds: float) -> str:
    return (
        f"{rough_duration(seconds)}in".replace("min", " min")
        if _MINUTE <= seconds < _HOUR
        else rough_duration(seconds)
    )


def no_nodes_text(plan: RolloutPlan) -> str:
    """Tell that no node is planned; that there is nothing to do only where every node was judged."""
    missing = excluded_by_trouble(plan.excluded)
    left_out = RunResult((), excluded=plan.excluded).left_out
    if not missing and set(left_out) == {ExclusionReason.NO_UPDATE}:
        return _nothing_staged(plan.excluded)
    head = "No node is planned" if missing else "Nothing to do: no node is planned"
    return f"{joined('; ', head, absence_counts(missing, left_out))}."


def _nothing_staged(excluded: Sequence[Exclusion]) -> str:
    """Say that no update is staged, and that all nodes are up to date only if each one is."""
    number = len(excluded)
    if all(left.update and left.update.is_current for left in excluded):
        return (
            f"Nothing to do: {counted(number, 'node')} {'is' if number == 1 else 'are'} up to date."
        )
    states = Counter(left.update.state for left in excluded if left.update)
    figures = ", ".join(
        f"{states[state]} {state.replace('-', ' ')}" for state in UpdateState if states[state]
    )
    of_states = f": {figures}" if figures else ""
    return f"Nothing to do: no update is staged on {counted(number, 'node')}{of_states}."


def planned_version(node: PlannedNode) -> str:
    """Tell from which version to which a node goes; or that it is only rebooted."""
    if not node.staged:
        return f"{or_nothing(node.running_version)} (reboot only)"
    return version_step(node.running_version, node.staged_version, node.detected_by)


_OF_THE_START = (BlockerKind.RIVAL, BlockerKind.NODES_UNAVAILABLE)
_KINDS = {"pdb": "budget"}
# What a ReplicaSet, or another controller, puts behind the name that its operator knows.
_REPLICA = re.compile(r"(-[a-z0-9]{6,10})?-[a-z0-9]{5}$|-\d+$")


def blocked_line(blockers: Sequence[Blocker]) -> str:
    """Tell that apply refuses a plan with these, and how it would do without their nodes; empty for none."""
    if not blockers:
        return ""
    nodes = {blocker.node for blocker in blockers if blocker.kind not in _OF_THE_START}
    way_out = f" --skip blocked leaves {counted(len(nodes), 'node')} out." if nodes else ""
    return f"Blocked: apply will not start.{way_out}"


def finding_lines(findings: Sequence[Blocker] | Sequence[PlanWarning]) -> Iterator[str]:
    """Yield a line a cause, whatever the number of pods and nodes: where, what, what is wrong, and what mends it.

    Of a warning about several pods the nodes are not named: they drain as all others.
    """
    for alike in grouped((finding.message, finding) for finding in findings).values():
        nodes = sorted({finding.node for finding in alike if finding.node}, key=natural_key)
        objects = list(
            dict.fromkeys(item.object for item in alike if item.object != f"node/{item.node}")
        )
        cause = _cause_and_fix(alike[0])
        where = (
            "" if len(objects) > 1 and isinstance(alike[0], PlanWarning) else shortened(nodes, 3)
        )
        yield joined("  ", where, _subject(objects), cause)


def _cause_and_fix(finding: Blocker | PlanWarning) -> str:
    if isinstance(finding, Blocker) and finding.fix:
        return f"{printable(finding.cause)} → {printable(finding.fix)}"
    return printable(finding.message)


def _subject(objects: Sequence[str]) -> str:
    """Tell what it is said of; of several pods whose they are."""
    if len(objects) > 1 and all(name.startswith("pod/") for name in objects):
        owners = dict.fromkeys(_REPLICA.sub("", name.removeprefix("pod/")) for name in objects)
        return f"{len(objects)} pods: {shortened(list(owners), 3)}"
    return shortened([_named(name) for name in objects], 3)


def _named(name: str) -> str:
    kind, _, rest = name.partition("/")
    return f"{_KINDS.get(kind, kind)} {rest}".strip()


_POD_COLUMNS = tuple(map(Column, ("POD", "ACTION", "REASON", "BUDGETS", "NOTE")))


def explanation_text(explanation: Explanation, estimate: TimeEstimate) -> str:
    """Tell where the node is, why, why not earlier, what happens to its pods, and what times are reckoned from."""
    if not explanation.wave:
        return f"{printable(explanation.node)} is not planned: {printable(explanation.because)}"
    rows = [
        (
            printable(fate.pod),
            fate.action,
            fate.reason,
            or_nothing(", ".join(fate.budgets)),
            printable("; ".join(dict.fromkeys(filter(None, (fate.message, *fate.warnings))))),
        )
        for fate in explanation.pods
    ]
    findings = (
        *(f"✘ {line}" for line in finding_lines(explanation.blockers)),
        *(f"! {line}" for line in finding_lines(explanation.warnings)),
    )
    basis = printable("; ".join(estimate.basis))
    return joined(
        "\n\n",
        "\n".join(_place(explanation)),
        table_text(_POD_COLUMNS, rows) if rows else "",
        "\n".join(findings),
        f"The plan takes about {elapsed(estimate.seconds)}: {basis}." if estimate.seconds else "",
    )


def _place(explanation: Explanation) -> Iterable[str]:
    company = (
        f", with {shortened(explanation.together_with)}" if explanation.together_with else ", alone"
    )
    yield (
        f"{printable(explanation.node)} is in wave {explanation.wave}{company}:"
        f" {printable(explanation.because)}"
    )
    # a plan may have hundreds of waves, and of most of them the same is to be said
    for because, alike in groupby(
        explanation.not_earlier, key=lambda earlier: tuple(earlier.because)
    ):
        waves = [earlier.wave for earlier in alike]
        number = f"wave {waves[0]}" if len(waves) == 1 else f"waves {waves[0]} to {waves[-1]}"
        yield f"  not in {number}: {'; '.join(map(printable, because))}"
    if explanation.arrivals:
        pods = counted(explanation.arrivals, "pod")
        yield f"By then, {pods} evicted in earlier waves will land here and be evicted again."


NOT_REHEARSED = (
    "Dry run: nothing was changed, and the API server was not asked (--dry-run=server asks it)."
)


def rehearsal_text(nodes: Sequence[Rehearsal], width: int | None) -> str:
    """Show a line for each objection of the API server, and what it comes to; `width` None: no limit."""
    found = [
        f"✘ {printable(node.node)}  {printable(objection)}"
        for node in nodes
        for objection in node.objections
    ]
    allowed = counted(sum(node.evictions for node in nodes), "eviction")
    objected = counted(len(found), "objection") if found else "no objection"
    sentence = f"Dry run: nothing was changed; {allowed} allowed, {objected} by the API server."
    return "\n".join(wrap(line, width) for line in (*found, sentence))
