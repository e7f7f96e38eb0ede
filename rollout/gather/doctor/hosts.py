from collections.abc import Iterator
from typing import assert_never

from rollout.gather.doctor.checks import NO_FIX, Check, CheckName, Fix, failed, passed, warned
from rollout.gather.hosts.probe_command import BOOTC_CALL
from rollout.model import marks
from rollout.model.detection import Source, SourceAnswer
from rollout.model.finding import NoHost, RivalOnHost, ShutdownInhibited
from rollout.model.host import (
    DEFAULT_SSH_USER,
    EngineTrouble,
    HostFacts,
    HostObservation,
    ProbeFailure,
    ProbeFailureKind,
    UpdateStanding,
    UpdateState,
)
from rollout.model.node_marks import how_to_ask
from rollout.model.rivals import SELF_REBOOTS, STOPPED_BY_SETTING, Rival
from rollout.model.text import capitalize
from rollout.model.update_checks import UPDATE_ENGINE_UNIT, CheckState, UnitState, service_text
from rollout.wording import cause_of
from rollout.wording.nodes import check_trouble

_ANSWERS = frozenset({SourceAnswer.NEEDED, SourceAnswer.NOT_NEEDED})
_CHECK_BY_FAILURE = {
    ProbeFailureKind.HOST_KEY: CheckName.HOST_KEY,
    ProbeFailureKind.AUTH: CheckName.USER,
    ProbeFailureKind.WRONG_HOST: CheckName.IDENTITY,
    ProbeFailureKind.UNREPORTED: CheckName.IDENTITY,
}
# By Flatcar's bus policy.
_USERS_WHO_MAY_ASK_ENGINE = ("root", DEFAULT_SSH_USER)
_ENGINE_CALL = "update_engine_client -status"
_ENABLE_ENGINE = "sudo systemctl enable --now update-engine"
# By failing unit. Zincati does not tell when it checked.
_CHECK_FIXES = {
    "update-engine": Fix.with_commands(
        "Read its log on the host, check its proxy and SERVER in /etc/flatcar/update.conf there,"
        " and try again",
        "journalctl -u update-engine",
        "rollout check-update",
    ),
    "rpm-ostreed-automatic": Fix.with_commands(
        "On the host, read its log, check its proxy and its remote, and try again",
        "journalctl -u rpm-ostreed-automatic.service",
        "sudo rpm-ostree upgrade --check",
    ),
    "bootc-fetch-apply-updates": Fix.with_commands(
        "On the host, read its log, check its proxy and its registry, and try again",
        "journalctl -u bootc-fetch-apply-updates.service",
        "sudo bootc upgrade --check",
    ),
}
_DISABLED_FIX = Fix.with_commands(
    "Remove enabled = false from [updates] in /etc/zincati/config.d, and run",
    "sudo systemctl restart zincati",
)


def host_checks(
    node: str,
    observation: HostObservation | None,
    standing: UpdateStanding | None = None,
    *,
    own_command: bool = False,
) -> Iterator[Check]:
    """Check a host by its answer; without `observation` it is unknown.

    `standing` is None while the host waits for its reboot. `own_command`: the operator's command
    reboots it.
    """
    if observation is None:
        fix = Fix("Add it to the inventory, or drop --inventory.")
        yield failed(CheckName.SSH, node, cause_of(NoHost()), fix)
    elif isinstance(observation, ProbeFailure):
        fix = Fix(observation.hint or "Try to `ssh` to it manually.")
        name = _CHECK_BY_FAILURE.get(observation.kind, CheckName.SSH)
        yield failed(name, node, observation.message, fix)
    else:
        yield from _checks_of_answer(node, observation, own_command=own_command)
        yield from _unit_checks(node, observation)
        if standing:
            yield from _update_check_checks(node, standing)
            yield from _version_checks(node, standing)


def _checks_of_answer(node: str, facts: HostFacts, *, own_command: bool) -> Iterator[Check]:
    host = facts.host
    yield passed(CheckName.SSH, node, f"{host.address}:{host.port} responds")
    yield passed(CheckName.HOST_KEY, node, "the host presents the key in known_hosts")
    yield passed(CheckName.USER, node, f"{host.user} can log in")
    yield passed(CheckName.IDENTITY, node, f"it is the Node's host: its boot ID is {facts.boot_id}")
    yield _sudo_check(node, facts, own_command=own_command)
    yield from _rollback_checks(node, facts)
    yield _shutdown_check(node, facts)
    if facts.zincati_strategy:
        yield _zincati_check(node, facts)
    for rival in facts.reboots_itself:
        message, how_to_stop = SELF_REBOOTS[rival]
        # Otherwise a command.
        is_advice = rival in STOPPED_BY_SETTING
        fix = Fix(how_to_stop) if is_advice else Fix(commands=(how_to_stop,))
        yield failed(CheckName.RIVAL, node, message, fix)
    yield from _source_checks(node, facts, own_command=own_command)


