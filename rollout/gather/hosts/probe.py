import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from rollout.gather.hosts.answer import (
    Sections,
    not_run_message,
    parse_assignments,
    split_sections,
    version_or_empty,
    word_or_empty,
)
from rollout.gather.hosts.probe_command import (
    BOOTC_TIMER,
    DNF_INSTALL_TIMER,
    DNF_TIMERS,
    LOCKSMITHD,
    MARKER,
    REBOOTING_UNITS,
    REBOOTMGR,
    RPM_OSTREE_TIMER,
    SYSUPDATE_TIMER,
    USUAL_PROBE,
    Probe,
)
from rollout.gather.hosts.rollback import rollback_sign
from rollout.gather.hosts.rollback_access import rollback_access
from rollout.gather.hosts.shutdown import (
    ACTIVE_STATES,
    describe_inhibitors,
    describe_scheduled_shutdown,
    parse_logins,
    zincati_strategy,
)
from rollout.gather.hosts.signs import host_signs, parse_update_status, unasked_sources
from rollout.gather.hosts.sudo import (
    SudoProblem,
    command_refusal,
    sudo_fix,
    sudo_problem,
    wants_password,
)
from rollout.gather.hosts.update_checks import parse_unit_state, parse_update_checks
from rollout.model.detection import Sign, Source
from rollout.model.host import (
    Host,
    HostFacts,
    HostObservation,
    ProbeFailure,
    ProbeFailureKind,
    UpdateOperation,
    UpdateStatus,
)
from rollout.model.rivals import SelfReboot
from rollout.model.text import excerpt
from rollout.model.tool_output import last_line
from rollout.ports import CommandResult

# Fedora's VERSION is a phrase, its VERSION_ID a release.
_VERSION_KEYS = ("OSTREE_VERSION", "VERSION", "VERSION_ID")
# A login shell may print something before.
BOOT_COMMAND = f"""
echo; echo '{MARKER} boot'; cat /proc/sys/kernel/random/boot_id
echo; echo '{MARKER} machine'; cat /etc/machine-id
echo; echo '{MARKER} release'; cat /etc/os-release || cat /usr/lib/os-release
""".strip()

_BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")


def running_version(os_release: Mapping[str, str]) -> str:
    for key in _VERSION_KEYS:
        running = version_or_empty(os_release.get(key, ""))
        if running:
            return running
    return ""


class BootFacts(Struct, frozen=True):
    boot_id: str
    machine_id: str
    running_version: str


def parse_boot(result: CommandResult) -> BootFacts | None:
    """Return None without a boot ID."""
    stdout = split_sections(result.stdout)
    boot_id = _BOOT_ID.search(stdout.get("boot", ""))
    if boot_id is None:
        return None
    version = running_version(parse_assignments(stdout.get("release", "")))
    return BootFacts(boot_id[0], parse_machine_id(stdout.get("machine", "")), version)


def parse_machine_id(text: str) -> str:
    """Return 32 lower-case hexadecimal digits, or empty."""
    plain = text.strip().replace("-", "").lower()
    return plain if _MACHINE_ID.fullmatch(plain) else ""


def parse_last_answer(host: Host, result: CommandResult, probe: Probe) -> HostFacts | None:
    """Parse the answer to `last_question`; None if incomplete.

    What has not changed since the probe has default values.
    """
    stdout = split_sections(result.stdout)
    stderr = split_sections(result.stderr)
    boot = parse_boot(result)
    if boot is None or "end" not in stdout:
        return None
    return HostFacts(
        host=host,
        update=_update_status(stdout, stderr, probe),
        os_id=word_or_empty(parse_assignments(stdout.get("release", "")).get("ID", "")),
        running_version=boot.running_version,
        group="",
        boot_id=boot.boot_id,
        machine_id=boot.machine_id,
        locksmithd_active=False,
        may_reboot=True,
        sources=probe.sources,
        signs=_read_signs(stdout, stderr, probe, boot.running_version),
    )


