"""What both inventory formats say: hosts, groups, and variables with the place they were written at.

The rules for which variable counts are Ansible's: `all` gives way to groups, a group to its children, groups
to the host itself; files of group_vars/ and host_vars/ override what the inventory says at the same rank.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rollout.errors import InventoryError

ALL = "all"
UNGROUPED = "ungrouped"
_PRIORITY = "ansible_group_priority"
_RANGE = re.compile(r"\[(?:(\d*):(\d+)|([a-z]):([a-z])|([A-Z]):([A-Z]))(?::(\d+))?\]")
# Two colons tell an IPv6 address in brackets from a range.
_BRACKETED = re.compile(r"\[((?=[^\]]*:[^\]]*:)[0-9a-fA-F:.%\w]+)\](?::(\d{1,5}))?")
_WITH_PORT = re.compile(r"((?:[^:\s\[\]]|\[[^\]]*\])+):(\d{1,5})")
_MOST_HOSTS = 100_000


@dataclass(frozen=True, slots=True)
class Variable:
    """A value as its file has it, and the file (and line, where known) for messages."""

    value: object
    origin: str


Variables = Mapping[str, Variable]


@dataclass(slots=True)
class Group:
    """A group as collected so far; `overrides` come from group_vars/."""

    variables: dict[str, Variable] = field(default_factory=dict)
    overrides: dict[str, Variable] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Tree:
    """An inventory as collected so far, in the order of the file; `overrides` by host come from host_vars/."""

    file: str = ""
    groups: dict[str, Group] = field(default_factory=lambda: {ALL: Group(), UNGROUPED: Group()})
    hosts: dict[str, dict[str, Variable]] = field(default_factory=dict)
    overrides: dict[str, dict[str, Variable]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def group(self, name: str) -> Group:
        """The group, made where it is new."""
        return self.groups.setdefault(name, Group())

    def add_host(self, name: str, group: str, variables: Variables, port: Variable | None = None) -> None:
        """Put a host into a group; what is said of it in several places is merged, the last word counting.

        `port` is one written behind the host's name, which only counts where the host is first mentioned.
        """
        known = self.hosts.setdefault(name, {} if port is None else {"ansible_port": port})
        known.update(variables)
        members = self.group(group).hosts
        if name not in members:
            members.append(name)

    def resolved(self) -> dict[str, dict[str, Variable]]:
        """The variables that count, by host."""
        ranks = _ranks(self.groups, self.file)
        parents = _parents(self.groups)
        direct: defaultdict[str, set[str]] = defaultdict(set)
        for name, group in self.groups.items():
            for host in group.hosts:
                direct[host].add(name)
        return {
            host: self._variables(host, sorted(_ancestry(direct[host], parents), key=ranks.__getitem__))
            for host in self.hosts
        }

    def _variables(self, host: str, groups: list[str]) -> dict[str, Variable]:
        layers = [self.groups[name].variables for name in groups]
        layers += [self.groups[name].overrides for name in groups]
        layers += [self.hosts[host], self.overrides.get(host, {})]
        return {name: variable for layer in layers for name, variable in layer.items()}


def _parents(groups: Mapping[str, Group]) -> dict[str, set[str]]:
    parents: defaultdict[str, set[str]] = defaultdict(set)
    for name, group in groups.items():
        for child in group.children:
            parents[child].add(name)
    return parents


def _ancestry(start: Iterable[str], parents: Mapping[str, set[str]]) -> set[str]:
    """The groups themselves, those above them, and `all`."""
    ancestors: set[str] = {ALL}
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in ancestors:
            ancestors.add(name)
            waiting.extend(parents.get(name, ()))
    return ancestors


def _ranks(groups: Mapping[str, Group], file: str) -> dict[str, tuple[int, int, str]]:
    """Sort keys: farther from `all` counts more, then the priority variable, then the name."""
    depths: dict[str, int] = {}
    parents = _parents(groups)

    def depth(name: str, path: tuple[str, ...]) -> int:
        if name in path:
            circle = " > ".join((name, *reversed(path[path.index(name) :])))
            raise InventoryError(f"{file}: group {name} is its own descendant: {circle}")
        if name not in depths:
            above = [depth(parent, (*path, name)) for parent in sorted(parents.get(name, set()))]
            depths[name] = 0 if name == ALL else 1 + max(above, default=0)
        return depths[name]

    return {name: (depth(name, ()), _priority(group), name) for name, group in groups.items()}


def _priority(group: Group) -> int:
    variable = group.variables.get(_PRIORITY)
    return variable.value if variable and isinstance(variable.value, int) else 1


def expanded(pattern: str, origin: str) -> Iterator[str]:
    """Names that a pattern with ranges stands for: `node[01:10]`, `db-[a:c].example`, `n[0:20:2]`."""
    names = [pattern]
    while (match := _RANGE.search(names[0])) is not None:
        steps = _steps(match, origin)
        if len(names) * len(steps) > _MOST_HOSTS:
            raise InventoryError(f"{origin}: {pattern} stands for more than {_MOST_HOSTS} hosts")
        names = [_RANGE.sub(step, name, count=1) for name in names for step in steps]
    yield from names


def _steps(match: re.Match[str], origin: str) -> list[str]:
    first, last, *letters, step = match.groups()
    by = int(step or 1)
    if last is None:
        begin, end = (letter for letter in letters if letter)
        items = [chr(code) for code in range(ord(begin), ord(end) + 1, by or 1)]
    else:
        width = len(first) if first.startswith("0") and len(first) > 1 else 0
        if width and len(last) != width:
            raise InventoryError(f"{origin}: the ends of {match[0]} are not of one length")
        items = [str(number).zfill(width) for number in _numbers(int(first or 0), int(last), by)]
    if not items or by == 0:
        raise InventoryError(f"{origin}: {match[0]} is an empty range")
    return items


def _numbers(first: int, last: int, by: int) -> range:
    """One more than allowed at most: enough to be refused, not enough to fill the memory."""
    return range(first, min(last, first + _MOST_HOSTS * max(by, 1)) + 1, by or 1)


def split_port(name: str) -> tuple[str, int | None]:
    """Host and port of `host:22`, `[2001:db8::1]:22`; a bare IPv6 address has none."""
    match = _BRACKETED.fullmatch(name) or _WITH_PORT.fullmatch(name)
    if match is None:
        return name, None
    return match[1], int(match[2]) if match[2] else None
