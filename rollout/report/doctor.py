"""What `rollout doctor` found: a checklist for people, an object for programs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypedDict

from rollout.gather.doctor.checks import Check, Verdict, tally
from rollout.model.text import counted, grouped, joined, printable, shortened
from rollout.report.columns import is_command, wrap
from rollout.report.status import FollowUp

_MARKS = {Verdict.PASS: "✔", Verdict.WARN: "!", Verdict.FAIL: "✘"}
_WORST_FIRST = (Verdict.FAIL, Verdict.WARN)
_NAME_WIDTH = 18
_MOST_SUBJECTS = 5
# addresses, fingerprints, times, percentages, counts: anything with a digit in it, but for the
# names of annotations, which tell one thing from another
_VARYING = re.compile(
    r"(?<![\w.:/+%-])(?!(?:[a-z0-9-]+\.)+[a-z]+/[a-z.-]+)[\w.:/+%-]*\d[\w.:/+%-]*"
)


class DoctorReport(TypedDict):
    """What `rollout doctor -o json` prints: whether nothing failed, each check, and how many there are by verdict."""

    ok: bool
    checks: Sequence[Check]
    summary: Mapping[Verdict, int]


def doctor_text(
    checks: Sequence[Check],
    *,
    every: bool = False,
    width: int | None = None,
    way_on: FollowUp = FollowUp(),  # noqa: B008 - it is frozen
) -> str:
    """Show a line for each finding, with its fix, and how many checks passed; `every` folds nothing, and has those too.

    `width` in columns, None for no limit. `way_on` is what leads on.
    """
    lines = [
        line
        for _, group in groupby(checks, key=lambda check: check.check)
        for line in _group(list(group), every)
    ]
    listed = "\n".join(wrap(line, width, hang=_NAME_WIDTH + 3) for line in lines)
    tallies = tally(checks)
    where = "" if every else " (-v lists them)"
    others = f"{tallies[Verdict.WARN]} to look at, {tallies[Verdict.FAIL]} failed"
    figures = f"{counted(tallies[Verdict.PASS], 'check')} passed{where}, {others}."
    if len(checks) == tallies[Verdict.PASS]:
        figures = f"All {len(checks)} checks passed{where}."
    lead = f"{way_on.lead}:" if way_on.lead else "Next:"
    command = f"{lead}\n    {way_on.command}" if way_on.command else ""
    command = joined("\n", command, *(f"{way.lead}:\n    {way.command}" for way in way_on.ways[1:]))
    end = [wrap(figures, width), wrap(way_on.sentence, width), command]
    return joined("\n\n", listed, joined("\n", *end))


def _group(checks: Sequence[Check], every: bool) -> Iterator[str]:  # noqa: FBT001 - passed through as it came
    if every:
        good = (check for check in checks if check.verdict is Verdict.PASS)
        yield from (
            _line(check.verdict, check.check, f"{check.subject}: {check.message}") for check in good
        )
    for verdict in _WORST_FIRST:
        bad = [check for check in checks if check.verdict is verdict]
        # what says the same but for names, addresses and figures, together
        shapes = (
            (place if every else (_shape(check.message, check), _shape(check.fix, check)), check)
            for place, check in enumerate(bad)
        )
        for alike in grouped(shapes).values():
            yield from _finding(alike)


def _shape(text: str, check: Check) -> str:
    """Return the text without what differs from host to host."""
    return _VARYING.sub("#", text.replace(check.subject, "#"))


def _finding(alike: Sequence[Check]) -> Iterator[str]:
    first = alike[0]
    subjects = shortened(list(dict.fromkeys(check.subject for check in alike)), _MOST_SUBJECTS)
    differ = any(check.message != first.message for check in alike)
    message = f"such as {first.message}" if differ else first.message
    yield _line(first.verdict, first.check, f"{subjects}: {message}")
    if first.fix:
        yield from _fix_lines(alike)


def _fix_lines(alike: Sequence[Check]) -> Iterator[str]:
    """Yield the fix, its commands below on lines of their own: of each subject, or of the first of many."""
    fixes = [_Fix.of(text) for text in dict.fromkeys(check.fix for check in alike)]
    is_for_all = len(fixes) <= _MOST_SUBJECTS and all(
        fix.lead == fixes[0].lead and fix.commands for fix in fixes
    )
    shown = fixes if is_for_all else fixes[:1]
    whose = f" (of {printable(alike[0].subject)})" if len(shown) < len(fixes) else ""
    lead = joined(" ", f"fix{whose}:", printable(shown[0].lead))
    yield f"  {'':{_NAME_WIDTH}} {lead}"
    yield from (f"    {printable(command)}" for fix in shown for command in fix.commands)


@dataclass(frozen=True, slots=True)
class _Fix:
    """A fix: what is said before its commands, and these."""

    lead: str
    commands: Sequence[str] = ()

    @classmethod
    def of(cls, text: str) -> "_Fix":
        """Split the commands from the end of the text, which follow a colon, with semicolons between them."""
        if is_command(text) and ", or " not in text:
            return cls("", (text,))
        lead, _, end = text.rpartition(": ")
        commands = end.removesuffix(".").split("; ")
        if lead and all(map(is_command, commands)):
            return cls(f"{lead}:", commands)
        return cls(text)


def _line(verdict: Verdict, name: str, text: str) -> str:
    return f"{_MARKS[verdict]} {name:{_NAME_WIDTH}} {printable(text)}"


def doctor_document(checks: Sequence[Check]) -> DoctorReport:
    """Return the same as one object."""
    tallies = tally(checks)
    return DoctorReport(ok=not tallies[Verdict.FAIL], checks=checks, summary=tallies)
