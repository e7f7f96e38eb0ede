"""Objects of an installation, in order of creation."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from hashlib import sha256
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct, field
from msgspec.structs import asdict

from rollout.gather.cluster.rights import Right, apply_rights, fleetlock_rights, operate_rights
from rollout.model import marks
from rollout.model.policy import Policy
from rollout.model.text import joined

Json = dict[str, Any]

DEFAULT_NAME = "node-rollout"
DEFAULT_SCHEDULE = "0 1 * * *"
DEFAULT_ZONE = "Etc/UTC"
SSH_SECRET = "rollout-ssh"  # noqa: S105 - a name
FLEETLOCK_PORT = 8080
_CLUSTER_WIDE = ""
# Secrets of type kubernetes.io/ssh-auth require this key.
SSH_KEY = "ssh-privatekey"


class InstallationKind(StrEnum):
    CRONJOB = "cronjob"
    DEPLOYMENT = "deployment"
    JOB = "job"
    FLEETLOCK = "fleetlock"
    ROLES = "roles"


_RIGHTS_OF_KIND = {
    InstallationKind.ROLES: apply_rights,
    InstallationKind.FLEETLOCK: fleetlock_rights,
}


class Installation(Struct, frozen=True, kw_only=True):
    """The operator's choices. Empty texts are left out; times are in seconds."""

    kind: InstallationKind
    name: str = DEFAULT_NAME
    namespace: str = DEFAULT_NAME
    lock_namespace: str = marks.LEASE_NAMESPACE
    image: str = ""
    policy: Policy = field(default_factory=Policy)
    settings: str = ""
    known_hosts: str = ""
    env_secret: str = ""
    schedule: str = DEFAULT_SCHEDULE
    time_zone: str = DEFAULT_ZONE
    # Between two passes.
    every: int = 600
    # For one pass.
    deadline: int = 21600
    # After SIGTERM.
    grace: int = 60
    listen: str = ""
    # Exposed unless `listen` is loopback.
    metrics_port: int = 0
    tls_secret: str = ""
    cluster_ip: str = ""
    # CIDR blocks; none allows all.
    networks: tuple[str, ...] = ()

    @property
    def scheme(self) -> str:
        return "https" if self.tls_secret else "http"

    @property
    def names_registry(self) -> bool:
        """Whether nodes would not pull from Docker Hub."""
        host, slash, _ = self.image.partition("/")
        is_host = "." in host or ":" in host or host == "localhost"
        return bool(slash) and is_host


class _ManifestDumper(yaml.SafeDumper):
    """Writes multi-line texts as literal blocks."""


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_ManifestDumper.add_representer(str, _represent_text)


def manifest_text(installation: Installation) -> str:
    is_server = installation.kind is InstallationKind.FLEETLOCK
    labels = {
        "app.kubernetes.io/name": DEFAULT_NAME,
        "app.kubernetes.io/instance": installation.name,
    }
    if is_server:
        labels["app.kubernetes.io/component"] = "fleetlock"
    template = _environment().get_template("installation.yaml.j2")
    return template.render(
        asdict(installation),
        serves=is_server,
        scheme=installation.scheme,
        names_registry=installation.names_registry,
        labels=labels,
        roles=roles(installation),
        fleetlock_port=FLEETLOCK_PORT,
        ssh_secret=SSH_SECRET,
        ssh_key=SSH_KEY,
        deferred=marks.DEFERRED,
    )


def objects(installation: Installation) -> Sequence[Json]:
    return tuple(yaml.safe_load_all(manifest_text(installation)))


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
    environment.filters.update(
        block=_literal_block, sha256=lambda text: sha256(text.encode()).hexdigest()
    )
    return environment


def _scalar(value: object) -> str:
    """Write a value as JSON, which is one-line YAML."""
    if isinstance(value, Markup):
        # `_literal_block` made it YAML.
        return value
    return json.dumps(value)


def _literal_block(value: Json) -> Markup:
    text = yaml.dump(value, Dumper=_ManifestDumper, sort_keys=False, width=math.inf)
    # PyYAML adds this after trailing empty lines.
    return Markup(text.removesuffix("...\n"))  # noqa: S704


def roles(installation: Installation) -> tuple[Json, ...]:
    list_rights = _RIGHTS_OF_KIND.get(installation.kind, operate_rights)
    rights = list_rights(installation.lock_namespace, installation.policy)
    by_namespace: dict[str, list[Right]] = {_CLUSTER_WIDE: []}
    for right in rights:
        # Only a ClusterRole can grant access to a Namespace.
        namespace = _CLUSTER_WIDE if right.resource == "namespaces" else right.namespace
        by_namespace.setdefault(namespace, []).append(right)
    return tuple(
        _role(installation.name, namespace, granted) for namespace, granted in by_namespace.items()
    )


def _role(name: str, namespace: str, rights: Iterable[Right]) -> Json:
    kind = "ClusterRole"
    metadata = {"name": name}
    if namespace != _CLUSTER_WIDE:
        kind = "Role"
        metadata["namespace"] = namespace
    return {"kind": kind, "metadata": metadata, "rules": list(_role_rules(rights))}


def _role_rules(rights: Iterable[Right]) -> Iterator[Json]:
    verbs_by_resource: dict[tuple[str, str, str], set[str]] = {}
    for right in rights:
        resource = joined("/", right.resource, right.subresource)
        key = (right.group, right.name, resource)
        verbs_by_resource.setdefault(key, set()).add(right.verb)
    resources_by_verbs: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (group, name, resource), verbs in verbs_by_resource.items():
        resources_by_verbs.setdefault((group, name, tuple(sorted(verbs))), []).append(resource)
    for (group, name, sorted_verbs), resources in resources_by_verbs.items():
        rule: Json = {"apiGroups": [group], "resources": resources}
        if name:
            rule["resourceNames"] = [name]
        rule["verbs"] = list(sorted_verbs)
        yield rule
