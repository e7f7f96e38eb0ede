"""What `rollout doctor` found: a checklist for people, an object for programs."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from rollout.gather.checks import Check, Verdict, tally
from rollout.report.text import counted, printable, shortened

_MARKS = {Verdict.PASS: "✔", Verdict.WARN: "!", Verdict.FAIL: "✘"}
_WORST_FIRST = (Verdict.FAIL, Verdict.WARN)
_NAME_WIDTH = 18
_MOST_SUBJECTS = 5


def doctor_text(checks: Sequence[Check], *, every: bool = False) -> str:
    """A line for each kind of check that passed, one for each finding with its fix; `every` lists all of them."""
    lines = [line for _, group in groupby(checks, key=lambda check: check.check) for line in _group(list(group), every)]
    return "\n".join((*lines, "", _sum(checks)))


def _group(checks: Sequence[Check], every: bool) -> Iterator[str]:  # noqa: FBT001 - passed through as it came
    good = [check for check in checks if check.verdict is Verdict.PASS]
    if every:
        yield from (_line(check.verdict, check.check, f"{check.subject}: {check.message}") for check in good)
    elif good:
        yield _line(Verdict.PASS, good[0].check, _condensed(good))
    for verdict in _WORST_FIRST:
        yield from _findings([check for check in checks if check.verdict is verdict])


def _condensed(good: Sequence[Check]) -> str:
    if len(good) == 1:
        return f"{good[0].subject}: {good[0].message}"
    return f"{len(good)} pass: {shortened([check.subject for check in good], _MOST_SUBJECTS)}"


def _findings(checks: Iterable[Check]) -> Iterator[str]:
    """Findings that say the same are one, with all that they are said of."""
    alike: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        alike.setdefault((check.message, check.fix), []).append(check)
    for (message, fix), found in alike.items():
        subjects = shortened([check.subject for check in found], _MOST_SUBJECTS)
        yield _line(found[0].verdict, found[0].check, f"{subjects}: {message}")
        if fix:
            yield f"  {'':{_NAME_WIDTH}} fix: {printable(fix)}"


def _line(verdict: Verdict, name: str, text: str) -> str:
    return f"{_MARKS[verdict]} {name:{_NAME_WIDTH}} {printable(text)}"


def _sum(checks: Sequence[Check]) -> str:
    found = tally(checks)
    told = f"{counted(found[Verdict.PASS], 'check')} passed, {found[Verdict.WARN]} to look at, "
    return told + f"{found[Verdict.FAIL]} failed."


def doctor_document(checks: Sequence[Check]) -> bytes:
    """`{"ok", "checks": [{"check", "subject", "verdict", "message", "fix"}], "summary": {"pass", "warn", "fail"}}`."""
    found = tally(checks)
    document = {"ok": not found[Verdict.FAIL], "checks": checks, "summary": found}
    return msgspec.json.format(msgspec.json.encode(document), indent=2)
