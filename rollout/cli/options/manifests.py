"""What is installed in a cluster, and how it is printed."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from rollout.cli.settings import values
from rollout.cli.settings.keys import Table, setting
from rollout.errors import UsageError
from rollout.gather.cluster.requests import parse_quantity
from rollout.manifests.installation import DEFAULT_NAME, LIMITS, REQUESTS, Pod
from rollout.model.quantity import Duration
from rollout.planning.eligibility.selector import is_label_value
from rollout.planning.eligibility.windows import checked_zone

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(?P<version>(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?)"
)
# A CronJob adds eleven characters to make the names of its Jobs, which have 63.
_LONGEST_NAME = 52
# As a CronJob's controller reads it; whether each number fits its field, the API server says.
_SCHEDULE = re.compile(
    r"@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[\w*?/,-]+(\s+[\w*?/,-]+){4}", re.ASCII
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESOURCES = ("cpu", "memory", "ephemeral-storage")


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
    """A CronJob's schedule."""
    if not _SCHEDULE.fullmatch(value):
        raise ValueError(f"{value!r} is not a schedule: it has five fields, as in '0 1 * * *', or is @daily.")
    return value


def quantities(value: str) -> str:
    """Amounts by resource, as they were written."""
    for name, amount in pairs(value.split(",")).items():
        if name not in _RESOURCES:
            raise ValueError(f"{name!r} in {value!r} is not a resource. Known: {', '.join(_RESOURCES)}.")
        try:
            is_amount = parse_quantity(amount) > 0
        except ValueError:
            is_amount = False
        if not is_amount:
            raise ValueError(f"{amount!r} in {value!r} is not a quantity. Write it as cpu=250m,memory=512Mi.")
    return value


def label(value: str) -> str:
    """A label with its value, as it was written."""
    name, equals, text = value.partition("=")
    values.label_name(name)
    if not (name and equals and is_label_value(text)):
        raise ValueError(f"{value!r} is not a label. Write it as node-role.kubernetes.io/infra= or disk=ssd.")
    return value


def written_toleration(value: str) -> str:
    """A toleration as taints are written, `key[=value][:Effect]`; as it was written."""
    read = read_toleration(value)
    values.label_name(read["key"])
    if not read["key"] or read.get("effect", _EFFECTS[0]) not in _EFFECTS or not is_label_value(read.get("value", "")):
        raise ValueError(f"{value!r} is not a toleration: KEY[=VALUE][:EFFECT], with {', '.join(_EFFECTS)}.")
    return value


def read_toleration(value: str) -> dict[str, str]:
    """The object of one; without a value it tolerates all of the key's, without an effect all effects."""
    taint, colon, effect = value.partition(":")
    key, equals, text = taint.partition("=")
    operator = {"operator": "Equal", "value": text} if equals else {"operator": "Exists"}
    return {"key": key, **operator, **({"effect": effect} if colon else {})}


def pairs(written: Iterable[str]) -> dict[str, str]:
    """`name=value` by name."""
    return {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in written)}


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


def _written(resources: Mapping[str, str]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in resources.items())


class ManifestOptions(Table):
    """What is installed."""

    namespace: str = setting(
        DEFAULT_NAME, "Namespace of the pod, its account and its settings.", "NAME", read=values.namespace
    )
    name: str = setting(DEFAULT_NAME, "Name of everything that is printed.", "NAME", read=object_name)
    image: str = setting(
        "",
        "Image that you built, with its tag or digest. One without a registry is never pulled.",
        "IMAGE",
        read=fixed_image,
    )
    known_hosts: Path | None = setting(None, "Host keys that the pod trusts.", "FILE")
    ssh_secret: str = setting(
        "rollout-ssh", "Secret with the SSH key, of the type kubernetes.io/ssh-auth.", "NAME", read=secret_name
    )
    env_secret: str = setting(
        "", "Secret whose keys are variables: settings that are secret, tokens, a passphrase.", "NAME", read=secret_name
    )
    schedule: str = setting(
        "0 1 * * *", "cronjob: when a pass begins, in cron's five fields.", "CRON", read=cron_schedule
    )
    time_zone: str = setting("Etc/UTC", "cronjob: timezone of the schedule.", "ZONE", read=zone)
    active_deadline: Duration | None = setting(
        None,
        "cronjob, job: time for one pass. Default: what the settings say, else 6h.",
        "DURATION",
        read=values.some_time,
    )
    every: Duration | None = setting(
        None,
        "deployment: time from one pass to the next. Default: what the settings say, else 10m.",
        "DURATION",
        read=values.some_time,
    )
    replicas: int = setting(2, "fleetlock: how many pods serve; no two of them on one node.", "N", least=2, most=9)
    tls_secret: str = setting(
        "",
        "fleetlock: Secret with the server's certificate, of the type kubernetes.io/tls. Without: plain HTTP.",
        "NAME",
        read=secret_name,
    )
    cluster_ip: str = setting(
        "",
        "fleetlock: fixed address of the Service, out of the cluster's range: what hosts are configured with.",
        "ADDRESS",
        read=address,
    )
    hosts_network: list[str] | None = setting(
        None, "fleetlock: only these addresses may ask. Repeatable. Default: all.", "CIDR", read=network
    )
    disable_eviction: bool = setting(False, "Delete pods instead of evicting them, and print the right to.")
    image_pull_secret: list[str] | None = setting(
        None, "Secret with which the image is pulled. Repeatable.", "NAME", read=secret_name
    )
    requests: str = setting(
        _written(REQUESTS), "What the pod asks of its node.", "RESOURCE=QUANTITY,...", read=quantities
    )
    limits: str = setting(_written(LIMITS), "What the pod may use at most.", "RESOURCE=QUANTITY,...", read=quantities)
    node_selector: list[str] | None = setting(
        None, "Only on nodes with this label. Repeatable.", "LABEL=VALUE", read=label
    )
    toleration: list[str] | None = setting(
        None,
        "Also on nodes with this taint, besides the control plane's. Repeatable.",
        "KEY[=VALUE][:EFFECT]",
        read=written_toleration,
    )
    pod_monitor: bool = setting(
        False, "Have a Prometheus operator scrape the pods: deployment with metrics, fleetlock."
    )

    @property
    def pod(self) -> Pod:
        """What the cluster asks of the pod; `UsageError` where it would never start."""
        requests, limits = pairs(self.requests.split(",")), pairs(self.limits.split(","))
        for name in requests.keys() & limits.keys():
            if parse_quantity(requests[name]) > parse_quantity(limits[name]):
                raise UsageError(
                    f"--requests {name}={requests[name]} is more than --limits {name}={limits[name]}",
                    hint="Raise the limit, or name the other resources alone in --limits.",
                )
        tolerations = tuple(read_toleration(text) for text in self.toleration or ())
        selector = pairs(self.node_selector or ())
        return Pod(tuple(self.image_pull_secret or ()), requests, limits, selector, tolerations, self.pod_monitor)
