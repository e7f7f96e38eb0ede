import ipaddress
import math
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import hint_of
from rollout.cli.flags import takes
from rollout.cli.options import argument, option
from rollout.cli.settings.reading import CommandSettings, read_file
from rollout.cli.settings.rules import read_pod_settings
from rollout.cli.settings.schema import Executor, Settings
from rollout.cli.settings.schema import settings as known_settings
from rollout.cli.settings.values import fitting, matching, parse_namespace
from rollout.cli.terminal import say
from rollout.errors import InputError, UsageError
from rollout.manifests.cron import check_schedule
from rollout.manifests.objects import (
    DEFAULT_NAME,
    DEFAULT_SCHEDULE,
    DEFAULT_ZONE,
    FLEETLOCK_PORT,
    SSH_KEY,
    SSH_SECRET,
    Installation,
    InstallationKind,
    manifest_text,
    objects,
)
from rollout.model.policy import Policy
from rollout.model.text import is_object_name
from rollout.planning.eligibility.windows import check_zone

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(?P<version>(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?)"
)
# A CronJob adds 11 characters to a Job's name, whose limit is 63.
_parse_name = matching(
    "[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?",
    "a name of at most 52 lower-case letters, digits and dashes",
)
_MINUTE = 60
# Seconds added to how long the slowest node takes.
_GRACE_MARGIN = 2 * _MINUTE
_DEFAULT_DEADLINE = 6 * 60 * _MINUTE
_ALL_ADDRESSES = ("", "0.0.0.0", "::")  # noqa: S104 - compared with the operator's
# This command's flags may set these for the pod.
_ACCEPTED = ("ssh.known-hosts", "lock.namespace", "metrics.listen")


def _parse_image(value: str) -> str:
    match = _IMAGE.fullmatch(value)
    if not match:
        raise ValueError(
            f"{value!r} is not an image. Use an image such as registry.example/node-rollout:1.0."
        )
    if not match["version"]:
        raise ValueError(
            f"{value!r} has no tag: each pod might run a different version. Add :TAG or"
            " @sha256:DIGEST."
        )
    return value


def _parse_cluster_ip(value: str) -> str:
    message = f"{value!r} is not an IP address. Use an address such as 10.96.0.15 or fd00::15."
    try:
        address = ipaddress.ip_address(value.strip())
    except ValueError:
        raise ValueError(message) from None
    # Kubernetes refuses zones, and IPv4 in IPv6.
    has_zone = "%" in value
    is_ipv4_in_ipv6 = getattr(address, "ipv4_mapped", None) is not None
    if has_zone or is_ipv4_in_ipv6:
        raise ValueError(message)
    is_special = address.is_loopback or address.is_link_local or address.is_multicast
    if is_special or address.is_unspecified:
        raise ValueError(
            f"{value!r} cannot be a cluster IP. Use an address in the Service network."
        )
    return str(address)


def _parse_network(value: str) -> str:
    try:
        network = ipaddress.ip_network(value.strip())
    except ValueError as error:
        raise ValueError(f"{error}. Use a network such as 10.1.0.0/16 or fd00:1::/64.") from None
    if "%" in value:
        raise ValueError(
            f"{value!r} contains a network interface. Use a network such as fd00:1::/64."
        )
    return str(network)


_parse_secret_name = fitting(is_object_name, "the name of a Secret")


_KIND = argument(
    InstallationKind.CRONJOB,
    "What to install; roles prints only the Role and ClusterRole objects.",
    "KIND",
)
_IMAGE_TO_RUN = option(
    None,
    "Image to run, with a tag or digest; if the name has no registry, the image is not pulled and"
    " must already be on each node",
    "IMAGE",
    parser=_parse_image,
)
_NAMESPACE = option(
    DEFAULT_NAME,
    "Namespace of the objects, except the Roles and RoleBindings",
    "NAME",
    parser=parse_namespace,
)
_NAME = option(
    None,
    f"Name of all objects; default: {DEFAULT_NAME}, with the suffix -fleetlock for fleetlock",
    "NAME",
    parser=_parse_name,
)
_ENV_SECRET = option(
    None,
    "Secret to set environment variables from, such as tokens and passphrases",
    "NAME",
    parser=_parse_secret_name,
)
_SCHEDULE = option(
    DEFAULT_SCHEDULE,
    "cronjob: schedule of the passes, in cron syntax",
    "CRON",
    parser=check_schedule,
)
_TIME_ZONE = option(DEFAULT_ZONE, "cronjob: time zone of the schedule", "ZONE", parser=check_zone)
_TLS_SECRET = option(
    None,
    "fleetlock: Secret of type kubernetes.io/tls that contains the certificate",
    "NAME",
    parser=_parse_secret_name,
)
_CLUSTER_IP = option(
    None,
    "fleetlock: fixed cluster IP of the Service, which the hosts connect to",
    "ADDRESS",
    parser=_parse_cluster_ip,
)
_HOSTS_NETWORK = option(
    None,
    "fleetlock: accept requests only from these addresses; repeatable",
    "CIDR",
    parser=_parse_network,
)