_EXIT_STATUS = re.compile(r"[0-9]{1,3}")
_REBOOT_CALL = "systemctl reboot"
_DNF_TRUE = frozenset({"1", "yes", "true", "on"})
_DNF_REBOOTS = frozenset({"when-changed", "when-needed"})
_PERMITTED_ANSWERS = frozenset({"root", "sudo"})
_NOT_ASKED = UpdateStatus(UpdateOperation.NOT_ASKED)
_SHELL_HINT = (
    "The user's login shell must be a POSIX shell that runs commands over SSH; try: ssh -p {} {}@{}"
    " true"
)


def _read_signs(stdout: Sections, stderr: Sections, probe: Probe, running: str) -> tuple[Sign, ...]:
    if Source.ROLLBACK in probe.sources:
        sign = rollback_sign(stdout, stderr, running=running, unwanted=probe.unwanted_version)
        return (sign,)
    return host_signs(stdout, stderr, probe.sources)


def _update_status(stdout: Sections, stderr: Sections, probe: Probe) -> UpdateStatus:
    if Source.UPDATE_ENGINE not in probe.sources:
        return _NOT_ASKED
    return parse_update_status(stdout, stderr)


def parse_probe(host: Host, result: CommandResult, probe: Probe = USUAL_PROBE) -> HostObservation:
    stdout = split_sections(result.stdout)
    stderr = split_sections(result.stderr)
    if "end" not in stdout:
        return _incomplete_answer(host, result, stdout)
    boot_id = stdout.get("boot-id", "").lower()
    if not _BOOT_ID.fullmatch(boot_id):
        # Without it, no reboot could be proved.
        cause = last_line(stderr.get("boot-id", "")) or "the output is not a boot ID"
        why = f"the boot ID cannot be read: {cause}"
        hint = f"The SSH user must be able to read {_BOOT_ID_FILE}."
        return ProbeFailure(host, ProbeFailureKind.GARBLED, why, hint)
    os_release = parse_assignments(stdout.get("os-release", ""))
    running = running_version(os_release)
    access = _reboot_access(host.user, stdout, stderr)
    update = _update_status(stdout, stderr, probe)
    engine = parse_unit_state(stdout, stderr, "update-engine")
    return HostFacts(
        host=host,
        update=update,
        os_id=word_or_empty(os_release.get("ID", "")),
        running_version=running,
        group=word_or_empty(parse_assignments(stdout.get("update-conf", "")).get("GROUP", "")),
        boot_id=boot_id,
        machine_id=parse_machine_id(stdout.get("machine-id", "")),
        locksmithd_active=LOCKSMITHD in _active_units(stdout),
        zincati_strategy=zincati_strategy(stdout.get("zincati", "")),
        reboots_itself=tuple(_self_reboots(stdout, os_release)),
        may_reboot=access.is_allowed,
        reboot_refusal=access.refusal,
        reboot_fix=access.fix,
        rollback_access=rollback_access(host.user, stdout, stderr),
        inhibited_by=describe_inhibitors(stdout.get("inhibitors", "")),
        scheduled_shutdown=describe_scheduled_shutdown(stdout.get("shutdown", "")),
        sources=probe.sources,
        signs=_read_signs(stdout, stderr, probe, running),
        users=parse_logins(stdout.get("users", "")),
        unasked_sources=unasked_sources(stdout.get("shows", ""), os_release, probe.sources),
        engine_unit=engine,
        locksmithd_unit=parse_unit_state(stdout, stderr, "locksmithd"),
        checks=parse_update_checks(stdout, stderr, update, engine),
    )


def _active_units(stdout: Sections) -> set[str]:
    # After a timeout, the last states are missing.
    states = zip(REBOOTING_UNITS, stdout.get("units", "").split(), strict=False)
    return {unit for unit, state in states if state in ACTIVE_STATES}


