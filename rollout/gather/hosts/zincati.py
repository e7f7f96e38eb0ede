"""By whose leave Zincati reboots a host, from its fragments of configuration as Zincati itself lays them together.

Of fragments of one name the one in the directory that comes last counts; then they are read by their names, and a
later value replaces an earlier one.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from rollout.gather.hosts.probe_command import FILE_MARKER

_RUNNING = frozenset({"active", "activating", "reloading"})
_DEFAULT = "immediate"
_STRATEGY = re.compile(r"[a-z][a-z_-]{0,31}")
_LONGEST_SECTION = 65536


def zincati_strategy(section: str) -> str:
    """Its strategy, `immediate` or `fleet_lock` for example; empty where it does not run, or is not to reboot."""
    state, _, rest = section[:_LONGEST_SECTION].partition("\n")
    if state.strip() not in _RUNNING:
        return ""
    updates: dict[str, Any] = {}
    for fragment in _fragments(rest):
        updates |= fragment
    if updates.get("enabled") is False:
        return ""
    strategy = updates.get("strategy", _DEFAULT)
    return strategy if isinstance(strategy, str) and _STRATEGY.fullmatch(strategy) else "unknown"


def _fragments(text: str) -> Iterator[Mapping[str, Any]]:
    """The `[updates]` tables, in the order in which they count; what is no TOML is left out."""
    files: dict[str, str] = {}
    for part in text.split(f"{FILE_MARKER} ")[1:]:
        path, _, content = part.partition("\n")
        files[path.rpartition("/")[2]] = content
    for name in sorted(files):
        try:
            table = tomllib.loads(files[name]).get("updates", {})
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
        if isinstance(table, dict):
            yield table
