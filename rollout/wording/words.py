"""Turns findings into sentences, which no code reads."""

from functools import singledispatch

from msgspec import Struct

from rollout.model.finding import Finding
from rollout.model.quantity import Count
from rollout.model.text import printable


class Words(Struct, frozen=True):
    # A clause without its subject.
    cause: str
    # What to do, or empty.
    fix: str = ""
    # Without particulars such as host keys; None if the same.
    brief: str | None = None
    # What a table adds, if anything; None for `brief`.
    note: str | None = None


@singledispatch
def words(finding: Finding) -> Words:
    """Each finding's type registers a function."""
    raise NotImplementedError(type(finding).__name__)


def cause_of(finding: Finding) -> str:
    return words(finding).cause


def brief_of(finding: Finding) -> str:
    phrase = words(finding)
    return phrase.cause if phrase.brief is None else phrase.brief


def note_of(finding: Finding) -> str:
    phrase = words(finding)
    return brief_of(finding) if phrase.note is None else phrase.note


def fix_of(finding: Finding) -> str:
    return words(finding).fix


def text(finding: Finding) -> str:
    phrase = words(finding)
    return f"{phrase.cause} ({phrase.fix})" if phrase.fix else phrase.cause


_KIND_TITLES = {"pdb": "PDB"}


def object_name(key: str) -> str:
    """Return `PDB shop/cart` for `pdb/shop/cart`."""
    kind, _, name = key.partition("/")
    return f"{_KIND_TITLES.get(kind, kind)} {name}".strip()


def unavailable_limit(limit: Count | int, pool: str) -> str:
    """`pool` is empty for the rollout's limit."""
    if pool:
        return f"max-unavailable {limit} of the pool {pool}"
    return f"--max-unavailable {limit}"


def rollout_name(run_id: str) -> str:
    return f"rollout {printable(run_id)}" if run_id else "a rollout with an unknown ID"


def defect(error: Exception) -> str:
    return f"internal error (report it where you got rollout): {error!r}"
