"""The two USR partitions of a machine: which is booted, their flags in the partition table, and the system on each.

There is no disk: all of this is in files of /var/lib/update_engine. A machine of which nothing is written has booted
the first partition, and the second one is empty, as on a new host.
"""

import json
from pathlib import Path

STATE = Path("/var/lib/update_engine")
RELEASE = Path("/etc/os-release")
NUMBERS = (3, 4)


def read() -> tuple[int, dict[int, list[int]]]:
    try:
        slots = json.loads((STATE / "slots").read_text())
    except FileNotFoundError:
        return 3, {3: [2, 0, 1], 4: [1, 0, 0]}
    return slots["booted"], {number: slots["flags"][str(number)] for number in NUMBERS}


def write(booted: int, flags: dict[int, list[int]]) -> None:
    (STATE / "slots").write_text(json.dumps({"booted": booted, "flags": flags}))


def device(number: int) -> str:
    return f"/dev/vda{number}"


def release_on(number: int) -> Path:
    return STATE / f"release-vda{number}"


def boot(staged: str) -> None:
    """Boot what GRUB would: the partition of the highest priority that has booted before, or has a try left."""
    booted, flags = read()
    other = sum(NUMBERS) - booted
    before = RELEASE.read_text()
    if staged:
        flags = {booted: [1, 0, 1], other: [2, 0, 1]}
        release_on(booted).write_text(before)
    elif (
        flags[other][0] > flags[booted][0] and any(flags[other][1:]) and release_on(other).exists()
    ):
        release_on(booted).write_text(before)
        RELEASE.write_text(release_on(other).read_text())
    else:
        return
    write(other, flags)
