"""Reads bootc's booted, staged and kept images (org.containers.bootc/v1 or v1alpha1)."""

import re

import msgspec
from msgspec.structs import replace

from rollout.gather.hosts.answer import Sections, output_of, version_or_empty
from rollout.model.detection import Sign, Source, SourceAnswer, short_checksum
from rollout.model.timestamps import parse_timestamp
from rollout.model.tool_output import last_line

_API = "org.containers.bootc/"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DOWNLOAD_ONLY = (
    "its staged image is download-only, and a plain reboot does not boot it: run on the host `sudo"
    " bootc upgrade --from-downloaded`"
)


class _Image(msgspec.Struct, frozen=True):
    digest: str = msgspec.field(name="imageDigest")
    version: str | None = None
    timestamp: str | None = None


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    # None if made without an image.
    image: _Image | None = None
    download_only: bool = False


class _HostStatus(msgspec.Struct, frozen=True, rename="camel"):
    staged: _Entry | None = None
    booted: _Entry | None = None
    rollback: _Entry | None = None
    rollback_queued: bool = False

    @property
    def next_entry(self) -> _Entry | None:
        """None if the booted one boots again. A staged entry comes before a rollback."""
        if self.staged:
            return self.staged
        return self.rollback if self.rollback_queued else None


class _BootcHost(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    status: _HostStatus


def bootc_sign(stdout: Sections, stderr: Sections) -> Sign:
    if not stdout.get("has-bootc"):
        return Sign(Source.BOOTC, SourceAnswer.ABSENT, "bootc is not on this host")
    try:
        host = msgspec.json.decode(output_of(stdout.get("bootc", "")), type=_BootcHost)
    except (msgspec.MsgspecError, RecursionError):
        host = None
    if host is None or not host.api_version.startswith(_API):
        why = last_line(stderr.get("bootc", "")) or "no status in its output"
        return Sign(Source.BOOTC, SourceAnswer.NONE, f"bootc did not respond: {why}")
    return _sign_of_status(host.status)


def _sign_of_status(status: _HostStatus) -> Sign:
    booted = _valid_image(status.booted)
    if booted is None:
        detail = "the host is not booted from a bootc image"
        return Sign(Source.BOOTC, SourceAnswer.ABSENT, detail)
    fallback = _valid_image(status.rollback)
    current = Sign(
        Source.BOOTC,
        SourceAnswer.NOT_NEEDED,
        "no image is staged",
        current=booted.digest,
        current_version=version_or_empty(booted.version or ""),
        fallback=fallback.digest if fallback else "",
        fallback_version=_display_name(fallback, booted) if fallback else "",
        fallback_is_newer=fallback is not None and _is_newer(fallback, booted),
    )
    next_entry = status.next_entry
    if next_entry is None:
        return current
    return _pending_sign(current, next_entry, booted, is_rollback=status.staged is None)


def _pending_sign(current: Sign, entry: _Entry, booted: _Image, *, is_rollback: bool) -> Sign:
    image = _valid_image(entry)
    if image is None:
        detail = "bootc's staged deployment has no image digest"
        return replace(current, answer=SourceAnswer.NONE, detail=detail)
    name = _display_name(image, booted)
    return replace(
        current,
        answer=SourceAnswer.NEEDED,
        detail=f"a rollback to {name} is queued" if is_rollback else f"image {name} is staged",
        version=name,
        target=image.digest,
        blocked=_DOWNLOAD_ONLY if entry.download_only else "",
    )


def _valid_image(entry: _Entry | None) -> _Image | None:
    image = entry.image if entry else None
    return image if image and _DIGEST.fullmatch(image.digest) else None


def _is_newer(image: _Image, other: _Image) -> bool:
    """Whether it was built later; False if unknown."""
    built = parse_timestamp(image.timestamp or "")
    other_built = parse_timestamp(other.timestamp or "")
    return built is not None and other_built is not None and built > other_built


def _display_name(image: _Image, booted: _Image) -> str:
    """Return the version, or a digest if both have that version."""
    label = version_or_empty(image.version or "")
    is_distinct = bool(label) and (label != booted.version or image.digest == booted.digest)
    return label if is_distinct else short_checksum(image.digest)
