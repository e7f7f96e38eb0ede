from collections.abc import Iterator

from rollout.gather.doctor.checks import Check, CheckName, failed, passed, warned
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
from rollout.model.rivals import SELF_REBOOTS, Rival
from rollout.model.text import capitalize
from rollout.model.update_checks import CheckState, UnitState, service_text
from rollout.wording import cause
from rollout.wording.nodes import check_trouble

_ANSWERS = frozenset({SourceAnswer.NEEDED, SourceAnswer.NOT_NEEDED})
_KINDS = {
    ProbeFailureKind.HOST_KEY: CheckName.HOST_KEY,
    ProbeFailureKind.AUTH: CheckName.USER,
    ProbeFailureKind.WRONG_HOST: CheckName.IDENTITY,
    ProbeFailureKind.UNREPORTED: CheckName.IDENTITY,
}
_ENGINE_FIXES = {
    EngineTrouble.DENIED: (
        "Allow the one command that asks it in /etc/sudoers.d/rollout: "
        "{user} ALL=(root) NOPASSWD: /usr/bin/update_engine_client -status"
    ),
    EngineTrouble.SILENT: (
        "On the host: systemctl status dbus update-engine; sudo systemctl restart update-engine"
    ),
}
# Flatcar's bus policy admits these users to update_engine.
_ADMITTED = ("root", DEFAULT_SSH_USER)
# By the unit whose checks fail, without a suffix.
_CHECK_FIXES = {
    "update-engine": (
        "On the host: journalctl -u update-engine. Then check its proxy, and SERVER in"
        " /etc/flatcar/update.conf, and try again: rollout check-update"
    ),
    "rpm-ostreed-automatic": (
        "On the host: journalctl -u rpm-ostreed-automatic.service. Then check its proxy and its"
        " remote, and try again: sudo rpm-ostree upgrade --check"
    ),
    "bootc-fetch-apply-updates": (
        "On the host: journalctl -u bootc-fetch-apply-updates.service. Then check its proxy and its"
        " registry, and try again: sudo bootc upgrade --check"
    ),
}
_DISABLED_FIX = (
    "Remove enabled = false from [updates] in /etc/zincati/config.d, then: sudo systemctl restart"
    " zincati"
)
_ENGINE_FIX = "Try on the host: update_engine_client -status"
_FIXES = {
    Source.ANNOTATION: (
        f"Set it to true, or remove it: kubectl annotate node {{node}} {marks.REBOOT_NEEDED}-"
    ),
    Source.REBOOT_REQUIRED: "Try on the host: ls -l /run/reboot-required",
    Source.RPM_OSTREE: (
        "Try on the host: rpm-ostree status --json. If the host has no rpm-ostree, drop the source."
    ),
    Source.BOOTC: (
        f"Try on the host: sudo -n {BOOTC_CALL}. If sudo refuses, allow this one command in"
        f" /etc/sudoers.d/rollout: {{user}} ALL=(root) NOPASSWD: /usr/bin/{BOOTC_CALL}"
    ),
    Source.COMMAND: "Run it on the host as the SSH user: it has to end within 15 s, with 0 or 1.",
}


def host_checks(
    node: str,
    observation: HostObservation | None,
    standing: UpdateStanding | None = None,
    *,
    own_command: bool = False,
) -> Iterator[Check]:
    """`standing` compares the host with others, None if it waits for its reboot.

    `own_command`: the operator's own command reboots it.
    """
    if observation is None:
        fix = "Add it to the inventory, or drop --inventory."
        yield failed(CheckName.SSH, node, cause(NoHost()), fix)
    elif isinstance(observation, ProbeFailure):
        fix = observation.hint or "Try to `ssh` to it manually."
        yield failed(_KINDS.get(observation.kind, CheckName.SSH), node, observation.message, fix)
    else:
        yield from _answered(node, observation, own_command=own_command)
        yield from _units(node, observation)
        if standing:
            yield from _update_check(node, standing)


