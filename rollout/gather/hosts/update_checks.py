import re
from collections.abc import Mapping
from datetime import UTC, datetime

from rollout.gather.hosts.answer import parse_assignments, word
from rollout.gather.hosts.shutdown import has_disabled_updates
from rollout.model.host import UpdateOperation, UpdateStatus
from rollout.model.tool_output import last_line
from rollout.model.update_checks import NO_CHECKS, CheckState, UnitState, UpdateChecks

# The latest time that Python has.
_EPOCH = re.compile(r"[0-9]{1,11}")
_MICROSECONDS = re.compile(r"[0-9]{1,18}")
_UPTIME = re.compile(r"^([0-9]{1,11})(?:\.[0-9]+)? [0-9.]+$", re.MULTILINE)
# The probe asks for UTC. Names of other zones are ambiguous.
_SYSTEMD_TIME = "%a %Y-%m-%d %H:%M:%S UTC"
# Units, a timer and its service each.
_BOOTC = "bootc-fetch-apply-updates"
_RPM_OSTREE = "rpm-ostreed-automatic"


def epoch_time(text: str) -> datetime | None:
    """Return None for 0, or if the text is no number."""
    seconds = int(text) if _EPOCH.fullmatch(text) else 0
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def unit_state(answers: Mapping[str, str], complaints: Mapping[str, str], name: str) -> UnitState:
    properties = _properties(answers.get(name, ""))
    began = properties.get("ActiveEnterTimestampMonotonic", "")
    has_begun = _MICROSECONDS.fullmatch(began) is not None and int(began) > 0
    return UnitState(
        load=word(properties.get("LoadState", "")),
        active=word(properties.get("ActiveState", "")),
        file=word(properties.get("UnitFileState", "")),
        wanted=bool(properties.get("WantedBy")),
        problem=last_line(complaints.get(name, "")),
        since_boot=int(began) / 1e6 if has_begun else None,
    )


def update_checks(
    answers: Mapping[str, str],
    complaints: Mapping[str, str],
    update: UpdateStatus,
    engine: UnitState,
) -> UpdateChecks:
    """Return the checks of update_engine, else of the service that drives bootc or rpm-ostree."""
    if engine.exists and update.operation is not UpdateOperation.NOT_ASKED:
        return _of_engine(answers, update, engine)
    # If bootc's timer is off, another one may fetch its images, as docs/clusters.md recommends.
    if unit_state(answers, complaints, _BOOTC).runs:
        return _of_timer(answers, complaints, _BOOTC)
    return _of_rpm_ostree(answers, complaints)


def _of_engine(answers: Mapping[str, str], update: UpdateStatus, engine: UnitState) -> UpdateChecks:
    last = update.last_checked
    # An engine with a staged update checks again only after the reboot.
    if update.needs_reboot or update.operation is UpdateOperation.UNKNOWN:
        silence = None
    elif last is None:
        silence = _seconds_of_run(engine, answers.get("clock", ""))
    else:
        silence = _seconds_between(last, _now(answers))
    return UpdateChecks("update-engine", engine, last=last, silence=silence)


def _of_rpm_ostree(answers: Mapping[str, str], complaints: Mapping[str, str]) -> UpdateChecks:
    zincati = unit_state(answers, complaints, "zincati-unit")
    timer = unit_state(answers, complaints, _RPM_OSTREE)
    if timer.exists and (timer.runs or not zincati.exists):
        return _of_timer(answers, complaints, _RPM_OSTREE)
    if not zincati.exists:
        return NO_CHECKS
    is_disabled = has_disabled_updates(answers.get("zincati", ""))
    return UpdateChecks("zincati", zincati, is_disabled=is_disabled)


def _of_timer(answers: Mapping[str, str], complaints: Mapping[str, str], name: str) -> UpdateChecks:
    timer = unit_state(answers, complaints, name)
    service = unit_state(answers, complaints, f"{name}-service")
    if timer.runs and service.check_state is CheckState.FAILED:
        # The timer shows when a check began, even if the check failed.
        return UpdateChecks(f"{name}.service", service)
    last = _systemd_time(answers.get(name, ""))
    return UpdateChecks(
        f"{name}.timer", timer, last=last, silence=_seconds_between(last, _now(answers))
    )


def _now(answers: Mapping[str, str]) -> datetime | None:
    """Return the time of the host's clock."""
    return epoch_time(parse_assignments(answers.get("clock", "")).get("NOW", ""))


def _properties(section: str) -> Mapping[str, str]:
    lines = (line.partition("=") for line in section.splitlines())
    return {key: value.strip() for key, _, value in lines}


def _seconds_between(since: datetime | None, until: datetime | None) -> float | None:
    return (until - since).total_seconds() if since and until else None


def _seconds_of_run(unit: UnitState, clock: str) -> float | None:
    uptime = _UPTIME.search(clock)
    if uptime is None or unit.since_boot is None or not unit.runs:
        return None
    return int(uptime[1]) - unit.since_boot


def _systemd_time(section: str) -> datetime | None:
    text = _properties(section).get("LastTriggerUSec", "")
    try:
        return datetime.strptime(text, _SYSTEMD_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
