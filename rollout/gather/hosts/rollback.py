"""Reads which earlier version a host can boot.

Flatcar: the other USR partition, if it has booted before and update_engine is not about to write
it. bootc: the image for a rollback. rpm-ostree: the deployment after the booted one.
"""

import re
from collections.abc import Mapping, Sequence

from rollout.gather.hosts.answer import (
    NOT_FOUND,
    Sections,
    last_exit_status,
    parse_assignments,
    version_or_empty,
)
from rollout.gather.hosts.bootc import bootc_sign
from rollout.gather.hosts.signs import (
    CHECKSUM,
    OstreeDeployment,
    parse_deployments,
    parse_update_status,
    why_rpm_ostree_silent,
)
from rollout.model.detection import Sign, Source, SourceAnswer, short_checksum
from rollout.model.host import EngineTrouble, UpdateOperation
from rollout.model.text import version_numbers
from rollout.model.tool_output import last_line

_DEVICE = re.compile(r"/dev/[0-9A-Za-z/_.-]{1,60}")
_NO_RELEASE = "it has no os-release"
# With written operations or failed updates, part of the other partition may be overwritten.
_POSITIVE = re.compile(r"[1-9][0-9]{0,9}")
_SUCCESSFUL = re.compile(r"\bsuccessful=([01])\b")
# Before a download, update_engine writes the other partition.
_WRITING_OPERATIONS = frozenset(UpdateOperation) - {
    UpdateOperation.IDLE,
    UpdateOperation.CHECKING,
    UpdateOperation.UNKNOWN,
    UpdateOperation.NOT_ASKED,
}


def rollback_sign(stdout: Sections, stderr: Sections, *, running: str, unwanted: str) -> Sign:
    """Return `NEEDED` if the host runs `unwanted`, and can go back."""
    sign = _previous_version_sign(stdout, stderr, running)
    if sign.is_needed and running != unwanted:
        return _sign(SourceAnswer.NOT_NEEDED, f"it runs {running}, not {unwanted}", sign.current)
    return sign


def _previous_version_sign(stdout: Sections, stderr: Sections, running: str) -> Sign:
    image = bootc_sign(stdout, stderr)
    if image.answer is not SourceAnswer.ABSENT:
        return _sign_of_image(image, running)
    if last_exit_status(stdout.get("rpm-ostree", "")) != NOT_FOUND:
        return _rollback_sign_of_deployments(stdout, stderr, running)
    if not stdout.get("other-slot", ""):
        why = "rollout cannot roll back its operating system"
        return _sign(SourceAnswer.NOT_NEEDED, why)
    return _sign_of_partitions(stdout, stderr, running)


def _sign_of_partitions(stdout: Sections, stderr: Sections, running: str) -> Sign:
    section = stdout["other-slot"]
    complaint = last_line(stderr.get("other-slot", ""))
    values = parse_assignments(section)
    booted = values.get("BOOTED", "")
    other = values.get("OTHER", "")
    if not (_DEVICE.fullmatch(booted) and _DEVICE.fullmatch(other)):
        why = complaint or "cgpt names no other USR partition"
        return _sign(SourceAnswer.NONE, f"cannot find its other USR partition: {why}")
    flag = _SUCCESSFUL.search(section)
    if flag is None:
        why = complaint or "cgpt shows no flags of it"
        return _sign(SourceAnswer.NONE, f"cannot tell whether {other} can boot: {why}", booted)
    engine = parse_update_status(stdout, stderr)
    # Else nothing writes the partition.
    has_engine = engine.trouble is not EngineTrouble.MISSING
    is_engine_silent = engine.operation is UpdateOperation.UNKNOWN
    if has_engine and is_engine_silent:
        why = f"cannot tell whether {other} is being updated: {engine.message}"
        return _sign(SourceAnswer.NONE, why, booted)
    has_booted = flag[1] == "1"
    why = _why_partition_unusable(values, engine.operation, has_booted=has_booted)
    earlier_version = version_or_empty(values.get("VERSION", ""))
    if not why and not earlier_version:
        why = f"the OS image on {other} cannot be read: {complaint or _NO_RELEASE}"
    if why:
        return _sign(SourceAnswer.NOT_NEEDED, why, booted)
    return _sign_of_version(running, earlier_version, booted=booted, target=other)


