import re
from collections.abc import Mapping
from datetime import UTC, datetime

from rollout.gather.hosts.answer import Sections, parse_assignments, word_or_empty
from rollout.gather.hosts.shutdown import has_disabled_updates
from rollout.model.host import UpdateOperation, UpdateStatus
from rollout.model.tool_output import last_line
from rollout.model.update_checks import (
    NO_CHECKS,
    UPDATE_ENGINE_UNIT,
    CheckState,
    UnitState,
    UpdateChecks,
)

# Until 9999, Python's last year.
_EPOCH = re.compile(r"[0-9]{1,11}")
_MICROSECONDS = re.compile(r"[0-9]{1,18}")
_UPTIME = re.compile(r"^([0-9]{1,11})(?:\.[0-9]+)? [0-9.]+$", re.MULTILINE)
# Asked for UTC: other zones' names are ambiguous.
_SYSTEMD_TIME = "%a %Y-%m-%d %H:%M:%S UTC"
_BOOTC_UNIT = "bootc-fetch-apply-updates"
_RPM_OSTREE_UNIT = "rpm-ostreed-automatic"


def parse_epoch_time(text: str) -> datetime | None:
    """In seconds since 1970; None for 0 or another text."""
    seconds = int(text) if _EPOCH.fullmatch(text) else 0
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def parse_unit_state(stdout: Sections, stderr: Sections, name: str) -> UnitState:
    properties = _properties(stdout.get(name, ""))
    # In microseconds after the boot; 0 for never.
    active_after = properties.get("ActiveEnterTimestampMonotonic", "")
    was_active = _MICROSECONDS.fullmatch(active_after) is not None and int(active_after) > 0
    return UnitState(
        load=word_or_empty(properties.get("LoadState", "")),
        active=word_or_empty(properties.get("ActiveState", "")),
        file=word_or_empty(properties.get("UnitFileState", "")),
        wanted=bool(properties.get("WantedBy")),
        problem=last_line(stderr.get(name, "")),
        active_after_boot_seconds=int(active_after) / 1e6 if was_active else None,
    )


def parse_update_checks(
    stdout: Sections,
    stderr: Sections,
    update: UpdateStatus,
    engine: UnitState,
) -> UpdateChecks:
    """By update_engine, else bootc, else rpm-ostree."""
    if engine.exists and update.operation is not UpdateOperation.NOT_ASKED:
        return _engine_checks(stdout, update, engine)
    # Without bootc's timer, rpm-ostree's may stage updates (docs/clusters.md).
    if parse_unit_state(stdout, stderr, _BOOTC_UNIT).runs:
        return _timer_checks(stdout, stderr, _BOOTC_UNIT)
    return _rpm_ostree_checks(stdout, stderr)


def _engine_checks(stdout: Sections, update: UpdateStatus, engine: UnitState) -> UpdateChecks:
    last = update.last_checked
    is_unknown = update.operation is UpdateOperation.UNKNOWN
    # A staged update stops the engine's checks until the reboot.
    if update.needs_reboot or is_unknown:
        seconds_without_check = None
    elif last is None:
        # It has not checked since it started.
        seconds_without_check = _seconds_running(engine, _uptime_seconds(stdout))
    else:
        seconds_without_check = _seconds_between(last, _host_time(stdout))
    return UpdateChecks(
        UPDATE_ENGINE_UNIT, engine, last=last, silence_seconds=seconds_without_check
    )


def _rpm_ostree_checks(stdout: Sections, stderr: Sections) -> UpdateChecks:
    zincati = parse_unit_state(stdout, stderr, "zincati-unit")
    timer = parse_unit_state(stdout, stderr, _RPM_OSTREE_UNIT)
    uses_timer = timer.runs or not zincati.exists
    if timer.exists and uses_timer:
        return _timer_checks(stdout, stderr, _RPM_OSTREE_UNIT)
    if not zincati.exists:
        return NO_CHECKS
    is_disabled = has_disabled_updates(stdout.get("zincati", ""))
    return UpdateChecks("zincati", zincati, is_disabled=is_disabled)


def _timer_checks(stdout: Sections, stderr: Sections, name: str) -> UpdateChecks:
    timer = parse_unit_state(stdout, stderr, name)
    service = parse_unit_state(stdout, stderr, f"{name}-service")
    if timer.runs and service.service_state is CheckState.FAILED:
        # The timer only shows when a check began.
        return UpdateChecks(f"{name}.service", service)
    last = _last_trigger_time(stdout.get(name, ""))
    return UpdateChecks(
        f"{name}.timer",
        timer,
        last=last,
        silence_seconds=_seconds_between(last, _host_time(stdout)),
    )


def _host_time(stdout: Sections) -> datetime | None:
    return parse_epoch_time(parse_assignments(stdout.get("clock", "")).get("NOW", ""))


def _properties(section: str) -> Mapping[str, str]:
    lines = (line.partition("=") for line in section.splitlines())
    return {key: value.strip() for key, _, value in lines}


def _seconds_between(since: datetime | None, until: datetime | None) -> float | None:
    return (until - since).total_seconds() if since and until else None


def _uptime_seconds(stdout: Sections) -> int | None:
    uptime = _UPTIME.search(stdout.get("clock", ""))
    return int(uptime[1]) if uptime else None


def _seconds_running(unit: UnitState, uptime_seconds: int | None) -> float | None:
    if uptime_seconds is None or unit.active_after_boot_seconds is None or not unit.runs:
        return None
    return uptime_seconds - unit.active_after_boot_seconds


def _last_trigger_time(section: str) -> datetime | None:
    text = _properties(section).get("LastTriggerUSec", "")
    try:
        return datetime.strptime(text, _SYSTEMD_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