def _sudo_check(node: str, facts: HostFacts, *, own_command: bool) -> Check:
    if facts.may_reboot:
        return passed(CheckName.SUDO, node, f"{facts.host.user} is allowed to reboot it")
    if own_command:
        return passed(CheckName.SUDO, node, "reboot.command reboots it, and cannot be tested")
    return failed(CheckName.SUDO, node, facts.reboot_refusal, Fix(facts.reboot_fix))


def _rollback_checks(node: str, facts: HostFacts) -> Iterator[Check]:
    access = facts.rollback_access
    if access is None:
        # It cannot be rolled back.
        return
    if access.refusal:
        message = f"rollout rollback would leave it out: {access.refusal}"
        yield warned(CheckName.ROLLBACK, node, message, Fix(access.fix))
    else:
        yield passed(CheckName.ROLLBACK, node, f"{facts.host.user} is allowed to roll it back")


def _shutdown_check(node: str, facts: HostFacts) -> Check:
    name = CheckName.SHUTDOWN
    if facts.inhibited_by:
        fix = Fix("See systemd-inhibit --list there; end what holds the lock, or wait for it.")
        return failed(name, node, cause_of(ShutdownInhibited(facts.inhibited_by)), fix)
    if facts.scheduled_shutdown:
        fix = Fix.with_commands("Cancel it there, if it is not wanted", "sudo shutdown -c")
        return failed(name, node, facts.scheduled_shutdown, fix)
    return passed(name, node, "nothing blocks its shutdown, and none is scheduled")


def _fix_without_engine(facts: HostFacts) -> Fix:
    advice = capitalize(how_to_ask(facts))
    if not advice:
        advice = (
            "Specify the source that reports when it needs a reboot: --set detect.sources=SOURCE"
        )
    return Fix(f"{advice}. Or leave it out with --exclude.")


def _source_fix(source: Source, node: str, facts: HostFacts) -> Fix:
    match source:
        case Source.UPDATE_ENGINE:
            fix = _engine_fix(facts)
        case Source.ANNOTATION:
            command = f"kubectl annotate node {node} {marks.REBOOT_NEEDED}-"
            fix = Fix.with_commands("Set it to true, or remove it", command)
        case Source.REBOOT_REQUIRED:
            fix = Fix.with_commands("Try on the host", "ls -l /run/reboot-required")
        case Source.RPM_OSTREE:
            text = "Drop the source if the host has no rpm-ostree; otherwise try on the host"
            fix = Fix.with_commands(text, "rpm-ostree status --json")
        case Source.BOOTC:
            rule = f"{facts.host.user} ALL=(root) NOPASSWD: /usr/bin/{BOOTC_CALL}"
            text = (
                f"If sudo refuses, allow this one command in /etc/sudoers.d/rollout: {rule}. Then"
                " try on the host"
            )
            fix = Fix.with_commands(text, f"sudo -n {BOOTC_CALL}")
        case Source.COMMAND:
            fix = Fix(
                "Run it on the host as the SSH user: it must end within 15 s, with exit status 0 or"
                " 1."
            )
        case Source.ROLLBACK:
            # Only a rollback asks it.
            fix = NO_FIX
        case _:
            assert_never(source)
    return fix


def _engine_fix(facts: HostFacts) -> Fix:
    if facts.lacks_engine:
        return _fix_without_engine(facts)
    user = facts.host.user
    match facts.update.trouble:
        case EngineTrouble.DENIED:
            rule = f"{user} ALL=(root) NOPASSWD: /usr/bin/{_ENGINE_CALL}"
            text = f"Allow the one command that asks it in /etc/sudoers.d/rollout: {rule}"
            if user not in _USERS_WHO_MAY_ASK_ENGINE:
                text += f"; or connect as {DEFAULT_SSH_USER}, which its bus policy allows"
            return Fix(text)
        case EngineTrouble.SILENT:
            look = "systemctl status dbus update-engine"
            return Fix.with_commands(
                "Run on the host", look, "sudo systemctl restart update-engine"
            )
        case _:
            return Fix.with_commands("Try on the host", _ENGINE_CALL)


def _source_checks(node: str, facts: HostFacts, *, own_command: bool) -> Iterator[Check]:
    # It may be missing if the others have answered.
    may_be_absent = not facts.detection.unanswered
    for sign in facts.detection.signs:
        is_engine = sign.source is Source.UPDATE_ENGINE
        if is_engine and facts.engine_unit.service_state.is_off:
            # `_engine_check` names the fix.
            continue
        name = CheckName.UPDATE_STATUS if is_engine else CheckName.DETECT
        message = f"{sign.source}: {sign.detail or sign.answer}"
        if is_engine and sign.answer in _ANSWERS:
            message = f"update_engine reports {facts.update.operation}"
        is_harmlessly_absent = sign.answer is SourceAnswer.ABSENT and may_be_absent
        # A plain reboot is not enough.
        if sign.blocked and not own_command:
            fix = Fix("Until then the node is left out.")
            yield warned(name, node, f"{sign.source}: {sign.blocked}", fix)
        elif sign.answer in _ANSWERS or is_harmlessly_absent:
            yield passed(name, node, message)
        else:
            yield failed(name, node, sign.detail, _source_fix(sign.source, node, facts))