def _why_partition_unusable(
    values: Mapping[str, str], operation: UpdateOperation, *, has_booted: bool
) -> str:
    other = values["OTHER"]
    why = ""
    if operation in _WRITING_OPERATIONS:
        why = f"{other} is being updated, or holds an update that has not booted yet"
    elif _POSITIVE.fullmatch(values.get("NEXT_OPERATION", "")):
        why = f"an interrupted update has overwritten part of {other}"
    elif _POSITIVE.fullmatch(values.get("FAILURES", "")):
        why = f"a failed update may have overwritten part of {other}"
    elif not has_booted:
        why = f"{other} has never booted successfully"
    return why


def _sign_of_image(image: Sign, running: str) -> Sign:
    if image.answer is SourceAnswer.NONE:
        return _sign(SourceAnswer.NONE, image.detail)
    # A rollback may be queued already.
    boots_fallback_next = image.target == image.fallback
    if image.is_needed and not boots_fallback_next:
        why = "an image is staged, which a rollback would discard"
        return _sign(SourceAnswer.NOT_NEEDED, why, image.current)
    if not image.fallback:
        return _sign(SourceAnswer.NOT_NEEDED, "it has no other image", image.current)
    why = _why_not_identified(image.current_version, running)
    if why:
        return _sign(SourceAnswer.NOT_NEEDED, why, image.current)
    earlier_version = image.fallback_version
    is_only_checksum = earlier_version == short_checksum(image.fallback)
    if is_only_checksum:
        why = f"its other image has no version that differs from {running}"
        return _sign(SourceAnswer.NOT_NEEDED, why, image.current)
    return _sign_of_version(running, earlier_version, booted=image.current, target=image.fallback)


def _why_not_identified(booted_version: str, running: str) -> str:
    """Return why `running`, of os-release, is not what is booted, or empty.

    If both systems had one os-release, the host would be rolled back repeatedly.
    """
    if booted_version == running:
        return ""
    name = booted_version or "no version"
    return f"its os-release says {running}, and its booted OS image is {name}"


def _rollback_sign_of_deployments(stdout: Sections, stderr: Sections, running: str) -> Sign:
    deployments = parse_deployments(stdout)
    if deployments is None:
        return _sign(SourceAnswer.NONE, why_rpm_ostree_silent(stderr))
    booted = next((deployment for deployment in deployments if deployment.booted), None)
    if booted is None or not CHECKSUM.fullmatch(booted.checksum):
        return _sign(SourceAnswer.NONE, "rpm-ostree names no booted deployment")
    if any(deployment.staged for deployment in deployments):
        why = "a deployment is staged, and rpm-ostree refuses: rpm-ostree cleanup --pending"
        return _sign(SourceAnswer.NOT_NEEDED, why, booted.checksum)
    other = _rollback_target(deployments)
    if other is None or not CHECKSUM.fullmatch(other.checksum):
        return _sign(SourceAnswer.NOT_NEEDED, "it has no other deployment", booted.checksum)
    return _sign_of_two_deployments(booted, other, running)


def _sign_of_two_deployments(
    booted: OstreeDeployment, other: OstreeDeployment, running: str
) -> Sign:
    earlier_version = version_or_empty(other.version or "")
    why = _why_not_identified(version_or_empty(booted.version or ""), running)
    if not earlier_version:
        why = "its other deployment has no version"
    if why:
        return _sign(SourceAnswer.NOT_NEEDED, why, booted.checksum)
    return _sign_of_version(running, earlier_version, booted=booted.checksum, target=other.checksum)


def _rollback_target(deployments: Sequence[OstreeDeployment]) -> OstreeDeployment | None:
    # In the boot menu's order.
    first, *others = deployments
    has_queued = not first.booted
    if has_queued:
        return first
    return others[0] if others else None


def _sign_of_version(running: str, earlier_version: str, *, booted: str, target: str) -> Sign:
    """Return `NEEDED` only for an earlier version.

    `booted` and `target` are partitions, images or checksums.
    """
    if earlier_version == running:
        return _sign(
            SourceAnswer.NOT_NEEDED, f"its other OS image is {earlier_version}, too", booted
        )
    if _is_later_version(earlier_version, running):
        why = f"its other OS image is {earlier_version}, which is newer than {running}"
        return _sign(SourceAnswer.NOT_NEEDED, why, booted)
    return Sign(
        source=Source.ROLLBACK,
        answer=SourceAnswer.NEEDED,
        detail=f"{earlier_version} is its previous version",
        version=earlier_version,
        target=target,
        current=booted,
    )


def _is_later_version(one: str, other: str) -> bool:
    """Return False if they cannot be compared."""
    first = version_numbers(one)
    second = version_numbers(other)
    return len(first) == len(second) and first > second


def _sign(answer: SourceAnswer, detail: str, booted: str = "") -> Sign:
    return Sign(Source.ROLLBACK, answer, detail, current=booted)
