import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rollout.gather.hosts.answer import (
    not_run,
    parse_assignments,
    split_sections,
    version,
    word,
)
from rollout.gather.hosts.probe_command import MARKER, USUAL_PROBE, Probe
from rollout.gather.hosts.rollback import rollback_sign
from rollout.gather.hosts.rollback_access import rollback_access
from rollout.gather.hosts.shutdown import (
    RUNNING,
    inhibition,
    parse_logins,
    pending_shutdown,
    zincati_strategy,
)
from rollout.gather.hosts.signs import host_signs, parse_update_status, shown_sources
from rollout.gather.hosts.sudo import (
    SudoProblem,
    command_refusal,
    sudo_fix,
    sudo_problem,
    wants_password,
)
from rollout.gather.hosts.update_checks import unit_state, update_checks
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

# The most specific first: Fedora's VERSION is a phrase, its VERSION_ID a release.
_VERSION_KEYS = ("OSTREE_VERSION", "VERSION", "VERSION_ID")
# A login shell may print what looks like a boot ID, so markers separate the answers.
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
        running = version(os_release.get(key, ""))
        if running:
            return running
    return ""


@dataclass(frozen=True, slots=True)
class BootFacts:
    boot_id: str
    machine_id: str
    version: str


def parse_boot(result: CommandResult) -> BootFacts | None:
    """Return None without a boot ID."""
    answers = split_sections(result.stdout)
    boot_id = _BOOT_ID.search(answers.get("boot", ""))
    if boot_id is None:
        return None
    release = running_version(parse_assignments(answers.get("release", "")))
    return BootFacts(boot_id[0], machine_id(answers.get("machine", "")), release)


def machine_id(text: str) -> str:
    """Return a machine ID as the API writes it, or an empty text."""
    plain = text.strip().replace("-", "").lower()
    return plain if _MACHINE_ID.fullmatch(plain) else ""


def parse_last_answer(host: Host, result: CommandResult, probe: Probe) -> HostFacts | None:
    """Return None if the answer to `last_question` was cut off."""
    answers = split_sections(result.stdout)
    complaints = split_sections(result.stderr)
    boot = parse_boot(result)
    if boot is None or "end" not in answers:
        return None
    return HostFacts(
        host=host,
        update=_update_status(answers, complaints, probe),
        os_id=word(parse_assignments(answers.get("release", "")).get("ID", "")),
        running_version=boot.version,
        group="",
        boot_id=boot.boot_id,
        machine_id=boot.machine_id,
        locksmithd_active=False,
        may_reboot=True,
        sources=probe.sources,
        signs=_signs(answers, complaints, probe, boot.version),
    )


# In the order of the probe.
_LOCKSMITHD, _BOOTC, _SYSUPDATE, _REBOOTMGR = range(4)
_STATUS = re.compile(r"[0-9]{1,3}")
_REBOOT = "systemctl reboot"
_PERMITTED = frozenset({"root", "sudo"})
_NOT_ASKED = UpdateStatus(UpdateOperation.NOT_ASKED)
_SHELL_HINT = (
    "The user's login shell must be a POSIX shell that runs commands over SSH; try: ssh -p {} {}@{}"
    " true"
)


def _signs(
    answers: Mapping[str, str], complaints: Mapping[str, str], probe: Probe, running: str
) -> tuple[Sign, ...]:
    if Source.ROLLBACK in probe.sources:
        sign = rollback_sign(answers, complaints, running=running, unwanted=probe.rollback)
        return (sign,)
    return host_signs(answers, complaints, probe.sources)


def _update_status(
    answers: Mapping[str, str], complaints: Mapping[str, str], probe: Probe
) -> UpdateStatus:
    if Source.UPDATE_ENGINE not in probe.sources:
        return _NOT_ASKED
    return parse_update_status(answers, complaints)