def _answered(node: str, facts: HostFacts, *, own_command: bool) -> Iterator[Check]:
    host = facts.host
    yield passed(CheckName.SSH, node, f"{host.address}:{host.port} answers")
    yield passed(CheckName.HOST_KEY, node, "the host's key is the one on file")
    yield passed(CheckName.USER, node, f"{host.user} can log in")
    yield passed(CheckName.IDENTITY, node, f"it is the Node's host: its boot ID is {facts.boot_id}")
    yield _sudo(node, facts, own_command=own_command)
    yield _shutdown(node, facts)
    if facts.zincati:
        yield _zincati(node, facts)
    for rival in facts.reboots_itself:
        yield failed(CheckName.RIVAL, node, *SELF_REBOOTS[rival])
    yield from _sources(node, facts, own_command=own_command)


def _sudo(node: str, facts: HostFacts, *, own_command: bool) -> Check:
    if own_command and not facts.may_reboot:
        return passed(
            CheckName.SUDO, node, "it is rebooted by a reboot.command, which cannot be tested"
        )
    if facts.may_reboot:
        return passed(CheckName.SUDO, node, f"{facts.host.user} may reboot")
    return failed(CheckName.SUDO, node, facts.reboot_refusal, facts.reboot_fix)


def _shutdown(node: str, facts: HostFacts) -> Check:
    name = CheckName.SHUTDOWN
    if facts.inhibited_by:
        fix = "See systemd-inhibit --list there; end what holds the lock, or wait for it."
        return failed(name, node, cause(ShutdownInhibited(facts.inhibited_by)), fix)
    if facts.shutdown_pending:
        return failed(
            name,
            node,
            facts.shutdown_pending,
            "Cancel it there, if it is not wanted: sudo shutdown -c",
        )
    return passed(name, node, "nothing blocks its shutdown, and none is scheduled")


def _advice_without_engine(facts: HostFacts) -> str:
    advice = capitalize(how_to_ask(facts))
    if not advice:
        advice = "Set what reports that it needs a reboot: --set detect.sources=SOURCE"
    return f"{advice}. Or leave it out with --exclude."


def _source_fix(source: Source, node: str, facts: HostFacts) -> str:
    if source is not Source.UPDATE_ENGINE:
        return _FIXES[source].format(node=node, user=facts.host.user)
    if facts.lacks_engine:
        return _advice_without_engine(facts)
    fix = _ENGINE_FIXES.get(facts.update.trouble, _ENGINE_FIX).format(user=facts.host.user)
    if facts.update.trouble is EngineTrouble.DENIED and facts.host.user not in _ADMITTED:
        return f"{fix}; or connect as {DEFAULT_SSH_USER}, whom its bus admits"
    return fix


def _sources(node: str, facts: HostFacts, *, own_command: bool) -> Iterator[Check]:
    # A source that the host lacks is no failure if the others have answered.
    is_judged = not facts.detection.unanswered
    engine, _ = facts.units
    for sign in facts.detection.signs:
        if sign.source is Source.UPDATE_ENGINE and engine.check_state.is_off:
            # Only a running engine can answer. The check of its unit names the fix.
            continue
        name = CheckName.UPDATE_STATUS if sign.source is Source.UPDATE_ENGINE else CheckName.DETECT
        message = f"{sign.source}: {sign.detail or sign.answer}"
        if sign.source is Source.UPDATE_ENGINE and sign.answer in _ANSWERS:
            message = f"update_engine answers {facts.update.operation}"
        if sign.blocked and not own_command:
            yield warned(
                name, node, f"{sign.source}: {sign.blocked}", "Until then the node is left out."
            )
        elif sign.answer in _ANSWERS or (sign.answer is SourceAnswer.ABSENT and is_judged):
            yield passed(name, node, message)
        else:
            yield failed(name, node, sign.detail, _source_fix(sign.source, node, facts))