@takes("ssh.known-hosts", of_another=True)
def manifests(
    settings: CommandSettings,
    kind: InstallationKind = _KIND,
    *,
    image: str | None = _IMAGE_TO_RUN,
    namespace: str = _NAMESPACE,
    name: str | None = _NAME,
    env_secret: str | None = _ENV_SECRET,
    schedule: str = _SCHEDULE,
    time_zone: str = _TIME_ZONE,
    tls_secret: str | None = _TLS_SECRET,
    cluster_ip: str | None = _CLUSTER_IP,
    hosts_network: list[str] | None = _HOSTS_NETWORK,
) -> None:
    """Print the manifests for running rollout in the cluster, for kubectl apply.

    cronjob, deployment and job run `rollout operate`; fleetlock runs the FleetLock server for hosts
    with Zincati. Checks the settings file and the known_hosts file, and puts them into a ConfigMap.
    The roles grant the permissions that rollout needs. The SSH key is not included: create the
    Secret rollout-ssh yourself.

    \b
    Examples:
      rollout manifests --image registry.example/node-rollout:1.0 \\
        --known-hosts known_hosts | kubectl apply -f -
      rollout manifests deployment --image ... --known-hosts known_hosts \\
        --config rollout.toml
      rollout manifests fleetlock --image ... --cluster-ip 10.96.0.15 \\
        --tls-secret fleetlock-tls
      rollout manifests roles
    """
    choices = Installation(
        kind=kind,
        name=name or _default_name(kind),
        namespace=namespace,
        image=image or "",
        env_secret=env_secret or "",
        schedule=schedule,
        time_zone=time_zone,
        tls_secret=tls_secret or "",
        cluster_ip=cluster_ip or "",
        networks=tuple(hosts_network or ()),
    )
    _refuse_flags_without_effect(choices, settings)
    installation = _with_settings(choices, settings)
    document = {"apiVersion": "v1", "kind": "List", "items": objects(installation)}
    settings.output.show(document, lambda: manifest_text(installation).rstrip("\n"))
    for line in _next_steps(installation):
        say(line)


def _default_name(kind: InstallationKind) -> str:
    return f"{DEFAULT_NAME}-fleetlock" if kind is InstallationKind.FLEETLOCK else DEFAULT_NAME


def _refuse_flags_without_effect(choices: Installation, settings: CommandSettings) -> None:
    unused = [
        key for key in known_settings() if key not in _ACCEPTED and not key.startswith("output.")
    ]
    # The pod reads only its settings file.
    hint = "Put it in the settings file of the pod."
    settings.refuse_typed_settings(unused, why="cannot be used with manifests", hint=hint)
    kind = choices.kind
    has_fleetlock_flags = bool(choices.tls_secret or choices.cluster_ip or choices.networks)
    if has_fleetlock_flags and kind is not InstallationKind.FLEETLOCK:
        hint = "Drop --tls-secret, --cluster-ip and --hosts-network."
        raise UsageError("these flags apply only to fleetlock", hint=hint)
    if kind is not InstallationKind.ROLES and not choices.image:
        build = (
            "docker build -t REGISTRY/node-rollout:TAG . && docker push REGISTRY/node-rollout:TAG"
        )
        hint = (
            f"Build and push your own image: {build}. Then use --image REGISTRY/node-rollout:TAG."
        )
        raise UsageError("no --image: rollout has no published image", hint=hint)
    has_schedule = (choices.schedule, choices.time_zone) != (DEFAULT_SCHEDULE, DEFAULT_ZONE)
    if has_schedule and kind is not InstallationKind.CRONJOB:
        raise UsageError(f"{kind} has no schedule", hint="Drop --schedule and --time-zone.")