def parse_probe(host: Host, result: CommandResult, probe: Probe = USUAL_PROBE) -> HostObservation:
    """Return the facts, or why there are none. Never raises."""
    answers = split_sections(result.stdout)
    complaints = split_sections(result.stderr)
    if "end" not in answers:
        return _cut_off_answer(host, result, answers)
    boot_id = answers.get("boot-id", "").lower()
    if not _BOOT_ID.fullmatch(boot_id):
        # Without a boot ID no reboot could be proved.
        cause = last_line(complaints.get("boot-id", "")) or "it is not what a kernel prints"
        why = f"the boot ID cannot be read: {cause}"
        hint = f"{_BOOT_ID_FILE} must be readable for the SSH user."
        return ProbeFailure(host, ProbeFailureKind.GARBLED, why, hint)
    os_release = parse_assignments(answers.get("os-release", ""))
    running = running_version(os_release)
    wants_a_password = wants_password(answers.get("sudo-rules", ""), _REBOOT)
    may_reboot = answers.get("may-reboot", "") in _PERMITTED and not wants_a_password
    reboot_refusal = ""
    reboot_fix = ""
    if not may_reboot:
        problem = SudoProblem.PASSWORD if wants_a_password else _sudo_problem(answers, complaints)
        complaint = "" if wants_a_password else complaints.get("may-reboot", "")
        reboot_refusal = command_refusal(host.user, _REBOOT, problem, complaint)
        reboot_fix = sudo_fix(problem, host.user, f"/usr/bin/{_REBOOT}")
    update = _update_status(answers, complaints, probe)
    engine = unit_state(answers, complaints, "update-engine")
    return HostFacts(
        host=host,
        update=update,
        os_id=word(os_release.get("ID", "")),
        running_version=running,
        group=word(parse_assignments(answers.get("update-conf", "")).get("GROUP", "")),
        boot_id=boot_id,
        machine_id=machine_id(answers.get("machine-id", "")),
        locksmithd_active=_runs(answers, _LOCKSMITHD),
        zincati=zincati_strategy(answers.get("zincati", "")),
        reboots_itself=tuple(_reboots_itself(answers, os_release)),
        may_reboot=may_reboot,
        reboot_refusal=reboot_refusal,
        reboot_fix=reboot_fix,
        rollback_access=rollback_access(host.user, answers, complaints),
        inhibited_by=inhibition(answers.get("inhibitors", "")),
        shutdown_pending=pending_shutdown(answers.get("shutdown", "")),
        sources=probe.sources,
        signs=_signs(answers, complaints, probe, running),
        users=parse_logins(answers.get("users", "")),
        shows=shown_sources(answers.get("shows", ""), os_release, probe.sources),
        units=(engine, unit_state(answers, complaints, "locksmithd")),
        checks=update_checks(answers, complaints, update, engine),
    )


def _runs(answers: Mapping[str, str], number: int) -> bool:
    states = answers.get("units", "").split()
    return number < len(states) and states[number] in RUNNING


def _reboots_itself(
    answers: Mapping[str, str], os_release: Mapping[str, str]
) -> Iterator[SelfReboot]:
    if parse_assignments(answers.get("unattended-upgrades", "")).get("REBOOTS") == "true":
        yield SelfReboot.UNATTENDED_UPGRADES
    if _runs(answers, _BOOTC):
        yield SelfReboot.BOOTC
    # `systemd-sysupdate reboot` fails without this field, so its active timer does nothing on
    # Flatcar.
    if _runs(answers, _SYSUPDATE) and "IMAGE_VERSION" in os_release:
        yield SelfReboot.SYSUPDATE
    if _runs(answers, _REBOOTMGR) and _rebootmgr_strategy(answers.get("rebootmgr", "")) != "off":
        yield SelfReboot.REBOOTMGR


def _rebootmgr_strategy(text: str) -> str:
    strategy = ""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "strategy":
            strategy = value.strip()
    return strategy


def _sudo_problem(answers: Mapping[str, str], complaints: Mapping[str, str]) -> SudoProblem | None:
    status = answers.get("may-reboot", "").removeprefix("no").strip()
    exit_status = int(status) if _STATUS.fullmatch(status) else None
    return sudo_problem(complaints.get("may-reboot", ""), exit_status)


def _cut_off_answer(host: Host, result: CommandResult, answers: Mapping[str, str]) -> ProbeFailure:
    if result.exit_status is None:
        return ProbeFailure(
            host,
            ProbeFailureKind.UNREACHABLE,
            "the connection ended in the middle of the answer",
            "The host may be going down; try again.",
        )
    if answers:
        message = f"the answer was cut off after {excerpt(list(answers)[-1], 40)!r}"
    else:
        message = not_run(last_line(result.stderr) or last_line(result.stdout))
    return ProbeFailure(
        host,
        ProbeFailureKind.GARBLED,
        message,
        _SHELL_HINT.format(host.port, host.user, host.address),
    )