def _units(node: str, facts: HostFacts) -> Iterator[Check]:
    host = facts.host
    engine, locksmithd = facts.units
    if not engine.known:
        message = f"systemd reported nothing about its units: {engine.problem or 'no reason given'}"
        fix = f"Try: ssh -p {host.port} {host.user}@{host.address} systemctl status update-engine"
        yield warned(CheckName.UPDATE_ENGINE, node, message, fix)
        return
    for sign in facts.detection.signs:
        if sign.source is Source.UPDATE_ENGINE and sign.answer is not SourceAnswer.ABSENT:
            yield _update_engine(node, facts, engine)
            break
    yield _locksmithd(node, locksmithd)


def _update_engine(node: str, facts: HostFacts, unit: UnitState) -> Check:
    name = CheckName.UPDATE_ENGINE
    if unit.missing:
        return failed(
            name, node, "the host has no unit update-engine", _advice_without_engine(facts)
        )
    if unit.masked:
        # `unmask` does not see a mask in /run, and `unmask --runtime` none in /etc.
        runtime = "" if unit.stays_masked else " --runtime"
        fix = (
            f"sudo systemctl unmask{runtime} update-engine && sudo systemctl enable --now"
            " update-engine"
        )
        return failed(name, node, "update-engine is masked: no update will ever be staged", fix)
    if not unit.runs:
        return failed(
            name,
            node,
            service_text("update-engine", unit.check_state),
            "sudo systemctl enable --now update-engine",
        )
    if not unit.stays_on:
        fix = "sudo systemctl enable update-engine"
        return warned(
            name,
            node,
            "update-engine runs, but is not enabled: it will not start after the reboot",
            fix,
        )
    return passed(name, node, "update-engine is unmasked, enabled and running")


def _update_check(node: str, standing: UpdateStanding) -> Iterator[Check]:
    name = CheckName.UPDATE_CHECK
    unit = standing.check_unit
    trouble = check_trouble(standing, None)
    has_failed_check = standing.checks is CheckState.FAILED and unit.endswith(".service")
    if standing.checks is CheckState.STALE or has_failed_check:
        fix = _CHECK_FIXES[unit.partition(".")[0]]
        yield warned(name, node, f"it does not get its updates: {trouble}", fix)
    elif standing.checks.is_off and unit != CheckName.UPDATE_ENGINE:
        fix = f"sudo systemctl unmask {unit} && sudo systemctl enable --now {unit}"
        if standing.checks is CheckState.DISABLED:
            fix = _DISABLED_FIX
        yield warned(name, node, f"{trouble}: no update will be staged", fix)
    elif standing.checks is CheckState.WORKING:
        when = f", most recently at {standing.last_checked}" if standing.last_checked else ""
        yield passed(name, node, f"{unit} checks for updates{when}")
    is_updating = standing.state is UpdateState.UPDATING
    if standing.behind and not (is_updating or standing.checks.is_trouble):
        message = f"its version is older than {standing.newest_version}, which the cluster has"
        fix = "On the host, see why nothing has staged it: systemctl list-timers"
        if unit == CheckName.UPDATE_ENGINE:
            fix = "See whether the update server offers it now: rollout check-update"
        yield warned(name, node, message, fix)


def _locksmithd(node: str, unit: UnitState) -> Check:
    name = CheckName.LOCKSMITHD
    fix = "sudo systemctl mask --now locksmithd"
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


def _zincati(node: str, facts: HostFacts) -> Check:
    if not facts.zincati_reboots:
        return passed(
            CheckName.ZINCATI, node, "Zincati asks a FleetLock server before it reboots the host"
        )
    fix = (
        'Make it use rollout fleetlock (strategy = "fleet_lock"), or: sudo systemctl mask --now'
        " zincati"
    )
    message = cause(RivalOnHost(Rival.ZINCATI, facts.zincati))
    return failed(CheckName.ZINCATI, node, message, fix)
