import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TypedDict

from rollout.gather.doctor.checks import Check, Verdict, tally
from rollout.model.text import counted, grouped, joined, printable, shortened
from rollout.report.columns import is_command, wrap
from rollout.report.status import FollowUp

_MARKS = {Verdict.PASS: "✔", Verdict.WARN: "!", Verdict.FAIL: "✘"}
_WORST_FIRST = (Verdict.FAIL, Verdict.WARN)
_NAME_WIDTH = 18
_MOST_SUBJECTS = 5
# Words with a digit, such as addresses and counts, but no names of annotations.
_VARYING = re.compile(
    r"(?<![\w.:/+%-])(?!(?:[a-z0-9-]+\.)+[a-z]+/[a-z.-]+)[\w.:/+%-]*\d[\w.:/+%-]*"
)


class DoctorReport(TypedDict):
    """What `rollout doctor -o json` prints. `ok`: no check failed."""

    ok: bool
    checks: Sequence[Check]
    summary: Mapping[Verdict, int]


def doctor_text(
    checks: Sequence[Check],
    *,
    every: bool = False,
    width: int | None = None,
    follow_up: FollowUp = FollowUp(),  # noqa: B008 - it is frozen
) -> str:
    """`every` also lists checks that passed, and groups nothing."""
    lines: list[str] = []
    for _name, group in groupby(checks, key=attrgetter("check")):
        lines += _check_lines(list(group), every=every)
    findings = "\n".join(wrap(line, width, hang=_NAME_WIDTH + 3) for line in lines)
    end = [wrap(_counts_text(checks, every=every), width), wrap(follow_up.sentence, width)]
    if follow_up.command:
        end.append(f"{follow_up.lead or 'Next'}:\n    {follow_up.command}")
    end += [f"{way.lead}:\n    {way.command}" for way in follow_up.ways[1:]]
    return joined("\n\n", findings, joined("\n", *end))


def _counts_text(checks: Sequence[Check], *, every: bool) -> str:
    tallies = tally(checks)
    passed = tallies[Verdict.PASS]
    how_to_list = "" if every else " (-v lists them)"
    if len(checks) == passed:
        return f"All {len(checks)} checks passed{how_to_list}."
    warnings = counted(tallies[Verdict.WARN], "warning")
    others = f"{warnings}, {tallies[Verdict.FAIL]} failed"
    return f"{counted(passed, 'check')} passed{how_to_list}, {others}."


def _check_lines(checks: Sequence[Check], *, every: bool) -> Iterator[str]:
    if every:
        for check in checks:
            if check.verdict is Verdict.PASS:
                yield _line(check.verdict, check.check, f"{check.subject}: {check.message}")
    for verdict in _WORST_FIRST:
        findings = [check for check in checks if check.verdict is verdict]
        groups = [[check] for check in findings] if every else _groups_of_alike(findings)
        for alike in groups:
            yield from _finding_lines(alike)


def _groups_of_alike(findings: Sequence[Check]) -> Iterable[Sequence[Check]]:
    """Group findings that differ only in their subjects and in words with a digit."""
    shapes = [(_shape(check.message, check), _shape(check.fix, check)) for check in findings]
    return grouped(zip(shapes, findings, strict=True)).values()


def _shape(text: str, check: Check) -> str:
    return _VARYING.sub("#", text.replace(check.subject, "#"))


def _finding_lines(alike: Sequence[Check]) -> Iterator[str]:
    first = alike[0]
    subjects = shortened(list(dict.fromkeys(check.subject for check in alike)), _MOST_SUBJECTS)
    message = first.message
    if any(check.message != first.message for check in alike):
        message = f"{len(alike)} findings, for example {first.message}"
    yield _line(first.verdict, first.check, f"{subjects}: {message}")
    if first.fix:
        yield from _fix_lines(alike)


def _fix_lines(alike: Sequence[Check]) -> Iterator[str]:
    texts = dict.fromkeys(check.fix for check in alike)
    fixes = [_Fix.of(text) for text in texts]
    first = fixes[0]
    have_same_lead = all(fix.lead == first.lead and fix.commands for fix in fixes)
    lists_all = have_same_lead and len(fixes) <= _MOST_SUBJECTS
    is_example = len(fixes) > 1 and not lists_all
    subject = f" (of {printable(alike[0].subject)})" if is_example else ""
    lead = joined(" ", f"fix{subject}:", printable(first.lead))
    yield f"  {'':{_NAME_WIDTH}} {lead}"
    for fix in fixes if lists_all else [first]:
        yield from (f"    {printable(command)}" for command in fix.commands)


@dataclass(frozen=True, slots=True)
class _Fix:
    lead: str
    commands: Sequence[str] = ()

    @classmethod
    def of(cls, text: str) -> "_Fix":
        is_one_command = is_command(text) and ", or " not in text
        if is_one_command:
            return cls("", (text,))
        lead, _, end = text.rpartition(": ")
        commands = end.removesuffix(".").split("; ")
        if lead and all(map(is_command, commands)):
            return cls(f"{lead}:", commands)
        return cls(text)


def _line(verdict: Verdict, name: str, text: str) -> str:
    return f"{_MARKS[verdict]} {name:{_NAME_WIDTH}} {printable(text)}"


def doctor_document(checks: Sequence[Check]) -> DoctorReport:
    tallies = tally(checks)
    return DoctorReport(ok=not tallies[Verdict.FAIL], checks=checks, summary=tallies)
