from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from rollout.model.host import KeyState
from rollout.model.text import counted, joined, or_dash, printable
from rollout.report.columns import Column, table_text
from rollout.report.sentences import reason_counts

_COLUMNS = (
    Column("NODE"),
    Column("HOST", drop_order=2),
    Column("KEY", drop_order=1),
    Column("FINGERPRINT"),
    Column("STANDING"),
    Column("CONFIRMED BY", drop_order=3),
)


class HostKeyRow(Struct, frozen=True):
    """A host and its key."""

    node: str
    host: str
    type: str
    fingerprint: str
    standing: str
    confirmed_by: str
    # Fingerprints in the file.
    before: Sequence[str]
    error: str


class HostKeysReport(Struct, frozen=True):
    """The host keys that the hosts sent."""

    format_version: str
    hosts: Sequence[HostKeyRow]


def host_keys_text(rows: Sequence[HostKeyRow], width: int | None) -> str:
    table_rows = list[list[str]]()
    for row in rows:
        cells = (row.node, row.host, row.type, row.fingerprint, row.standing, row.confirmed_by)
        table_rows.append([or_dash(cell) for cell in cells])
    table = table_text(_COLUMNS, table_rows, width)
    notes = [
        f"{printable(row.node)}: known_hosts has {', '.join(row.before)}"
        for row in rows
        if row.standing == KeyState.CHANGED
    ]
    notes += [printable(row.error) for row in rows if row.error]
    counts = reason_counts(Counter(row.standing for row in rows))
    return joined("\n\n", table, "\n".join(notes), f"{counted(len(rows), 'host')}: {counts}.")
