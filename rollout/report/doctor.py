import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypedDict

from rollout.gather.doctor.checks import NO_FIX, Check, CheckName, Verdict, tally
from rollout.model.text import counted, grouped, joined, printable, shortened
from rollout.report.columns import wrap
from rollout.report.status import NO_FOLLOW_UP, FollowUp

_MARKS = {Verdict.PASS: "✔", Verdict.WARN: "!", Verdict.FAIL: "✘"}
_PROBLEMS_WORST_FIRST = (Verdict.FAIL, Verdict.WARN)
_NAME_WIDTH = 18
_MOST_SUBJECTS = 5
# Words with a digit, such as addresses, but not names of annotations.
_VARYING = re.compile(
    r"(?<![\w.:/+%-])(?!(?:[a-z0-9-]+\.)+[a-z]+/[a-z.-]+)[\w.:/+%-]*\d[\w.:/+%-]*"
)


class CheckDocument(TypedDict):
    """A check's result."""

    check: CheckName
    subject: str
    verdict: Verdict
    message: str
    # Includes `commands`; empty if all is well.
    fix: str
    commands: Sequence[str]


class DoctorReport(TypedDict):
    """What `rollout doctor -o json` prints."""

    ok: bool
    checks: Sequence[CheckDocument]
    summary: Mapping[Verdict, int]


def doctor_text(
    checks: Sequence[Check],
    *,
    show_all: bool = False,
    width: int | None = None,
    follow_up: FollowUp = NO_FOLLOW_UP,
) -> str:
    """With `show_all`, also show checks that passed, all ungrouped."""
    lines: list[str] = []
    for _name, group in groupby(checks, key=attrgetter("check")):
        same_checks = list(group)
        if show_all:
            lines += _passed_lines(same_checks)
        lines += _problem_lines(same_checks, are_grouped=not show_all)
    findings = "\n".join(wrap(line, width, hang=_NAME_WIDTH + 3) for line in lines)
    end = [wrap(_counts_text(checks, show_all=show_all), width), wrap(follow_up.sentence, width)]
    if follow_up.command:
        end.append(f"{follow_up.lead or 'Next'}:\n    {follow_up.command}")
    end += [f"{way.lead}:\n    {way.command}" for way in follow_up.other_ways]
    return joined("\n\n", findings, joined("\n", *end))


def _counts_text(checks: Sequence[Check], *, show_all: bool) -> str:
    count_by_verdict = tally(checks)
    passed = count_by_verdict[Verdict.PASS]
    how_to_list = "" if show_all else " (-v lists them)"
    if len(checks) == passed:
        return f"All {len(checks)} checks passed{how_to_list}."
    warnings = counted(count_by_verdict[Verdict.WARN], "warning")
    others = f"{warnings}, {count_by_verdict[Verdict.FAIL]} failed"
    return f"{counted(passed, 'check')} passed{how_to_list}, {others}."


def _passed_lines(checks: Sequence[Check]) -> Iterator[str]:
    for check in checks:
        if check.verdict is Verdict.PASS:
            yield _check_line(check.verdict, check.check, f"{check.subject}: {check.message}")


def _problem_lines(checks: Sequence[Check], *, are_grouped: bool) -> Iterator[str]:
    for verdict in _PROBLEMS_WORST_FIRST:
        findings = [check for check in checks if check.verdict is verdict]
        groups = _groups_of_similar(findings) if are_grouped else [[check] for check in findings]
        for similar in groups:
            yield from _finding_lines(similar)


def _groups_of_similar(findings: Sequence[Check]) -> Iterable[Sequence[Check]]:
    shapes = [(_shape(check.message, check), _shape(str(check.fix), check)) for check in findings]
    return grouped(zip(shapes, findings, strict=True)).values()


def _shape(text: str, check: Check) -> str:
    """Return `# of # pods` for `w-1 of 12 pods`."""
    return _VARYING.sub("#", text.replace(check.subject, "#"))


def _finding_lines(similar: Sequence[Check]) -> Iterator[str]:
    first = similar[0]
    subjects = shortened(list(dict.fromkeys(check.subject for check in similar)), _MOST_SUBJECTS)
    message = first.message
    if any(check.message != first.message for check in similar):
        noun = "warnings" if first.verdict is Verdict.WARN else "failures"
        message = f"{len(similar)} {noun}, for example {first.message}"
    yield _check_line(first.verdict, first.check, f"{subjects}: {message}")
    if first.fix != NO_FIX:
        yield from _fix_lines(similar)


def _fix_lines(similar: Sequence[Check]) -> Iterator[str]:
    fixes = list(dict.fromkeys(check.fix for check in similar))
    first = fixes[0]
    differ_only_in_commands = all(fix.text == first.text and fix.commands for fix in fixes)
    lists_all = differ_only_in_commands and len(fixes) <= _MOST_SUBJECTS
    is_example = len(fixes) > 1 and not lists_all
    subject = f" (for {printable(similar[0].subject)})" if is_example else ""
    text = joined(" ", f"fix{subject}:", printable(first.text))
    colon = ":" if first.text and first.commands else ""
    yield f"  {'':{_NAME_WIDTH}} {text}{colon}"
    listed_fixes = fixes if lists_all else [first]
    for fix in listed_fixes:
        yield from (f"    {printable(command)}" for command in fix.commands)


def _check_line(verdict: Verdict, name: str, text: str) -> str:
    return f"{_MARKS[verdict]} {name:{_NAME_WIDTH}} {printable(text)}"


def doctor_document(checks: Sequence[Check]) -> DoctorReport:
    documents = list[CheckDocument]()
    for check in checks:
        document = CheckDocument(
            check=check.check,
            subject=check.subject,
            verdict=check.verdict,
            message=check.message,
            fix=str(check.fix),
            commands=check.fix.commands,
        )
        documents.append(document)
    count_by_verdict = tally(checks)
    is_ok = count_by_verdict[Verdict.FAIL] == 0
    return DoctorReport(ok=is_ok, checks=documents, summary=count_by_verdict)
