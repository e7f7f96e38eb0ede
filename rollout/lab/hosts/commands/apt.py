"""`apt-config shell`, as far as a host's own files under /etc/apt/apt.conf.d say anything, a setting a line."""

import re
from typing import Final

from rollout.lab.hosts import files
from rollout.lab.hosts.process import Process

_SETTING: Final = re.compile(r'^([\w:-]+) "(.*)";', re.MULTILINE)
_TRUE: Final = frozenset({"1", "yes", "true", "with", "on", "enable"})


async def apt_config(process: Process) -> int:
    """`apt-config shell VARIABLE KEY[/b] ...`: what is set, as assignments for a shell; with /b as a boolean."""
    verb, *words = process.arguments or ("",)
    if verb != "shell" or len(words) % 2:
        process.complain("E: Invalid operation" if verb != "shell" else "E: Arguments not in pairs")
        return 100
    paths = files.matching(process.machine, "/etc/apt/apt.conf.d/*")
    values = dict(match for path in paths for match in _SETTING.findall(files.read(process.machine, path) or ""))
    for variable, key in zip(words[::2], words[1::2], strict=True):
        name, _, kind = key.partition("/")
        if name in values:
            value = values[name] if kind != "b" else str(values[name].lower() in _TRUE).lower()
            process.print(f"{variable}='{value}'")
    return 0
