"""How a finding becomes a sentence: each kind registers its own words.

Nothing reads these sentences: what decides is the finding.
"""

from dataclasses import dataclass
from functools import singledispatch

from rollout.model.finding import Finding


@dataclass(frozen=True, slots=True)
class Words:
    """`cause` is a clause without its subject; `fix` is what to do, empty if nothing helps."""

    cause: str
    fix: str = ""


@singledispatch
def words(finding: Finding) -> Words:
    """Return the words for a finding; each kind has its own."""
    raise NotImplementedError(type(finding).__name__)


def cause(finding: Finding) -> str:
    return words(finding).cause


def fix(finding: Finding) -> str:
    return words(finding).fix


def text(finding: Finding) -> str:
    """Return the cause, with the fix in parentheses."""
    said = words(finding)
    return f"{said.cause} ({said.fix})" if said.fix else said.cause
