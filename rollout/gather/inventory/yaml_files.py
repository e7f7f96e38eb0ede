"""Ansible's YAML inventories, and the variable files beside inventories of either format."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from rollout.errors import InventoryError
from rollout.gather.inventory.tree import ALL, Tree, Variable, expanded, split_port

_KEYS = ("hosts", "vars", "children")
_SUFFIXES = ("", ".yml", ".yaml", ".json")
_VAULT_HEADER = "$ANSIBLE_VAULT"


class Encrypted:
    """A value of ansible-vault: there, but not readable here."""


class _Loader(yaml.SafeLoader):
    """Safe, and knows Ansible's two tags."""


def _encrypted(_loader: yaml.SafeLoader, _node: yaml.Node) -> Encrypted:
    return Encrypted()


def _unsafe(loader: yaml.SafeLoader, node: yaml.Node) -> object:
    return loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else None


_Loader.add_constructor("!vault", _encrypted)
_Loader.add_constructor("!vault-encrypted", _encrypted)
_Loader.add_constructor("!unsafe", _unsafe)


def parse_yaml(text: str, file: str) -> Tree:
    """The tree; `InventoryError` names file and, for what is not YAML at all, the line."""
    content = _load(text, file)
    tree = Tree(file)
    if content is None:
        return tree
    groups = _mapping(content, file, "the file")
    if "plugin" in groups:
        raise InventoryError(
            f"{file} configures an inventory plugin, which only Ansible can run",
            hint=f"Write its result to a file: ansible-inventory -i {file} --list --yaml --output hosts.yaml",
        )
    try:
        for name, group in groups.items():
            _read_group(tree, str(name), group, file)
    except RecursionError as error:
        raise InventoryError(f"{file}: a group contains itself through an alias") from error
    return tree


def read_variable_files(tree: Tree, folder: Path) -> None:
    """Add what group_vars/ and host_vars/ in this folder say of the tree's groups and hosts."""
    for name, group in tree.groups.items():
        group.overrides.update(_variable_files(tree, folder / "group_vars", name))
    if (folder / "host_vars").is_dir():
        for host in tree.hosts:
            tree.overrides[host] = _variable_files(tree, folder / "host_vars", host)


def _load(text: str, file: str) -> object:
    try:
        # The loader is a SafeLoader with two harmless tags.
        return yaml.load(text, Loader=_Loader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        raise InventoryError(f"{file}{line}: {error.problem or 'not YAML'}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InventoryError(f"{file}: not YAML: {error}") from error


def _mapping(value: object, file: str, what: str) -> Mapping[object, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InventoryError(
            f"{file}: {what} should be a mapping, not {_kind(value)}",
            hint="Hosts and groups end in a colon: `worker-1:`, not `- worker-1`.",
        )
    return value


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", int: "a number"}.get(type(value), type(value).__name__)


def _read_group(tree: Tree, name: str, content: object, file: str) -> None:
    group = tree.group(name)
    parts = {key: _sole_key(part) for key, part in _mapping(content, file, f"group {name}").items()}
    for key in parts:
        if key not in _KEYS:
            tree.warnings.append(f"{file}: group {name}: {key} is neither hosts, vars nor children; ignored")
    group.variables.update(_variables(parts.get("vars"), file, f"vars of group {name}"))
    for host, said in _mapping(parts.get("hosts"), file, f"hosts of group {name}").items():
        _read_host(tree, str(host), said, name, file)
    for child, inside in _mapping(parts.get("children"), file, f"children of group {name}").items():
        # Everything is a child of `all` anyway, and `all` is nobody's.
        if name != ALL and str(child) not in group.children:
            group.children.append(str(child))
        _read_group(tree, str(child), inside, file)


def _sole_key(part: object) -> object:
    """Where hosts, vars or children are a mere text, Ansible takes that for the one key of a mapping."""
    return {part: None} if isinstance(part, str) else part


def _read_host(tree: Tree, pattern: str, said: object, group: str, file: str) -> None:
    variables = _variables(said, file, f"host {pattern}")
    if not pattern.strip():
        raise InventoryError(f"{file}: group {group} has a host without a name")
    address, port = split_port(pattern)
    for name in expanded(address, file):
        tree.add_host(name, group, variables, Variable(port, file) if port is not None else None)


def _variables(value: object, file: str, what: str) -> dict[str, Variable]:
    return {str(name): Variable(content, file) for name, content in _mapping(value, file, what).items()}


def _variable_files(tree: Tree, folder: Path, name: str) -> dict[str, Variable]:
    """What Ansible takes of them: the first of a folder, or a file without suffix, NAME.yml, .yaml and .json alone."""
    if "/" in name or name in (".", ".."):
        return {}
    places = [path for suffix in _SUFFIXES if (path := folder / f"{name}{suffix}").exists()]
    tree.warnings += [f"{path} is ignored: Ansible takes {places[0]} alone" for path in places[1:]]
    variables: dict[str, Variable] = {}
    for file in (file for place in places[:1] for file in _files_of(place)):
        variables |= _variable_file(tree, file)
    return variables


def _files_of(path: Path) -> Iterator[Path]:
    """The file itself, or those of a folder in Ansible's order, without hidden ones, backups and other suffixes."""
    if not path.is_dir():
        yield path
        return
    for entry in sorted(path.iterdir(), key=lambda entry: entry.name):
        if entry.name.startswith(".") or entry.name.endswith("~"):
            continue
        if (entry.is_dir() and not entry.suffix) or (entry.is_file() and entry.suffix in _SUFFIXES):
            yield from _files_of(entry)


def _variable_file(tree: Tree, file: Path) -> dict[str, Variable]:
    text = file.read_text(encoding="utf-8")
    if text.startswith(_VAULT_HEADER):
        tree.warnings.append(f"{file} is encrypted with ansible-vault; ignored")
        return {}
    return _variables(_load(text, str(file)), str(file), "the file")
