"""`update_engine_client`, to the byte on standard output, its exit statuses and its slowness included."""

from typing import Final

from rollout.lab.hosts.commands.bus import Access, access
from rollout.lab.hosts.process import Process

_ATTEMPTS: Final = 4
_FLAGS: Final = ("status", "check_for_update", "update", "reset_status", "watch_for_updates")
_POLL_SECONDS: Final = 5


async def update_engine_client(process: Process) -> int:
    """`update_engine_client -status`, `-check_for_update`, `-update`, `-reset_status`, `-watch_for_updates`."""
    flags = [word.lstrip("-").partition("=")[0] for word in process.arguments]
    unknown = [flag for flag in flags if flag not in _FLAGS]
    if unknown:
        process.complain(f"ERROR: unknown command line flag '{unknown[0]}'")
        return 1
    granted = await _connect(process)
    if granted is None:
        return 1
    if not flags:
        _log(process, "E", "No command given")
        return 1
    return await _obey(process, flags[0], granted=granted)


async def _connect(process: Process) -> bool | None:
    """Whether calls are allowed; None, after as long as the real client tries, where nobody answers."""
    for attempt in range(1, _ATTEMPTS + 1):
        granted = access(process)
        if granted is not Access.NO_ENGINE:
            return granted is Access.GRANTED
        if attempt < _ATTEMPTS:
            _log(process, "E", f"Failed to get dbus proxy, will retry (attempt {attempt}/{_ATTEMPTS})")
            await process.sleep(process.machine.timings.bus_retry)
    _log(process, "E", "Giving up -- unable to get dbus proxy for com.coreos.update1")
    return None


async def _obey(process: Process, flag: str, *, granted: bool) -> int:
    if flag == "status":
        _log(process, "I", "Querying Update Engine status...")
        return _print_status(process, granted=granted)
    if not granted:
        _log(process, "E", f"Error calling {flag}: Rejected send message, access denied by the bus policy")
        return 1
    if flag == "reset_status":
        process.machine.engine.reset()
        _log(process, "I", "ResetStatus() succeeded; to undo partition table changes run cgpt")
        return 0
    if flag == "watch_for_updates":
        return await _watch(process)
    process.machine.attempt_update()
    _log(process, "I", "Initiating update check and install.")
    return await _until_settled(process) if flag == "update" else 0


def _print_status(process: Process, *, granted: bool) -> int:
    """The five lines. The real client ignores that its call failed: it prints nothing's values and exits 0."""
    if not granted:
        _log(process, "E", "Error getting status: Rejected send message, access denied by the bus policy")
        lines = ("LAST_CHECKED_TIME=0", "PROGRESS=0.000000", "CURRENT_OP=(null)", "NEW_VERSION=(null)", "NEW_SIZE=0")
    else:
        status = process.machine.engine.status()
        lines = (
            f"LAST_CHECKED_TIME={status.last_checked}",
            f"PROGRESS={status.progress:f}",
            f"CURRENT_OP={status.operation}",
            f"NEW_VERSION={status.version}",
            f"NEW_SIZE={status.size}",
        )
    for line in lines:
        process.print(line)
    return 0


async def _until_settled(process: Process) -> int:
    """What `-update` does: look every five seconds until there is nothing more to wait for."""
    while process.machine.engine.busy:
        await process.sleep(_POLL_SECONDS)
    return _print_status(process, granted=True)


async def _watch(process: Process) -> int:
    while True:
        _print_status(process, granted=True)
        before = process.machine.engine.status()
        while process.machine.engine.status() == before:
            await process.sleep(_POLL_SECONDS)


def _log(process: Process, severity: str, message: str) -> None:
    """A line as glog writes it, on standard error."""
    stamp = process.machine.clock.now()
    process.complain(f"{severity}{stamp:%m%d %H:%M:%S.%f}  4242 update_engine_client.cc:251] {message}")
