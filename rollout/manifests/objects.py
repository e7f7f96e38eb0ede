"""The objects of an installation in the order of their creation: texts made of `templates/`, and what they say.

Whatever a template prints is written so that YAML, as Python and Go read it, has the same value.

Roles are made of the rights that the program asks for: nothing that it uses is missing, nothing
else is in them. What is written beside Nodes and pods is granted in one namespace: the Lease and
the ConfigMaps where the lock is, by name (`create` cannot be limited to one). Events about Nodes
stand in `default`, for the API server refuses the Event of an object without a namespace in any
other.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from hashlib import sha256
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rollout.gather.cluster.rights import Right, apply_rights, fleetlock_rights, operate_rights
from rollout.model import marks
from rollout.model.text import grouped

# An object as the API server takes it.
Json = dict[str, Any]

DEFAULT_NAME = "node-rollout"
SSH_SECRET = "rollout-ssh"  # noqa: S105 - a name
# The key of Secrets of the type kubernetes.io/ssh-auth, which the API server checks for.
SSH_KEY = "ssh-privatekey"


class InstallationKind(StrEnum):
    """What to print: a workload with all that it needs, or the roles of people with all commands alone."""

    CRONJOB = "cronjob"
    DEPLOYMENT = "deployment"
    JOB = "job"
    FLEETLOCK = "fleetlock"
    ROLES = "roles"


_RIGHTS = {InstallationKind.ROLES: apply_rights, InstallationKind.FLEETLOCK: fleetlock_rights}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What is installed: the operator's choices; texts that may be empty are for what is not there. Times are seconds.

    `settings` and `known_hosts` are the texts of the pod's files. `schedule` is a CronJob's, in
    `time_zone`; `every` a Deployment's time from one pass to the next. A pass of a Job ends within
    `deadline`. `grace` is what the nodes in flight may need after SIGTERM. A Deployment serves
    metrics and probes at `listen`: on `metrics_port` where that is an address of the pod, not of
    its loopback alone. `networks`: the addresses that may ask a FleetLock server, in CIDR notation;
    none: all.
    """

    kind: InstallationKind
    name: str = DEFAULT_NAME
    namespace: str = DEFAULT_NAME
    lease_namespace: str = marks.LEASE_NAMESPACE
    image: str = ""
    disable_eviction: bool = False
    settings: str = ""
    known_hosts: str = ""
    env_secret: str = ""
    schedule: str = "0 1 * * *"
    time_zone: str = "Etc/UTC"
    every: int = 600
    deadline: int = 21600
    grace: int = 60
    listen: str = ""
    metrics_port: int = 0
    tls_secret: str = ""
    cluster_ip: str = ""
    networks: tuple[str, ...] = ()

    @property
    def scheme(self) -> str:
        """Of a FleetLock server's URL."""
        return "https" if self.tls_secret else "http"

    @property
    def names_registry(self) -> bool:
        """Whether the image names its registry: without one, each node would ask Docker Hub for somebody else's."""
        host, slash, _ = self.image.partition("/")
        return bool(slash) and ("." in host or ":" in host or host == "localhost")


class _ManifestDumper(yaml.SafeDumper):
    """Texts of several lines stand as people write them."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
    )


_ManifestDumper.add_representer(str, _text)


def manifest_text(installation: Installation) -> str:
    """Write all of them as a YAML stream; of `roles` the roles alone."""
    serves = installation.kind is InstallationKind.FLEETLOCK
    component = {"app.kubernetes.io/component": "fleetlock"} if serves else {}
    return (
        _environment()
        .get_template("installation.yaml.j2")
        .render(
            asdict(installation),
            serves=serves,
            scheme=installation.scheme,
            names_registry=installation.names_registry,
            labels={
                "app.kubernetes.io/name": DEFAULT_NAME,
                "app.kubernetes.io/instance": installation.name,
            }
            | component,
            roles=roles(installation),
            ssh_secret=SSH_SECRET,
            ssh_key=SSH_KEY,
            deferred=marks.DEFERRED,
        )
    )


def objects(installation: Installation) -> Sequence[Json]:
    """Return the same, read."""
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
    environment.filters.update(block=_block, sha256=lambda text: sha256(text.encode()).hexdigest())
    return environment


def _scalar(value: object) -> str:
    """Write a value on one line, as JSON, which is YAML."""
    return value if isinstance(value, Markup) else json.dumps(value)


def _block(value: Json) -> Markup:
    """Write a mapping in lines, with the line's end of its last one."""
    # what it says at the end of a text with empty lines there belongs between documents
    return Markup(  # noqa: S704
        yaml.dump(value, Dumper=_ManifestDumper, sort_keys=False, width=math.inf).removesuffix(
            "...\n"
        )
    )


def roles(installation: Installation) -> tuple[Json, ...]:
    """Return a ClusterRole, and a Role for each namespace that is written in; the lock's comes first."""
    rights_of = _RIGHTS.get(installation.kind, operate_rights)
    places: dict[str, list[Right]] = {"": []}
    for right in rights_of(
        installation.lease_namespace, disable_eviction=installation.disable_eviction
    ):
        # a namespace itself is in none, though access reviews name it as its own
        places.setdefault("" if right.resource == "namespaces" else right.namespace, []).append(
            right
        )
    return tuple(
        {
            "kind": "Role" if place else "ClusterRole",
            "metadata": {"name": installation.name, **({"namespace": place} if place else {})},
            "rules": list(_rules(rights)),
        }
        for place, rights in places.items()
    )


def _rules(rights: Iterable[Right]) -> Iterator[Json]:
    """Bring the verbs of one resource together, then the resources with the same verbs."""
    verbs: dict[tuple[str, str, str], dict[str, None]] = {}
    for right in rights:
        resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        verbs.setdefault((right.group, right.name, resource), {})[right.verb] = None
    resources = grouped(
        ((group, name, tuple(sorted(allowed))), resource)
        for (group, name, resource), allowed in verbs.items()
    )
    for (group, name, allowed_verbs), alike in resources.items():
        names = {"resourceNames": [name]} if name else {}
        yield {"apiGroups": [group], "resources": alike, **names, "verbs": list(allowed_verbs)}
