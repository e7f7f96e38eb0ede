"""The objects of an installation in the order of their creation: texts made of `templates/`, and what they say.

Whatever a template prints is written so that YAML, as Python and Go read it, has the same value.

Roles are made of the rights that the program asks for: nothing that it uses is missing, nothing else is in them. What
is written beside Nodes and pods is granted in one namespace: the Lease and the ConfigMaps where the lock is, by name
(`create` cannot be limited to one). Events about Nodes stand in `default`, for the API server refuses the Event of an
object without a namespace in any other.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rollout.gather.cluster.rights import Right, apply_rights, fleetlock_rights, operate_rights
from rollout.manifests.installation import DEFAULT_NAME, SSH_KEY, Access, Installation, Json, Kind, User
from rollout.model import marks

SETTINGS_FILE, KNOWN_HOSTS_FILE = "rollout.toml", "known_hosts"
_SETTINGS, _SCRATCH = "/etc/rollout/settings", "/tmp"  # noqa: S108 - a volume of its own
# What no YAML reads as anything but this text; but for words such as `no`.
_PLAIN = re.compile(r"[A-Za-z][\w./-]*", re.ASCII)
_RIGHTS = {User.PEOPLE: apply_rights, User.OPERATE: operate_rights, User.FLEETLOCK: fleetlock_rights}
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class _Dumper(yaml.SafeDumper):
    """Quotes all but texts of several lines, which stand as people write them."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None if _is_plain(value) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _is_plain(value: str) -> bool:
    return _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS


_Dumper.add_representer(str, _text)


def manifest_text(installation: Installation) -> str:
    """A YAML stream of all of them; of `roles` the roles alone."""
    return _environment().get_template("installation.yaml.j2").render(_content(installation))


def objects(installation: Installation) -> Sequence[Json]:
    """The same, read."""
    return tuple(yaml.safe_load_all(manifest_text(installation)))


def list_document(documents: Sequence[Json]) -> Json:
    """All of them as one object, as kubectl writes several in JSON."""
    return {"apiVersion": "v1", "kind": "List", "items": documents}


def names_registry(image: str) -> bool:
    """Whether an image names its registry: without one, every node would ask Docker Hub for somebody else's."""
    host, slash, _ = image.partition("/")
    return bool(slash) and ("." in host or ":" in host or host == "localhost")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rollout.manifests"),
        autoescape=False,  # noqa: S701 - YAML: `_scalar` writes every value
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_scalar,
    )
    environment.filters.update(block=_block, sha256=lambda text: sha256(text.encode()).hexdigest())
    return environment


def _scalar(value: object) -> str:
    """A value on one line: plain where nobody can mistake it, else as JSON, which is YAML."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, str) and _is_plain(value):
        return value
    return json.dumps(dict(value) if isinstance(value, Mapping) else value, ensure_ascii=False)


def _block(value: Json) -> Markup:
    """A mapping in lines, with the line's end of its last one."""
    # what it says at the end of a text with empty lines there belongs between documents
    return Markup(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=math.inf).removesuffix("...\n"))  # noqa: S704


def _content(installation: Installation) -> dict[str, Any]:
    """What the templates know."""
    kind, files, access = installation.kind, installation.files, installation.access
    serves = kind is Kind.FLEETLOCK
    component = {"app.kubernetes.io/component": "fleetlock"} if serves else {}
    settings = {SETTINGS_FILE: files.settings} if files.settings or serves else {}
    # a FleetLock server uses no SSH: hosts reboot by themselves
    data = settings if serves else {**settings, KNOWN_HOSTS_FILE: files.known_hosts}
    secrets = {"tls": installation.service.tls_secret} if serves else {"ssh": files.ssh_secret}
    return {
        **{name: getattr(installation, name) for name in installation.__slots__},
        "labels": {
            "app.kubernetes.io/name": DEFAULT_NAME,
            "app.kubernetes.io/instance": access.name,
            **component,
        },
        "roles": roles(access),
        # not the name of the record, which may stand in the same namespace
        "config_name": f"{access.name}-config",
        "data": data,
        "port": _port(installation),
        "secrets": {name: secret for name, secret in secrets.items() if secret},
        "variables": _variables(installation),
        "told": _told(installation),
        "deferred": marks.DEFERRED,
        "names_registry": names_registry(installation.image),
    }


def _port(installation: Installation) -> Mapping[str, Any] | None:
    """What may be reached of the pod; nothing of one that neither serves hosts nor metrics."""
    if installation.kind is Kind.FLEETLOCK:
        return {"name": "fleetlock", "number": installation.service.port}
    listen = installation.listen
    return {"name": "metrics", "number": listen.port} if listen.is_reachable else None


def _told(installation: Installation) -> list[str]:
    """Arguments of every pod: what its log is to be, and where the lock is."""
    return ["--output", "json", "--set", f"lock.namespace={installation.access.lease_namespace}"]


def _variables(installation: Installation) -> Mapping[str, str]:
    """Where the pod's files are; what it may write goes to its one volume for that."""
    files, serves = installation.files, installation.kind is Kind.FLEETLOCK
    settings = {"ROLLOUT_CONFIG": f"{_SETTINGS}/{SETTINGS_FILE}"} if files.settings or serves else {}
    ssh = {
        "ROLLOUT_KNOWN_HOSTS": f"{_SETTINGS}/{KNOWN_HOSTS_FILE}",
        "ROLLOUT_SSH_KEY": f"/etc/rollout/ssh/{SSH_KEY}",
    }
    return {
        **settings,
        **({} if serves else ssh),
        "HOME": _SCRATCH,
        "TMPDIR": _SCRATCH,
        "XDG_STATE_HOME": f"{_SCRATCH}/state",
        **({"ROLLOUT_DISABLE_EVICTION": "true"} if installation.access.disable_eviction else {}),
    }


def roles(access: Access) -> tuple[Json, ...]:
    """A ClusterRole, and a Role for each namespace that is written in; the lock's comes first."""
    places: dict[str, list[Right]] = {"": []}
    for right in _RIGHTS[access.user](access.lease_namespace, disable_eviction=access.disable_eviction):
        # a namespace itself is in none, though access reviews name it as its own
        places.setdefault("" if right.resource == "namespaces" else right.namespace, []).append(right)
    return tuple(
        {
            "kind": "Role" if place else "ClusterRole",
            "metadata": {"name": access.name, **({"namespace": place} if place else {})},
            "rules": list(_rules(rights)),
        }
        for place, rights in places.items()
    )


def _rules(rights: Iterable[Right]) -> Iterator[Json]:
    """The verbs of one resource together, then the resources with the same verbs."""
    verbs: dict[tuple[str, str, str], dict[str, None]] = {}
    for right in rights:
        resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        verbs.setdefault((right.group, right.name, resource), {})[right.verb] = None
    resources: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (group, name, resource), allowed in verbs.items():
        resources.setdefault((group, name, tuple(sorted(allowed))), []).append(resource)
    for (group, name, allowed_verbs), alike in resources.items():
        names = {"resourceNames": [name]} if name else {}
        yield {"apiGroups": [group], "resources": alike, **names, "verbs": list(allowed_verbs)}
