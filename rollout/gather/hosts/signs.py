"""Reads whether a reboot is needed, by source.

`update_engine_client` exits with 0 even if D-Bus denies its call, so only an answer with an
operation counts.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from rollout.gather.hosts.answer import (
    NOT_FOUND,
    TIMED_OUT,
    Sections,
    last_exit_status,
    output_of,
    parse_assignments,
    version_or_empty,
)
from rollout.gather.hosts.bootc import bootc_sign
from rollout.gather.hosts.probe_command import EXIT_MARKER
from rollout.gather.hosts.update_checks import parse_epoch_time
from rollout.model.detection import Sign, Source, SourceAnswer, short_checksum
from rollout.model.host import NO_VERSION, EngineTrouble, UpdateOperation, UpdateStatus
from rollout.model.text import excerpt, shortened
from rollout.model.tool_output import last_line

ENGINE_SILENT = "update_engine did not respond in time: the system bus or the engine is down"
_ENGINE_SECTIONS = ("client", "bus", "sudo-bus", "sudo-client")
_DENIED_VALUE = "(null)"
_BUS_TEXT = r'(?:[^"\\]|\\.)*'
_BUS_REPLY = re.compile(
    r"xdssx (?P<checked>\S+) (?P<progress>\S+)"
    rf' "(?P<operation>{_BUS_TEXT})" "(?P<version>{_BUS_TEXT})" \S+'
)
_FRACTION = re.compile(r"0\.[0-9]{1,20}")
_OPERATIONS = frozenset(UpdateOperation) - {UpdateOperation.UNKNOWN, UpdateOperation.NOT_ASKED}
_NO_SUCH_SERVICE = "The name com.coreos.update1 was not provided by any .service files"


def parse_update_status(stdout: Sections, stderr: Sections) -> UpdateStatus:
    """Return the first answer with an operation.

    It is `CURRENT_OP=UPDATE_STATUS_IDLE`, or busctl's `xdssx 0 0 "UPDATE_STATUS_IDLE" …`.
    """
    for section in _ENGINE_SECTIONS:
        values = parse_assignments(stdout.get(section, ""))
        bus_reply = _BUS_REPLY.search(stdout.get(section, ""))
        operation = values.get("CURRENT_OP", _DENIED_VALUE)
        if operation not in ("", _DENIED_VALUE):
            status = _make_status(
                operation, values.get("NEW_VERSION", ""), values.get("PROGRESS", "")
            )
            return replace(
                status, last_checked=parse_epoch_time(values.get("LAST_CHECKED_TIME", ""))
            )
        if bus_reply and bus_reply["operation"]:
            status = _make_status(
                bus_reply["operation"], bus_reply["version"], bus_reply["progress"]
            )
            return replace(status, last_checked=parse_epoch_time(bus_reply["checked"]))
    trouble, message = _why_unknown(stdout, stderr)
    return UpdateStatus(UpdateOperation.UNKNOWN, message=message, trouble=trouble)


def _make_status(operation: str, new_version: str, progress: str) -> UpdateStatus:
    known_operation = UpdateOperation.UNKNOWN
    if operation in _OPERATIONS:
        known_operation = UpdateOperation(operation)
    message = ""
    if known_operation is UpdateOperation.DOWNLOADING and _FRACTION.fullmatch(progress):
        message = f"{float(progress):.0%}"
    if known_operation is UpdateOperation.UNKNOWN:
        message = f"update_engine reports an unknown operation: {excerpt(operation, 60)}"
    return UpdateStatus(
        operation=known_operation,
        new_version="" if new_version == NO_VERSION else version_or_empty(new_version),
        message=message,
    )


def _why_unknown(stdout: Sections, stderr: Sections) -> tuple[EngineTrouble, str]:
    """Return why there is no status, and a sentence about it.

    It was asked by its client, D-Bus, then D-Bus with sudo.
    """
    sections = [section for section in _ENGINE_SECTIONS if section in stdout]
    statuses = {section: last_exit_status(stdout[section]) for section in sections}
    if TIMED_OUT in statuses.values():
        return EngineTrouble.SILENT, ENGINE_SILENT
    if statuses.get("client") == NOT_FOUND:
        bus_error = last_line(stderr.get("bus", ""))
        if bus_error.endswith(_NO_SUCH_SERVICE):
            return EngineTrouble.MISSING, "update_engine is not on this host"
        why = "update_engine_client is not on this host, and D-Bus did not respond"
        return EngineTrouble.MISSING, _with_cause(why, bus_error)
    if any(_DENIED_VALUE in stdout[section] for section in sections):
        return EngineTrouble.DENIED, _with_cause(
            "update_engine refused to answer: its bus policy allows only root and user core",
            last_line(stderr.get("sudo-bus", "")),
        )
    causes = [last_line(stderr.get(section, "")) for section in sections]
    first_cause = next((cause for cause in causes if cause), "")
    return EngineTrouble.OTHER, _with_cause("update_engine did not respond", first_cause)


def _with_cause(sentence: str, cause: str) -> str:
    return f"{sentence} ({cause})" if cause else sentence


_VISIBLE_SOURCES = (Source.REBOOT_REQUIRED, Source.RPM_OSTREE, Source.BOOTC)
_MOST_PACKAGES = 3
_LONGEST_EXCERPT = 60
CHECKSUM = re.compile(r"[0-9a-f]{64}")
_NOT_EXECUTABLE = 126
_FIRST_SIGNAL_STATUS = 128
FINALIZE = "sudo -n rpm-ostree finalize-deployment --allow-missing-checksum"
_LOCKED = (
    "its staged deployment is locked, and a plain reboot does not boot it: Zincati does, or "
    f"--set reboot.command='{FINALIZE}'"
)


class OstreeDeployment(msgspec.Struct, frozen=True):
    checksum: str
    booted: bool = False
    staged: bool = False
    version: str | None = None
    is_locked: bool = msgspec.field(default=False, name="finalization-locked")


class _RpmOstreeStatus(msgspec.Struct, frozen=True):
    deployments: tuple[OstreeDeployment, ...]


def host_signs(stdout: Sections, stderr: Sections, sources: Sequence[Source]) -> tuple[Sign, ...]:
    return tuple(
        _SIGN_READERS[source](stdout, stderr) for source in sources if source in _SIGN_READERS
    )


def unasked_sources(
    shows_section: str, os_release: Mapping[str, str], asked: Sequence[Source]
) -> tuple[Source, ...]:
    """Return sources that the host has, but the settings do not ask."""
    present: set[str] = set(shows_section.split())
    distributions = (os_release.get("ID", ""), *os_release.get("ID_LIKE", "").split())
    # The probe sees its file only while a reboot is required.
    if "debian" in distributions:
        present.add(Source.REBOOT_REQUIRED)
    return tuple(source for source in _VISIBLE_SOURCES if source in present and source not in asked)


def _reboot_required_sign(stdout: Sections, stderr: Sections) -> Sign:
    source = Source.REBOOT_REQUIRED
    answer = stdout.get("reboot-required", "")
    if answer not in {SourceAnswer.NEEDED, SourceAnswer.NOT_NEEDED}:
        why = last_line(stderr.get("reboot-required", "")) or "no response"
        return Sign(
            source, SourceAnswer.NONE, f"cannot tell whether /run/reboot-required exists: {why}"
        )
    if answer == SourceAnswer.NOT_NEEDED:
        return Sign(source, SourceAnswer.NOT_NEEDED, "no /run/reboot-required")
    lines = stdout.get("reboot-required-packages", "").split("\n")
    distinct_lines = dict.fromkeys(lines)
    packages = [excerpt(line, _LONGEST_EXCERPT) for line in distinct_lines if line.strip()]
    because = f" for {shortened(packages, _MOST_PACKAGES)}" if packages else ""
    return Sign(source, SourceAnswer.NEEDED, f"/run/reboot-required{because}")


def _rpm_ostree_sign(stdout: Sections, stderr: Sections) -> Sign:
    source = Source.RPM_OSTREE
    if last_exit_status(stdout.get("rpm-ostree", "")) == NOT_FOUND:
        return Sign(source, SourceAnswer.ABSENT, "rpm-ostree is not on this host")
    deployments = parse_deployments(stdout)
    if deployments is None:
        return Sign(source, SourceAnswer.NONE, why_rpm_ostree_silent(stderr))
    has_lock_file = stdout.get("rpm-ostree-lock", "") == "locked"
    return _sign_of_deployments(deployments, has_lock_file=has_lock_file)


def parse_deployments(stdout: Sections) -> tuple[OstreeDeployment, ...] | None:
    """Return deployments, the next to boot first; None without a status."""
    document = output_of(stdout.get("rpm-ostree", ""))
    try:
        return msgspec.json.decode(document, type=_RpmOstreeStatus).deployments
    except (msgspec.MsgspecError, RecursionError):
        return None


def why_rpm_ostree_silent(stderr: Sections) -> str:
    why = last_line(stderr.get("rpm-ostree", "")) or "no status in its output"
    return f"rpm-ostree did not respond: {why}"


def _sign_of_deployments(deployments: Sequence[OstreeDeployment], *, has_lock_file: bool) -> Sign:
    source = Source.RPM_OSTREE
    booted = next((deployment for deployment in deployments if deployment.booted), None)
    if booted is None or not CHECKSUM.fullmatch(booted.checksum):
        return Sign(source, SourceAnswer.NONE, "rpm-ostree names no booted deployment")
    staged = next((deployment for deployment in deployments if deployment.staged), None)
    if staged is None or staged.booted:
        return Sign(
            source, SourceAnswer.NOT_NEEDED, "no deployment is staged", current=booted.checksum
        )
    if not CHECKSUM.fullmatch(staged.checksum):
        return Sign(
            source,
            SourceAnswer.NONE,
            "rpm-ostree's staged deployment has no checksum",
            current=booted.checksum,
        )
    name = version_or_empty(staged.version or "")
    return Sign(
        source=source,
        answer=SourceAnswer.NEEDED,
        detail=f"deployment {name or short_checksum(staged.checksum)} is staged",
        version=name,
        target=staged.checksum,
        current=booted.checksum,
        blocked=_LOCKED if has_lock_file or staged.is_locked else "",
    )


def _command_sign(stdout: Sections, _stderr: Sections) -> Sign:
    source = Source.COMMAND
    section = stdout.get("command", "")
    status = last_exit_status(section)
    before_status, _, _ = section.rpartition(f"{EXIT_MARKER} ")
    output = excerpt(before_status.strip(), _LONGEST_EXCERPT)
    suffix = f": {output}" if output else ""
    if status is None or status == TIMED_OUT:
        return Sign(source, SourceAnswer.NONE, f"detect.command did not finish in time{suffix}")
    if status in {_NOT_EXECUTABLE, NOT_FOUND} or status >= _FIRST_SIGNAL_STATUS:
        return Sign(
            source,
            SourceAnswer.NONE,
            f"detect.command did not run: exit status {status}{suffix}",
        )
    if status:
        return Sign(source, SourceAnswer.NOT_NEEDED, f"detect.command exited with {status}")
    return Sign(source, SourceAnswer.NEEDED, f"detect.command exited with 0{suffix}")


_SIGN_READERS = {
    Source.REBOOT_REQUIRED: _reboot_required_sign,
    Source.RPM_OSTREE: _rpm_ostree_sign,
    Source.BOOTC: bootc_sign,
    Source.COMMAND: _command_sign,
}
