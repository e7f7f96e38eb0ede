"""The keys that hosts showed, for the operator to compare with what their consoles say; the same as JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tabulate import tabulate

from rollout.model.text import counted, or_nothing, printable

_HEADERS = ("NODE", "HOST", "KEY", "FINGERPRINT", "STANDING", "CONFIRMED BY")


@dataclass(frozen=True, slots=True)
class HostKeyRow:
    """What one host showed. `before` are the fingerprints that the file has for it, `error` why it showed nothing."""

    node: str
    host: str
    type: str
    fingerprint: str
    standing: str
    confirmed_by: str
    before: tuple[str, ...]
    error: str


def host_keys_text(rows: Sequence[HostKeyRow]) -> str:
    """A row a host, the keys that others had before, why hosts showed none, and how many there are of each."""
    table = tabulate(
        [[or_nothing(printable(cell)) for cell in _cells(row)] for row in rows],
        headers=_HEADERS,
        tablefmt="plain",
        disable_numparse=True,
    )
    notes = [f"{printable(row.node)}: on file is {', '.join(row.before)}" for row in rows if row.standing == "changed"]
    notes += [printable(row.error) for row in rows if row.error]
    counts = ", ".join(f"{number} {word}" for word, number in Counter(row.standing for row in rows).items())
    return "\n\n".join(filter(None, (table, "\n".join(notes), f"{counted(len(rows), 'host')}: {counts}.")))


def _cells(row: HostKeyRow) -> tuple[str, ...]:
    return row.node, row.host, row.type, row.fingerprint, row.standing, row.confirmed_by
