"""What says that a host needs a reboot: the sources that can be asked, what each says, and what comes of it together.

A reboot is needed where any source says so. That it is not needed is known only where each has
answered, but for those that the host does not have; at least one it has to have.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from rollout.model.json_text import read_json


class Source(StrEnum):
    """Who can say it; the words of `detect.sources`.

    `COMMAND` is the operator's own; `ANNOTATION` stands on the Node, the others are asked of the
    host.
    """

    UPDATE_ENGINE = "update-engine"
    ANNOTATION = "annotation"
    REBOOT_REQUIRED = "reboot-required"
    RPM_OSTREE = "rpm-ostree"
    COMMAND = "command"


DEFAULT_SOURCES = (Source.UPDATE_ENGINE,)


class SourceAnswer(StrEnum):
    """What a source says: `ABSENT` where the host has no such thing, `NONE` where it cannot be told."""

    NEEDED = "needed"
    NOT_NEEDED = "not-needed"
    ABSENT = "absent"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Sign:
    """What one source says of one host; `detail` is half a sentence on why.

    `version` is what a reboot would bring, empty where that is not known. `target` is what the host
    will have booted once the reboot has done its work, and `current` what it has booted now, both
    in the source's own words: a version, a checksum, or nothing. `blocked` is why a plain reboot
    would not do it.
    """

    source: Source
    answer: SourceAnswer
    detail: str = ""
    version: str = ""
    target: str = ""
    current: str = ""
    blocked: str = ""

    @property
    def is_needed(self) -> bool:
        """Whether it asks for a reboot."""
        return self.answer is SourceAnswer.NEEDED


@dataclass(frozen=True, slots=True)
class Detection:
    """What all sources that were asked say of one host."""

    signs: tuple[Sign, ...] = ()

    @property
    def needs_reboot(self) -> bool:
        """Whether any asks for a reboot."""
        return any(sign.is_needed for sign in self.signs)

    @property
    def by(self) -> tuple[Source, ...]:
        """Which ask for it."""
        return tuple(sign.source for sign in self._needed())

    @property
    def detail(self) -> str:
        """Why, in their own words; empty where no reboot is needed."""
        return "; ".join(sign.detail for sign in self._needed() if sign.detail)

    @property
    def version(self) -> str:
        """What a reboot would bring; empty where none is needed, or that is not known."""
        return next((sign.version for sign in self._needed() if sign.version), "")

    @property
    def blocked(self) -> str:
        """Why a plain reboot would not do it; empty where it would."""
        return next((sign.blocked for sign in self._needed() if sign.blocked), "")

    @property
    def targets(self) -> Mapping[Source, str]:
        """What each that asks for a reboot has to be shown afterwards."""
        return {sign.source: sign.target for sign in self._needed()}

    @property
    def unanswered(self) -> tuple[Sign, ...]:
        """Those without which nobody can say that no reboot is needed; none where one is, or all is known."""
        if self.needs_reboot:
            return ()
        silent = tuple(sign for sign in self.signs if sign.answer is SourceAnswer.NONE)
        is_judged = any(sign.answer is SourceAnswer.NOT_NEEDED for sign in self.signs)
        return silent or (() if is_judged else self.signs)

    def _needed(self) -> Iterator[Sign]:
        return (sign for sign in self.signs if sign.is_needed)


def targets_text(targets: Mapping[Source, str]) -> str:
    """Return the same as a mark on a Node; empty where update_engine alone has spoken, whose version is marked."""
    return "" if tuple(targets) in {(), DEFAULT_SOURCES} else msgspec.json.encode(targets).decode()


def read_targets(text: str) -> Mapping[Source, str] | None:
    """Return the targets in a mark; None where it is none."""
    return read_json(text, dict[Source, str])