def _self_reboots(stdout: Sections, os_release: Mapping[str, str]) -> Iterator[SelfReboot]:
    """Yield others than locksmithd and Zincati."""
    active = _active_units(stdout)
    if parse_assignments(stdout.get("unattended-upgrades", "")).get("REBOOTS") == "true":
        yield SelfReboot.UNATTENDED_UPGRADES
    if BOOTC_TIMER in active and not _only_stages(stdout.get("bootc-command", "")):
        yield SelfReboot.BOOTC
    ostree = _last_values(stdout.get("rpm-ostreed", ""))
    if RPM_OSTREE_TIMER in active and ostree.get("AutomaticUpdatePolicy") == "apply":
        yield SelfReboot.RPM_OSTREE
    # `systemd-sysupdate reboot` needs this, so Flatcar's timer does nothing.
    if SYSUPDATE_TIMER in active and "IMAGE_VERSION" in os_release:
        yield SelfReboot.SYSUPDATE
    rebootmgr = _last_values(stdout.get("rebootmgr", ""))
    if REBOOTMGR in active and rebootmgr.get("strategy") != "off":
        yield SelfReboot.REBOOTMGR
    dnf = _last_values(stdout.get("dnf-automatic", ""))
    is_dnf_timer_active = not active.isdisjoint(DNF_TIMERS)
    applies_updates = dnf.get("apply_updates", "").lower() in _DNF_TRUE
    installs = DNF_INSTALL_TIMER in active or (is_dnf_timer_active and applies_updates)
    if installs and dnf.get("reboot") in _DNF_REBOOTS:
        yield SelfReboot.DNF


def _only_stages(section: str) -> bool:
    """Whether the timer's service was changed not to reboot."""
    commands = [line for line in section.splitlines() if line.startswith("ExecStart=")]
    if not commands:
        return False
    # `bootc --apply` reboots. Any other program may, too.
    return all("/bootc " in command and "--apply" not in command for command in commands)


def _last_values(text: str) -> Mapping[str, str]:
    lines = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


class _RebootAccess(NamedTuple):
    is_allowed: bool
    refusal: str = ""
    fix: str = ""


def _reboot_access(user: str, stdout: Sections, stderr: Sections) -> _RebootAccess:
    needs_password = wants_password(stdout.get("sudo-rules", ""), _REBOOT_CALL)
    if needs_password:
        problem: SudoProblem | None = SudoProblem.PASSWORD
        complaint = ""
    elif stdout.get("may-reboot", "") in _PERMITTED_ANSWERS:
        return _RebootAccess(is_allowed=True)
    else:
        problem = _reboot_sudo_problem(stdout, stderr)
        complaint = stderr.get("may-reboot", "")
    return _RebootAccess(
        is_allowed=False,
        refusal=command_refusal(user, _REBOOT_CALL, problem, complaint),
        fix=sudo_fix(problem, user, f"/usr/bin/{_REBOOT_CALL}"),
    )


def _reboot_sudo_problem(stdout: Sections, stderr: Sections) -> SudoProblem | None:
    """An answer is such as `no 1`, with sudo's exit status."""
    status = stdout.get("may-reboot", "").removeprefix("no").strip()
    exit_status = int(status) if _EXIT_STATUS.fullmatch(status) else None
    return sudo_problem(stderr.get("may-reboot", ""), exit_status)


def _incomplete_answer(host: Host, result: CommandResult, stdout: Sections) -> ProbeFailure:
    if result.exit_status is None:
        return ProbeFailure(
            host,
            ProbeFailureKind.UNREACHABLE,
            "the connection ended in the middle of the response",
            "The host may be going down; try again.",
        )
    if stdout:
        *_, last_section = stdout
        message = f"the response was cut off after {excerpt(last_section, 40)!r}"
    else:
        message = not_run_message(last_line(result.stderr) or last_line(result.stdout))
    return ProbeFailure(
        host,
        ProbeFailureKind.GARBLED,
        message,
        _SHELL_HINT.format(host.port, host.user, host.address),
    )