def _unit_checks(node: str, facts: HostFacts) -> Iterator[Check]:
    host = facts.host
    engine = facts.engine_unit
    if not engine.known:
        message = f"systemd reported nothing about its units: {engine.problem or 'no reason given'}"
        command = f"ssh -p {host.port} {host.user}@{host.address} systemctl status update-engine"
        fix = Fix.with_commands("Try", command)
        yield warned(CheckName.UPDATE_ENGINE, node, message, fix)
        return
    has_engine = any(
        sign.source is Source.UPDATE_ENGINE and sign.answer is not SourceAnswer.ABSENT
        for sign in facts.detection.signs
    )
    if has_engine:
        yield _engine_check(node, facts, engine)
    yield _locksmithd_check(node, facts.locksmithd_unit)


def _engine_check(node: str, facts: HostFacts, unit: UnitState) -> Check:
    name = CheckName.UPDATE_ENGINE
    if unit.missing:
        fix = _fix_without_engine(facts)
        return failed(name, node, "the host has no unit update-engine", fix)
    if unit.masked:
        # `unmask` removes masks only in /etc, with `--runtime` only in /run.
        runtime = "" if unit.stays_masked else " --runtime"
        unmask = f"sudo systemctl unmask{runtime} update-engine"
        fix = Fix(commands=(f"{unmask} && {_ENABLE_ENGINE}",))
        return failed(name, node, "update-engine is masked: no update will ever be staged", fix)
    if not unit.runs:
        message = service_text("update-engine", unit.service_state)
        return failed(name, node, message, Fix(commands=(_ENABLE_ENGINE,)))
    if not unit.stays_on:
        fix = Fix(commands=("sudo systemctl enable update-engine",))
        message = "update-engine runs, but is not enabled: it will not start after the reboot"
        return warned(name, node, message, fix)
    return passed(name, node, "update-engine is unmasked, enabled and running")


def _update_check_checks(node: str, standing: UpdateStanding) -> Iterator[Check]:
    name = CheckName.UPDATE_CHECK
    unit = standing.check_unit
    state = standing.checks
    trouble = check_trouble(standing, None)
    # A service stands here only if its timer runs.
    has_failed_check = state is CheckState.FAILED and unit.endswith(".service")
    if state is CheckState.STALE or has_failed_check:
        fix = _CHECK_FIXES[unit.partition(".")[0]]
        yield warned(name, node, f"it does not get updates: {trouble}", fix)
    elif state.is_off and unit == UPDATE_ENGINE_UNIT:
        return
    elif state.is_off:
        command = f"sudo systemctl unmask {unit} && sudo systemctl enable --now {unit}"
        fix = Fix(commands=(command,))
        if state is CheckState.DISABLED:
            fix = _DISABLED_FIX
        yield warned(name, node, f"{trouble}: no update will be staged", fix)
    elif state is CheckState.WORKING:
        when = f", most recently at {standing.last_checked}" if standing.last_checked else ""
        yield passed(name, node, f"{unit} checks for updates{when}")


def _version_checks(node: str, standing: UpdateStanding) -> Iterator[Check]:
    is_updating = standing.state is UpdateState.UPDATING
    if not standing.behind or is_updating or standing.checks.is_trouble:
        return
    message = f"its version is older than {standing.newest_version}, the newest in the cluster"
    fix = Fix.with_commands("On the host, see why nothing has staged it", "systemctl list-timers")
    if standing.check_unit == UPDATE_ENGINE_UNIT:
        text = "See whether the update server offers it now"
        fix = Fix.with_commands(text, "rollout check-update")
    yield warned(CheckName.UPDATE_CHECK, node, message, fix)


def _locksmithd_check(node: str, unit: UnitState) -> Check:
    name = CheckName.LOCKSMITHD
    fix = Fix(commands=("sudo systemctl mask --now locksmithd",))
    if unit.missing:
        return passed(name, node, "the host has no locksmithd")
    if unit.runs:
        return failed(name, node, "locksmithd runs, and reboots the host by itself", fix)
    if not unit.stays_masked:
        how = "masked until the next boot only" if unit.masked else "not masked"
        return warned(
            name, node, f"locksmithd is stopped, but {how}: it may start with the next boot", fix
        )
    return passed(name, node, "locksmithd is masked and stopped")


def _zincati_check(node: str, facts: HostFacts) -> Check:
    if not facts.zincati_reboots:
        return passed(
            CheckName.ZINCATI, node, "Zincati asks a FleetLock server before it reboots the host"
        )
    fix = Fix.with_commands(
        'Make it use rollout fleetlock (strategy = "fleet_lock"), or stop it on the host',
        "sudo systemctl mask --now zincati",
    )
    message = cause_of(RivalOnHost(Rival.ZINCATI, facts.zincati_strategy))
    return failed(CheckName.ZINCATI, node, message, fix)
