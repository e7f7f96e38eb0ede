"""A host needs no reboot if each source that it has denies it."""

from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec
from msgspec import Struct

from rollout.model.json_text import read_json


class Source(StrEnum):
    """What reports whether a host needs a reboot."""

    UPDATE_ENGINE = "update-engine"
    # On the Node, not the host.
    ANNOTATION = "annotation"
    REBOOT_REQUIRED = "reboot-required"
    RPM_OSTREE = "rpm-ostree"
    BOOTC = "bootc"
    COMMAND = "command"
    # Earlier versions; not in `detect.sources`.
    ROLLBACK = "rollback"


DEFAULT_SOURCES = (Source.UPDATE_ENGINE,)
UPDATE_SOURCES = tuple(source for source in Source if source is not Source.ROLLBACK)
"""The sources that `detect.sources` may name."""


class SourceAnswer(StrEnum):
    """A source's answer about a reboot."""

    NEEDED = "needed"
    NOT_NEEDED = "not-needed"
    ABSENT = "absent"
    # The source exists, but does not say.
    NONE = "none"


def short_checksum(checksum: str) -> str:
    """Return the part that screens show."""
    return checksum.removeprefix("sha256:")[:12]


class Sign(Struct, frozen=True):
    """A source's answer. Unknown values are empty."""

    source: Source
    answer: SourceAnswer
    detail: str = ""
    # What a reboot would boot.
    version: str = ""
    # What would boot, and is booted, in the source's words.
    target: str = ""
    current: str = ""
    # The image's own; its os-release may not name it.
    current_version: str = ""
    blocked: str = ""
    fallback: str = ""
    fallback_version: str = ""
    # The host was rolled back.
    fallback_is_newer: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether the source asks for a reboot."""
        return self.answer is SourceAnswer.NEEDED


class Detection(Struct, frozen=True):
    """All signs about one host."""

    signs: tuple[Sign, ...] = ()

    @property
    def needs_reboot(self) -> bool:
        """Whether any source asks for a reboot."""
        return any(sign.is_needed for sign in self.signs)

    @property
    def needed_by(self) -> tuple[Source, ...]:
        """Return the sources that ask for a reboot."""
        return tuple(sign.source for sign in self._needed_signs())

    @property
    def detail(self) -> str:
        """Return why a reboot is needed, or empty."""
        return "; ".join(sign.detail for sign in self._needed_signs() if sign.detail)

    @property
    def staged_version(self) -> str:
        """Return what a reboot would boot, or empty."""
        return next((sign.version for sign in self._needed_signs() if sign.version), "")

    @property
    def blocked(self) -> str:
        """Return why rebooting is not enough, or empty."""
        return next((sign.blocked for sign in self._needed_signs() if sign.blocked), "")

    @property
    def targets(self) -> Mapping[Source, str]:
        """Return what sources must report afterwards."""
        return {sign.source: sign.target for sign in self._needed_signs()}

    @property
    def unanswered(self) -> tuple[Sign, ...]:
        """Return signs that leave the need for a reboot open."""
        if self.needs_reboot:
            return ()
        silent = tuple(sign for sign in self.signs if sign.answer is SourceAnswer.NONE)
        if silent:
            return silent
        is_denied = any(sign.answer is SourceAnswer.NOT_NEEDED for sign in self.signs)
        if is_denied:
            return ()
        # All are absent, so none has denied it.
        return self.signs

    def _needed_signs(self) -> Iterator[Sign]:
        return (sign for sign in self.signs if sign.is_needed)


def targets_text(targets: Mapping[Source, str]) -> str:
    """Return an annotation; empty for update_engine, which has its own."""
    has_only_engine = set(targets) <= {Source.UPDATE_ENGINE}
    if has_only_engine:
        return ""
    return msgspec.json.encode(targets).decode()


def read_targets(text: str) -> Mapping[Source, str] | None:
    """Return the targets, or None if invalid."""
    return read_json(text, dict[Source, str])
