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
from rollout.ports import CommandResult, HostExecutor

_SHOWN = "systemctl show -p LoadState -p ActiveState -p UnitFileState -p WantedBy"

DOCTOR_COMMAND = rf"""
mark() {{ printf '\n{MARKER} %s\n' "$1"; printf '\n{MARKER} %s\n' "$1" >&2; }}
mark update-engine; {_SHOWN} update-engine.service
mark locksmithd; {_SHOWN} locksmithd.service
mark end
exit 0
""".strip()

_PROPERTY = re.compile(r"(LoadState|ActiveState|UnitFileState)=([a-z-]*)|(WantedBy)=(.*)")
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
    """A host's units; `problem` is why it did not tell."""

    update_engine: UnitState = UnitState()
    locksmithd: UnitState = UnitState()
    problem: str = ""


def parse_health(result: CommandResult) -> HostHealth:
    """Return what the host said, as far as it can be understood. Never raises."""
    answers, complaints = sections(result.stdout), sections(result.stderr)
    if "end" not in answers:
        output = excerpt(result.stderr) or excerpt(result.stdout) or "nothing"
        return HostHealth(problem=f"the answer was cut off; the host said: {output}")
    return HostHealth(
        _unit(answers.get("update-engine", "")),
        _unit(answers.get("locksmithd", "")),
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


def examine_all(
    hosts: Mapping[str, Host],
    shell: HostExecutor,
    *,
    timeout: float,
    concurrency: int,
    on_result: Callable[[str, HostHealth], None],
) -> Mapping[str, HostHealth]:
    """Return every host's second answer, by the same names; tell each to `on_result` as it comes.

    A host that fails here gives its reason, and raises nothing.
    """
    examined: dict[str, HostHealth] = {}
    with closing(shell.run_on_all(hosts, DOCTOR_COMMAND, timeout=timeout, concurrency=concurrency)) as answers:
        for name, answer in answers:
            examined[name] = (
                HostHealth(problem=answer.message) if isinstance(answer, SshError) else parse_health(answer)
            )
            on_result(name, examined[name])
    return examined
