"""What `rollout doctor` asks of a host beyond the probe: a constant command, and the pure parser of its answer."""

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from rollout.errors import SshError
from rollout.gather.hosts.answer import complaint, sections
from rollout.gather.hosts.probe_command import MARKER
from rollout.model.host import Host
from rollout.model.text import excerpt
from rollout.ports import Clock, CommandResult, HostExecutor

_SHOWN = "systemctl show -p LoadState -p ActiveState -p UnitFileState -p WantedBy"

DOCTOR_COMMAND = rf"""
mark() {{ printf '\n{MARKER} %s\n' "$1"; printf '\n{MARKER} %s\n' "$1" >&2; }}
mark update-engine; {_SHOWN} update-engine.service
mark locksmithd; {_SHOWN} locksmithd.service
mark clock; date +%s
mark end
exit 0
""".strip()

_PROPERTY = re.compile(r"(LoadState|ActiveState|UnitFileState)=([a-z-]*)|(WantedBy)=(.*)")
_SECONDS = re.compile(r"[0-9]{1,12}")
_ON = frozenset({"active", "activating", "reloading"})


@dataclass(frozen=True, slots=True)
class UnitState:
    """A systemd unit; each state is systemd's own word, empty where systemd did not say.

    `wanted` is whether another unit, a boot's target as a rule, starts it: a distribution may have it so by links of
    its own in /usr, and of a unit like that systemd says that it is disabled.
    """

    load: str = ""
    active: str = ""
    file: str = ""
    wanted: bool = False

    @property
    def masked(self) -> bool:
        """Whether nothing can start it."""
        return "masked" in (self.load, self.file) or self.file == "masked-runtime"

    @property
    def stays_masked(self) -> bool:
        """Whether nothing can start it after the next boot either: a mask may be in /run, which is gone then."""
        return self.masked and self.file != "masked-runtime"

    @property
    def stays_on(self) -> bool:
        """Whether the next boot starts it, as far as systemd said."""
        return self.wanted or self.file != "disabled"

    @property
    def missing(self) -> bool:
        """Whether the host has no such unit."""
        return self.load == "not-found"

    @property
    def runs(self) -> bool:
        """Whether it runs, or is about to."""
        return self.active in _ON

    @property
    def known(self) -> bool:
        """Whether systemd said anything of it."""
        return bool(self.load and self.active)


@dataclass(frozen=True, slots=True)
class HostHealth:
    """A host's units and clock (seconds since the epoch, None where it did not tell); `problem` is why not."""

    update_engine: UnitState = UnitState()
    locksmithd: UnitState = UnitState()
    clock: int | None = None
    problem: str = ""


def parse_health(result: CommandResult) -> HostHealth:
    """Return what the host said, as far as it can be understood. Never raises."""
    answers, complaints = sections(result.stdout), sections(result.stderr)
    if "end" not in answers:
        output = excerpt(result.stderr) or excerpt(result.stdout) or "nothing"
        return HostHealth(problem=f"the answer was cut off; the host said: {output}")
    seconds = answers.get("clock", "")
    return HostHealth(
        _unit(answers.get("update-engine", "")),
        _unit(answers.get("locksmithd", "")),
        int(seconds) if _SECONDS.fullmatch(seconds) else None,
        complaint(complaints.get("update-engine", "")),
    )


def _unit(text: str) -> UnitState:
    """Read a unit: the last word of each property counts; what is no property is noise."""
    matches = (match for match in map(_PROPERTY.fullmatch, text.splitlines()) if match)
    properties = {match[1] or match[3]: (match[2] or match[4] or "").strip() for match in matches}
    return UnitState(
        load=properties.get("LoadState", ""),
        active=properties.get("ActiveState", ""),
        file=properties.get("UnitFileState", ""),
        wanted=bool(properties.get("WantedBy")),
    )


@dataclass(frozen=True, slots=True)
class Examination:
    """A host's health, and how many seconds its clock is ahead of ours; `off_by` None where it did not tell.

    `margin` is how far, in seconds, `off_by` may be wrong: the time that the question took.
    """

    health: HostHealth
    off_by: float | None = None
    margin: float = 0.0


def examine_all(
    hosts: Mapping[str, Host],
    shell: HostExecutor,
    clock: Clock,
    *,
    timeout: float,
    concurrency: int,
    on_result: Callable[[str, Examination], None],
) -> Mapping[str, Examination]:
    """Every host's second answer, by the same names, each told to `on_result` as it comes.

    A host that fails here gives its reason, and raises nothing.
    """
    asked_at = clock.now().timestamp()
    examinations: dict[str, Examination] = {}
    with closing(shell.run_on_all(hosts, DOCTOR_COMMAND, timeout=timeout, concurrency=concurrency)) as answers:
        for name, answer in answers:
            examinations[name] = _examination(answer, asked_at, clock.now().timestamp())
            on_result(name, examinations[name])
    return examinations


def _examination(answer: CommandResult | SshError, asked_at: float, answered_at: float) -> Examination:
    """Read an answer; its clock is known as exactly as the time is short in which it was asked."""
    if isinstance(answer, SshError):
        return Examination(HostHealth(problem=answer.message))
    health = parse_health(answer)
    if health.clock is None:
        return Examination(health)
    # the host counts whole seconds: on average half of one is lost
    return Examination(health, health.clock + 0.5 - (asked_at + answered_at) / 2, (answered_at - asked_at) / 2 + 0.5)
