"""What is installed in a cluster, and how it is printed."""

import re
from pathlib import Path

from rollout.cli.settings import values
from rollout.cli.settings.keys import Table, setting
from rollout.errors import UsageError
from rollout.manifests.installation import DEFAULT_NAME
from rollout.model.quantity import Duration
from rollout.planning.eligibility.windows import checked_zone

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(?P<version>(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?)"
)
# A CronJob adds eleven characters to make the names of its Jobs, which have 63.
_LONGEST_NAME = 52


def fixed_image(value: str) -> str:
    """Return a container image of a fixed version, or none."""
    match = _IMAGE.fullmatch(value)
    if value and not match:
        raise ValueError(f"{value!r} is not an image. Write it as registry.example/node-rollout:1.0.")
    if match and not match["version"]:
        raise ValueError(f"{value!r} has no tag: each pod might run another version. Add :TAG or @sha256:DIGEST.")
    return value


def object_name(value: str) -> str:
    """Return a name that every object of the installation can have."""
    if not values.is_label_like(value) or len(value) > _LONGEST_NAME:
        raise ValueError(f"{value!r} is not a name of at most {_LONGEST_NAME} lower-case letters, digits and dashes.")
    return value


def zone(value: str) -> str:
    """Return a timezone of the IANA database."""
    try:
        return checked_zone(value)
    except UsageError as error:
        raise ValueError(f"{error.message}. {error.hint}") from error


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
    ssh_secret: str = setting("rollout-ssh", "Secret with the SSH key, of the type kubernetes.io/ssh-auth.", "NAME")
    env_secret: str = setting(
        "", "Secret whose keys are variables: settings that are secret, tokens, a passphrase.", "NAME"
    )
    schedule: str = setting("0 1 * * *", "cronjob: when a pass begins, in cron's five fields.", "CRON")
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
    )
    cluster_ip: str = setting(
        "",
        "fleetlock: fixed address of the Service, out of the cluster's range: what hosts are configured with.",
        "ADDRESS",
    )
    hosts_network: list[str] | None = setting(
        None, "fleetlock: only these addresses may ask. Repeatable. Default: all.", "CIDR"
    )
    image_pull_secret: list[str] | None = setting(None, "Secret with which the image is pulled. Repeatable.", "NAME")
    pod_monitor: bool = setting(
        False, "Have a Prometheus operator scrape the pods: deployment with metrics, fleetlock."
    )
