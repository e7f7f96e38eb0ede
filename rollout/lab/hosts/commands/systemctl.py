"""`systemctl`: the host's units, and its reboot."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from rollout.lab.hosts.machine import Power
from rollout.lab.hosts.process import Process
from rollout.lab.hosts.units import UPDATE_ENGINE, Unit

_INACTIVE: Final = 3
_UNKNOWN_UNIT: Final = 4
_NOT_LOADED: Final = 5
_VALUED: Final = ("-p", "--property", "-t", "--type", "-M", "-H", "--state", "--message", "--when")


async def systemctl(process: Process) -> int:
    """`systemctl [options] VERB [units]`."""
    options, words = _parsed(process.arguments)
    verb = words[0] if words else "list-units"
    if verb in ("reboot", "poweroff", "halt"):
        return _power(process, verb)
    if verb in _QUERIES:
        return _QUERIES[verb](process, options, words[1:])
    if verb in _CHANGES:
        return _change(process, options, verb, words[1:])
    process.complain(f"Unknown command verb '{verb}'.")
    return 1


def _parsed(arguments: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Options, a value joined by `=`, and the remaining words."""
    options: list[str] = []
    words: list[str] = []
    pending = list(arguments)
    while pending:
        word = pending.pop(0)
        if not word.startswith("-"):
            words.append(word)
        elif word in _VALUED and pending:
            options.append(f"{word}={pending.pop(0)}")
        else:
            options.append(word)
    return options, words


def _power(process: Process, verb: str) -> int:
    if process.user != "root":
        call = "Reboot" if verb == "reboot" else "PowerOff"
        process.complain(f"Call to {call} failed: Interactive authentication required.")
        return 1
    if verb == "reboot":
        process.machine.log("systemd-logind", "The system will reboot now!")
        process.machine.reboot()
    else:
        process.machine.shut_down()
    return 0


def _is_active(process: Process, options: list[str], names: list[str]) -> int:
    units = [process.machine.units.find(name) for name in names]
    _say(process, options, [unit.active_state if unit else "inactive" for unit in units])
    if any(unit and unit.active for unit in units):
        return 0
    return _INACTIVE if any(units) else _UNKNOWN_UNIT


def _is_enabled(process: Process, options: list[str], names: list[str]) -> int:
    units = [process.machine.units.find(name) for name in names]
    _say(process, options, [unit.file_state if unit else "not-found" for unit in units])
    if any(unit and unit.file_state == "enabled" for unit in units):
        return 0
    return 1 if any(units) else _UNKNOWN_UNIT


def _is_failed(process: Process, options: list[str], names: list[str]) -> int:
    _is_active(process, options, names)
    return 1


def _is_system_running(process: Process, options: list[str], _names: list[str]) -> int:
    running = process.machine.power is Power.RUNNING
    _say(process, options, ["running" if running else "stopping"])
    return 0 if running else 1


def _say(process: Process, options: list[str], lines: list[str]) -> None:
    if "-q" not in options and "--quiet" not in options:
        for line in lines:
            process.print(line)


def _show(process: Process, options: list[str], names: list[str]) -> int:
    wanted = [
        name
        for option in options
        if option.startswith(("-p", "--property="))
        for name in option.removeprefix("-p").removeprefix("--property").removeprefix("=").split(",")
    ]
    for name in names or [""]:
        properties = _properties(name, process.machine.units.find(name))
        for key in wanted or properties:
            if key in properties:
                process.print(properties[key] if "--value" in options else f"{key}={properties[key]}")
    return 0


def _properties(name: str, unit: Unit | None) -> dict[str, str]:
    full_name = name if "." in name else f"{name}.service"
    states = (full_name, "not-found", "inactive", "dead", "")
    if unit is not None:
        states = (unit.name, unit.load_state, unit.active_state, unit.sub_state, unit.file_state)
    return dict(zip(("Id", "LoadState", "ActiveState", "SubState", "UnitFileState"), states, strict=True))


def _status(process: Process, _options: list[str], names: list[str]) -> int:
    status = 0
    for name in names:
        unit = process.machine.units.find(name)
        if unit is None:
            process.complain(f"Unit {_properties(name, None)['Id']} could not be found.")
            status = max(status, _UNKNOWN_UNIT)
            continue
        process.print(f"{'●' if unit.active else '○'} {unit.name}")
        process.print(f"     Loaded: {unit.load_state} (/usr/lib/systemd/system/{unit.name}; {unit.file_state})")
        process.print(f"     Active: {unit.active_state} ({unit.sub_state})")
        status = max(status, 0 if unit.active else _INACTIVE)
    return status


_QUERIES: Final[Mapping[str, Callable[[Process, list[str], list[str]], int]]] = MappingProxyType(
    {
        "is-active": _is_active,
        "is-enabled": _is_enabled,
        "is-failed": _is_failed,
        "is-system-running": _is_system_running,
        "show": _show,
        "status": _status,
    }
)


# What a verb sets, of which attribute of a unit.
_CHANGES: Final[Mapping[str, tuple[str, bool]]] = MappingProxyType(
    {
        **dict.fromkeys(("start", "restart", "try-restart"), ("active", True)),
        "stop": ("active", False),
        "enable": ("enabled", True),
        "disable": ("enabled", False),
        "mask": ("masked", True),
        "unmask": ("masked", False),
    }
)


def _change(process: Process, options: list[str], verb: str, names: list[str]) -> int:
    statuses = [_change_one(process, options, verb, name) for name in names]
    return max(statuses, default=1)


def _change_one(process: Process, options: list[str], verb: str, name: str) -> int:
    unit = process.machine.units.find(name)
    full_name = _properties(name, unit)["Id"]
    if process.user != "root":
        process.complain(f"Failed to {verb} {full_name}: Interactive authentication required.")
        return 1
    if unit is None:
        process.complain(f"Failed to {verb} {full_name}: Unit {full_name} not found.")
        return _NOT_LOADED
    if unit.masked and verb in ("start", "restart"):
        process.complain(f"Failed to {verb} {full_name}: Unit {full_name} is masked.")
        return 1
    setattr(unit, *_CHANGES[verb])
    if "--now" in options and verb in ("enable", "disable", "mask"):
        unit.active = verb == "enable"
    if unit.name == UPDATE_ENGINE and verb in ("start", "restart", "try-restart"):
        process.machine.engine.restart()
    return 0