def _with_settings(choices: Installation, typed: CommandSettings) -> Installation:
    """`typed` flags win over the file."""
    kind = choices.kind
    is_fleetlock = kind is InstallationKind.FLEETLOCK
    file = read_file(Path(typed.file) if typed.file else None)
    pod, policy = read_pod_settings(file, is_fleetlock=is_fleetlock)
    lock = typed.lock if "lock.namespace" in typed.typed else pod.lock
    # A Job ends too soon to serve metrics.
    listen = ""
    if is_fleetlock or kind is InstallationKind.DEPLOYMENT:
        listen = typed.metrics.listen or pod.metrics.listen
    installation = replace(
        choices,
        lock_namespace=lock.namespace,
        policy=policy,
        settings=file.text,
        every=round(pod.operate.every),
        deadline=round(pod.operate.active_deadline or _DEFAULT_DEADLINE),
        listen=listen,
        metrics_port=_metrics_port(kind, listen),
    )
    if is_fleetlock or kind is InstallationKind.ROLES:
        # They do not use SSH, and other FleetLock replicas continue drains.
        return installation
    by_ansible = pod.ssh.executor is Executor.ANSIBLE
    known_hosts = _read_known_hosts(typed.ssh.known_hosts, accepts_authority=by_ansible)
    return replace(installation, known_hosts=known_hosts, grace=_grace_seconds(pod, policy))


def _metrics_port(kind: InstallationKind, listen: str) -> int:
    from rollout.adapters.web import parse_address

    if not listen:
        return 0
    host, port = parse_address(listen)
    if kind is InstallationKind.FLEETLOCK and port == FLEETLOCK_PORT:
        hint = "Use another port, such as :9732."
        raise UsageError(
            f"metrics.listen: port {port} is already used for FleetLock requests", hint=hint
        )
    return port if host in _ALL_ADDRESSES else 0


def _grace_seconds(pod: Settings, policy: Policy) -> int:
    from rollout.planning.play.pace import slowest_node_seconds

    rescue_seconds = pod.reboot.rescue_timeout if pod.reboot.rescue else None
    playbook_count = bool(pod.reboot.pre_playbook) + bool(pod.reboot.post_playbook)
    slowest = slowest_node_seconds(policy, rescue_seconds, playbooks=playbook_count)
    minutes = math.ceil((slowest + _GRACE_MARGIN) / _MINUTE)
    return minutes * _MINUTE


def _read_known_hosts(file: Path | None, *, accepts_authority: bool) -> str:
    """`accepts_authority`: the key of an authority that signs hosts' keys is enough."""
    from rollout.adapters.ssh.known_hosts import has_host_key

    fill = "Populate it with: rollout known-hosts --out FILE"
    if file is None:
        raise UsageError("no --known-hosts: the pod would trust no host", hint=fill)
    try:
        text = read_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS).decode()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", hint=hint_of(error)) from error
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {file}: it is not text") from error
    if "PRIVATE KEY" in text:
        raise InputError(
            f"{file} contains a private key",
            hint="Specify the file with the hosts' public keys (known_hosts).",
        )
    if not has_host_key(text, by_authority=accepts_authority):
        raise InputError(f"{file} contains no hosts", hint=fill)
    return text


def _next_steps(installation: Installation) -> Iterator[str]:
    if installation.kind is InstallationKind.ROLES:
        return
    if not installation.names_registry:
        image = installation.image
        yield f"warning: {image} has no registry in its name, so load it onto each node yourself"
    create = (
        "next, create the Secret, unless it exists:"
        f" kubectl -n {installation.namespace} create secret"
    )
    if installation.kind is not InstallationKind.FLEETLOCK:
        key = f"--type=kubernetes.io/ssh-auth --from-file={SSH_KEY}=FILE"
        yield f"{create} generic {SSH_SECRET} {key}"
        return
    if installation.tls_secret:
        yield f"{create} tls {installation.tls_secret} --cert=FILE --key=FILE"
    if not installation.networks:
        hint = "to accept only hosts, use --hosts-network CIDR"
        yield f"warning: any pod can request a node's drain; {hint}"
    address = installation.cluster_ip or "ADDRESS"
    host = f"[{address}]" if ":" in address else address
    url = f'base_url = "{installation.scheme}://{host}/"'
    if not installation.cluster_ip:
        show = f"kubectl -n {installation.namespace} get service {installation.name}"
        url += f" (to show ADDRESS, run: {show})"
    yield f"next, configure the hosts (docs/fleetlock.md): {url}"
