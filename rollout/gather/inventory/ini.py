"""Ansible's INI inventories.

Not ConfigParser's format: host lines are shell words, a key may stand twice, and sections mean three things.
"""

import ast
import re
import shlex

from rollout.errors import InventoryError
from rollout.gather.inventory.tree import ALL, UNGROUPED, Group, Tree, Variable, expanded, split_port

_SECTION = re.compile(r"\[([^\]:\s]+)(?::(\w+))?\]\s*(?:[#;].*)?")
_HOSTS, _CHILDREN, _VARIABLES = "hosts", "children", "vars"


def parse_ini(text: str, file: str) -> Tree:
    """The tree; `InventoryError` names file and line."""
    reader = _Reader(file)
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if content and content[0] not in "#;":
            reader.read(content, f"{file}:{number}")
    reader.check()
    return reader.tree


class _Reader:
    def __init__(self, file: str) -> None:
        self.tree = Tree(file)
        self._group, self._kind = UNGROUPED, _HOSTS
        # Groups may be defined after they are mentioned, so what is undefined shows only at the end.
        self._defined = {ALL, UNGROUPED}
        self._mentioned: dict[str, str] = {}

    def read(self, line: str, origin: str) -> None:
        if line.startswith("[") and (match := _SECTION.fullmatch(line)):
            self._section(match[1], match[2] or _HOSTS, origin)
        elif self._kind == _VARIABLES:
            name, variable = _assignment(line, origin)
            self.tree.group(self._group).variables[name] = variable
        elif self._kind == _CHILDREN:
            self._child(_words(line, origin), origin)
        else:
            self._host(_words(line, origin), origin)

    def check(self) -> None:
        for name, origin in self._mentioned.items():
            if name not in self._defined:
                raise InventoryError(f"{origin}: group {name} is not defined", hint=f"Add a section [{name}].")

    def _section(self, group: str, kind: str, origin: str) -> None:
        if kind not in (_HOSTS, _CHILDREN, _VARIABLES):
            raise InventoryError(f"{origin}: [{group}:{kind}] is neither :vars nor :children")
        self._group, self._kind = group, kind
        self.tree.group(group)
        if kind == _VARIABLES:
            self._mentioned.setdefault(group, origin)
        else:
            self._defined.add(group)

    def _child(self, words: list[str], origin: str) -> None:
        if len(words) != 1:
            raise InventoryError(f"{origin}: one group a line is expected under [{self._group}:children]")
        self._mentioned.setdefault(words[0], origin)
        self.tree.group(words[0])
        parent: Group = self.tree.group(self._group)
        parent.children.append(words[0])

    def _host(self, words: list[str], origin: str) -> None:
        variables = dict(_assignment(word, origin) for word in words[1:])
        pattern, port = split_port(words[0])
        for name in expanded(pattern, origin):
            self.tree.add_host(name, self._group, variables, Variable(port, origin) if port is not None else None)


def _words(line: str, origin: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise InventoryError(f"{origin}: {str(error).lower()}: {line}") from error


def _assignment(text: str, origin: str) -> tuple[str, Variable]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise InventoryError(f"{origin}: {text!r} is not a variable", hint="Write name=value.")
    return name.strip(), Variable(_value(value.strip()), origin)


def _value(text: str) -> object:
    """Values are Python literals where they look like one, else text."""
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value
