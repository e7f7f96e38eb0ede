"""What is installed in a cluster, and how it is printed."""

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.settings import values
from rollout.errors import UsageError
from rollout.manifests.installation import DEFAULT_NAME
from rollout.model.quantity import Duration
from rollout.planning.windows import checked_zone

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(?P<version>(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?)"
)
# A CronJob adds eleven characters to make the names of its Jobs, which have 63.
_LONGEST_NAME = 52
_NAMES = (("jan feb mar apr may jun jul aug sep oct nov dec", 1), ("sun mon tue wed thu fri sat", 0))
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("day of the week", 0, 6))
_MACROS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_RANGE = re.compile(r"(?:[*?]|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>[1-9][0-9]?))?")


class Format(StrEnum):
    """How it is written."""

    YAML = "yaml"
    KUSTOMIZE = "kustomize"
    HELM = "helm"


def fixed_image(value: str) -> str:
    """A container image of a fixed version, or none."""
    match = _IMAGE.fullmatch(value)
    if value and not match:
        raise ValueError(f"{value!r} is not an image. Write it as registry.example/node-rollout:1.0.")
    if match and not match["version"]:
        raise ValueError(f"{value!r} has no tag: each pod might run another version. Add :TAG or @sha256:DIGEST.")
    return value


def object_name(value: str) -> str:
    """A name that every object of the installation can have."""
    if not values.is_label_like(value) or len(value) > _LONGEST_NAME:
        raise ValueError(f"{value!r} is not a name of at most {_LONGEST_NAME} lower-case letters, digits and dashes.")
    return value


def secret_name(value: str) -> str:
    """The name of a Secret, or none."""
    if value and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", value):
        raise ValueError(f"{value!r} is not the name of a Secret.")
    return value


def cron_schedule(value: str) -> str:
    """A CronJob's schedule, as the API server reads it."""
    fields = value.split()
    if value in _MACROS:
        return value
    if len(fields) != len(_FIELDS):
        raise ValueError(f"{value!r} is not a schedule: it has five fields, as in '0 1 * * *', or is @daily.")
    for field, (noun, least, most) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            if not _fits(part, least, most):
                raise ValueError(f"{part!r} in {value!r} is no {noun}: {least} to {most}, A-B, or with /STEP.")
    return value


def _fits(part: str, least: int, most: int) -> bool:
    match = _RANGE.fullmatch(part)
    if match is None:
        return False
    first, last = (_number(word, most) for word in (match["first"], match["last"] or match["first"]))
    return match["first"] is None or (first is not None and last is not None and least <= first <= last <= most)


def _number(word: str | None, most: int) -> int | None:
    """A field's number; months and days of the week have names as well."""
    if word is None or word.isdecimal():
        return None if word is None else int(word)
    names, first = _NAMES[0] if most == _FIELDS[3][2] else _NAMES[1]
    known = names.split() if most in (_FIELDS[3][2], _FIELDS[4][2]) else []
    return known.index(word.lower()) + first if word.lower() in known else None


def address(value: str) -> str:
    """An IP address, or none."""
    try:
        return str(ipaddress.ip_address(value)) if value else value
    except ValueError as error:
        raise ValueError(f"{value!r} is not an IP address.") from error


def network(value: str) -> str:
    """A network in CIDR notation."""
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is not a network: {error}. Write it as 10.0.0.0/16.") from error


def zone(value: str) -> str:
    """A timezone of the IANA database."""
    try:
        return checked_zone(value)
    except UsageError as error:
        raise ValueError(f"{error.message}. {error.hint}") from error


@dataclass(frozen=True, slots=True)
class ManifestOptions:
    """What is installed."""

    namespace: Annotated[
        str, Flag(OWN, "Namespace of the pod, its account and its settings.", "NAME", read=values.namespace)
    ] = DEFAULT_NAME
    name: Annotated[str, Flag(OWN, "Name of everything that is printed.", "NAME", read=object_name)] = DEFAULT_NAME
    image: Annotated[
        str,
        Flag(
            OWN,
            "Image that you built, with its tag or digest. One without a registry is never pulled.",
            "IMAGE",
            read=fixed_image,
        ),
    ] = ""
    known_hosts: Annotated[Path | None, Flag(OWN, "Host keys that the pod trusts.", "FILE")] = None
    ssh_secret: Annotated[
        str,
        Flag(OWN, "Secret with the SSH key, of the type kubernetes.io/ssh-auth.", "NAME", read=secret_name),
    ] = "rollout-ssh"  # noqa: S105 - its name
    env_secret: Annotated[
        str,
        Flag(
            OWN,
            "Secret whose keys are variables: settings that are secret, tokens, a passphrase.",
            "NAME",
            read=secret_name,
        ),
    ] = ""
    schedule: Annotated[
        str, Flag(OWN, "cronjob: when a pass begins, in cron's five fields.", "CRON", read=cron_schedule)
    ] = "0 1 * * *"
    time_zone: Annotated[str, Flag(OWN, "cronjob: timezone of the schedule.", "ZONE", read=zone)] = "Etc/UTC"
    active_deadline: Annotated[
        Duration | None,
        Flag(
            OWN,
            "cronjob, job: time for one pass. Default: what the settings say, else 6h.",
            "DURATION",
            read=values.some_time,
        ),
    ] = None
    every: Annotated[
        Duration | None,
        Flag(
            OWN,
            "deployment: time from one pass to the next. Default: what the settings say, else 10m.",
            "DURATION",
            read=values.some_time,
        ),
    ] = None
    replicas: Annotated[
        int, Flag(OWN, "fleetlock: how many pods serve; no two of them on one node.", "N", least=2, most=9)
    ] = 2
    tls_secret: Annotated[
        str,
        Flag(
            OWN,
            "fleetlock: Secret with the server's certificate, of the type kubernetes.io/tls. Without: plain HTTP.",
            "NAME",
            read=secret_name,
        ),
    ] = ""
    cluster_ip: Annotated[
        str,
        Flag(
            OWN,
            "fleetlock: fixed address of the Service, out of the cluster's range: what hosts are configured with.",
            "ADDRESS",
            read=address,
        ),
    ] = ""
    hosts_network: Annotated[
        list[str] | None,
        Flag(OWN, "fleetlock: only these addresses may ask. Repeatable. Default: all.", "CIDR", read=network),
    ] = None
    disable_eviction: Annotated[bool, Flag(OWN, "Delete pods instead of evicting them, and print the right to.")] = (
        False
    )
    format: Annotated[
        Format, Flag(OWN, "One text; or the files of a kustomization, or of a Helm chart (with --out).")
    ] = Format.YAML
    out: Annotated[Path | None, Flag(OWN, "Directory for those files; new or empty.", "DIR")] = None
