"""The sources that say whether a host needs a reboot.

No reboot is needed if each source that the host has denies it.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec
from msgspec import Struct

from rollout.model.json_text import read_json


class Source(StrEnum):
    """What reports whether a host needs a reboot."""

    UPDATE_ENGINE = "update-engine"
    # On the Node; the others are on the host.
    ANNOTATION = "annotation"
    REBOOT_REQUIRED = "reboot-required"
    RPM_OSTREE = "rpm-ostree"
    BOOTC = "bootc"
    COMMAND = "command"
    # Which earlier version the host can boot. It is not in `detect.sources`.
    ROLLBACK = "rollback"


DEFAULT_SOURCES = (Source.UPDATE_ENGINE,)
UPDATE_SOURCES = tuple(source for source in Source if source is not Source.ROLLBACK)
"""The sources that `detect.sources` may name."""


class SourceAnswer(StrEnum):
    """What a source says about a reboot."""

    NEEDED = "needed"
    NOT_NEEDED = "not-needed"
    # The host has no such source.
    ABSENT = "absent"
    # The source is there, but does not say.
    NONE = "none"


def short_checksum(checksum: str) -> str:
    """Return the start of a checksum, as screens show it."""
    return checksum.removeprefix("sha256:")[:12]


class Sign(Struct, frozen=True):
    """One source's answer about a host. Unknown values are empty."""

    source: Source
    answer: SourceAnswer
    # A clause that says why.
    detail: str = ""
    # The version that a reboot would boot.
    version: str = ""
    # What a reboot would boot, and what is booted, in the source's words, such as a checksum.
    target: str = ""
    current: str = ""
    # The image's own version, which its os-release may not name.
    current_version: str = ""
    # Why a plain reboot is not enough.
    blocked: str = ""
    # What a rollback would boot, in the source's words.
    fallback: str = ""
    fallback_version: str = ""
    # The fallback is known to be newer: the host was rolled back.
    fallback_is_newer: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether the source asks for a reboot."""
        return self.answer is SourceAnswer.NEEDED


class Detection(Struct, frozen=True):
    """What all sources say about one host: each answers that a reboot is needed or not, or nothing.

    A source that the host does not have is absent.
    """

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
        """Return the version that a reboot would boot, or empty."""
        return next((sign.version for sign in self._needed_signs() if sign.version), "")

    @property
    def blocked(self) -> str:
        """Return why a plain reboot is not enough, or empty."""
        return next((sign.blocked for sign in self._needed_signs() if sign.blocked), "")

    @property
    def targets(self) -> Mapping[Source, str]:
        """Return what each source must report after the reboot."""
        return {sign.source: sign.target for sign in self._needed_signs()}

    @property
    def unanswered(self) -> tuple[Sign, ...]:
        """Return the signs of sources whose silence leaves open whether a reboot is needed."""
        if self.needs_reboot:
            return ()
        silent = tuple(sign for sign in self.signs if sign.answer is SourceAnswer.NONE)
        if silent:
            return silent
        is_denied = any(sign.answer is SourceAnswer.NOT_NEEDED for sign in self.signs)
        if is_denied:
            return ()
        # All sources are absent, so none of them has denied a reboot.
        return self.signs

    def _needed_signs(self) -> Iterator[Sign]:
        return (sign for sign in self.signs if sign.is_needed)


def targets_text(targets: Mapping[Source, str]) -> str:
    """Return the annotation of what each source must report after the reboot.

    It is empty if no source but update_engine has a target, whose version has its own annotation.
    """
    has_only_engine = set(targets) <= {Source.UPDATE_ENGINE}
    if has_only_engine:
        return ""
    return msgspec.json.encode(targets).decode()


def read_targets(text: str) -> Mapping[Source, str] | None:
    """Return the annotation's targets, or None."""
    return read_json(text, dict[Source, str])
