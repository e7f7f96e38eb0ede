"""`rollout manifests`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rollout.cli.flags import takes
from rollout.cli.settings import values
from rollout.cli.settings.keys import Table, setting
from rollout.cli.settings.reading import Given, read_file
from rollout.cli.settings.schema import Executor
from rollout.cli.settings.schema import settings as known_settings
from rollout.cli.settings.values import Form
from rollout.cli.stages.pod_settings import PodSettings, read_pod_settings
from rollout.cli.terminal import say
from rollout.errors import InputError, UsageError
from rollout.manifests.installation import (
    DEFAULT_NAME,
    FLEETLOCK_NAME,
    SSH_KEY,
    Access,
    Files,
    Installation,
    Kind,
    Listen,
    Pod,
    Service,
    Times,
    User,
)
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
    """Return a name that every object of the installation can have, or none."""
    if value and (not values.is_label_like(value) or len(value) > _LONGEST_NAME):
        raise ValueError(f"{value!r} is not a name of at most {_LONGEST_NAME} lower-case letters, digits and dashes.")
    return value


class ManifestOptions(Table):
    """What is installed."""

    namespace: values.Namespace = setting(DEFAULT_NAME, "Namespace of the pod, its account and its settings.")
    name: Annotated[str, Form("NAME", object_name)] = setting(
        "", f"Name of everything. Default: {DEFAULT_NAME}, {FLEETLOCK_NAME}."
    )
    image: Annotated[str, Form("IMAGE", fixed_image)] = setting(
        "", "Image that you built, with its tag or digest. One without a registry is never pulled."
    )
    known_hosts: Path | None = setting(None, "Host keys that the pod trusts.")
    ssh_secret: values.Name = setting("rollout-ssh", "Secret with the SSH key, of the type kubernetes.io/ssh-auth.")
    env_secret: values.Name = setting(
        "", "Secret whose keys are variables: settings that are secret, tokens, a passphrase."
    )
    schedule: Annotated[str, Form("CRON")] = setting("0 1 * * *", "cronjob: when a pass begins, in cron's five fields.")
    time_zone: Annotated[str, Form("ZONE", checked_zone)] = setting("Etc/UTC", "cronjob: timezone of the schedule.")
    active_deadline: Duration | None = setting(
        None, "cronjob, job: time for one pass. Default: what the settings say, else 6h."
    )
    every: Duration | None = setting(
        None, "deployment: time from one pass to the next. Default: what the settings say, else 10m."
    )
    replicas: int = setting(2, "fleetlock: how many pods serve; no two of them on one node.", least=2, most=9)
    tls_secret: values.Name = setting(
        "",
        "fleetlock: Secret with the server's certificate, of the type kubernetes.io/tls. Without: plain HTTP.",
    )
    cluster_ip: Annotated[str, Form("ADDRESS")] = setting(
        "",
        "fleetlock: fixed address of the Service, out of the cluster's range: what hosts are configured with.",
    )
    hosts_network: list[Annotated[str, Form("CIDR")]] | None = setting(
        None, "fleetlock: only these addresses may ask. Repeatable. Default: all."
    )
    image_pull_secret: list[values.Name] | None = setting(None, "Secret with which the image is pulled. Repeatable.")
    pod_monitor: bool = setting(
        False, "Have a Prometheus operator scrape the pods: deployment with metrics, fleetlock."
    )


KindArgument = Annotated[Kind, typer.Argument(metavar="KIND", help="What to install; roles prints the roles alone.")]

# What is told and written around the work itself.
_MARGIN_SECONDS = 120
_MINUTE = 60
_DEADLINE = 6 * 3600
_OF_FLEETLOCK = ("replicas", "tls_secret", "cluster_ip", "hosts_network")
_OF_OTHERS = ("known_hosts", "ssh_secret", "schedule", "time_zone", "active_deadline", "every")
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - what the operator may have written


@takes(of_another=True)
def manifests(settings: Given, options: ManifestOptions, kind: KindArgument = Kind.CRONJOB) -> None:
    """Print what runs rollout in the cluster, for kubectl apply: account, roles, settings, workload.

    cronjob, deployment and job run `rollout operate`; fleetlock runs the server that hosts with Zincati ask. The
    settings file and known_hosts are checked and go into a ConfigMap. The roles hold the rights that are used, and no
    others. The SSH key stays where it is: make the Secret yourself.

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
    from rollout.manifests.objects import list_document, manifest_text, objects

    _refuse_others(options, kind)
    # what is typed of others would not reach the pod
    here = ("lock.namespace", "metrics.listen")
    others = [name for name in known_settings() if name not in here and not name.startswith("output.")]
    settings.refuse_typed(others, "is not for a pod", "Write it into the settings file of the pod.")
    pod = read_pod_settings(read_file(Path(settings.file) if settings.file else None), serves=kind is Kind.FLEETLOCK)
    # what is typed here goes before what the pod's file says
    lock = settings.lock if "lock.namespace" in settings.typed else pod.settings.lock
    listen = _listen(kind, settings.metrics.listen or pod.settings.metrics.listen)
    installation = _installation(kind, options, lock.namespace, pod, listen)
    document = list_document(objects(installation))
    settings.output.show(document, lambda: manifest_text(installation).rstrip("\n"))
    for line in _next_steps(installation):
        say(line)


def _refuse_others(options: ManifestOptions, kind: Kind) -> None:
    """`UsageError` for a flag that this kind would ignore, and the operator might count on."""
    usual, others = ManifestOptions(), _OF_OTHERS if kind is Kind.FLEETLOCK else _OF_FLEETLOCK
    given = (name for name in others if getattr(options, name) not in (getattr(usual, name), None, []))
    if ignored := [f"--{name.replace('_', '-')}" for name in given]:
        raise UsageError(f"{kind} has no {', '.join(ignored)}", hint="Drop the flags that are for another kind.")


def _installation(
    kind: Kind, options: ManifestOptions, lease_namespace: str, settings: PodSettings, listen: Listen
) -> Installation:
    if kind is not Kind.ROLES and not options.image:
        raise UsageError(
            "no --image: rollout has no published image",
            hint="Build and push your own: docker build -t REGISTRY/node-rollout:TAG . && docker push "
            "REGISTRY/node-rollout:TAG; then --image REGISTRY/node-rollout:TAG.",
        )
    if options.pod_monitor and not (kind is Kind.FLEETLOCK or listen.is_reachable):
        raise UsageError(
            f"--pod-monitor: this {kind} serves no metrics to be scraped",
            hint="fleetlock does, and deployment with --set metrics.listen=:9732; passes have metrics.pushgateway.",
        )
    access = Access(
        options.name or (FLEETLOCK_NAME if kind is Kind.FLEETLOCK else DEFAULT_NAME),
        options.namespace,
        lease_namespace,
        disable_eviction=settings.policy.drain.disable_eviction,
        user={Kind.ROLES: User.PEOPLE, Kind.FLEETLOCK: User.FLEETLOCK}.get(kind, User.OPERATE),
    )
    by_ansible = settings.settings.ssh.executor is Executor.ANSIBLE
    is_without = kind in (Kind.ROLES, Kind.FLEETLOCK)
    known_hosts = "" if is_without else _known_hosts(options.known_hosts, by_authority=by_ansible)
    return Installation(
        kind,
        options.image,
        access,
        Files(settings.text, known_hosts, options.ssh_secret, options.env_secret),
        _times(kind, options, settings),
        listen,
        Service(
            options.replicas,
            tls_secret=options.tls_secret,
            cluster_ip=options.cluster_ip,
            networks=tuple(options.hosts_network or ()),
        ),
        Pod(tuple(options.image_pull_secret or ()), options.pod_monitor),
    )


def _known_hosts(file: Path | None, *, by_authority: bool) -> str:
    """Its content; `InputError` where no host could be trusted by it."""
    from rollout.adapters.ssh.known_hosts_file import vouches

    if file is None:
        raise UsageError(
            "no --known-hosts: the pod would trust no host",
            hint="Fill a file with `rollout known-hosts --out known_hosts`.",
        )
    try:
        text = file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {getattr(error, 'strerror', None) or 'it is no text'}") from error
    if "PRIVATE KEY" in text:
        raise InputError(f"{file} holds a private key", hint="Name the file with the hosts' public keys: known_hosts.")
    if not vouches(text, by_authority=by_authority):
        raise InputError(
            f"{file} has no host in it",
            hint="Fill it with `rollout known-hosts --out FILE`.",
        )
    return text


def _times(kind: Kind, options: ManifestOptions, settings: PodSettings) -> Times:
    from rollout.planning.play.pace import slowest_node_seconds

    if kind is Kind.FLEETLOCK:
        # a drain goes on by any other replica
        return Times(options.schedule, options.time_zone, 0, 0, _MINUTE)
    grace = -(-(slowest_node_seconds(settings.policy) + _MARGIN_SECONDS) // _MINUTE) * _MINUTE
    every = options.every or settings.settings.operate.every
    deadline = options.active_deadline or settings.settings.operate.active_deadline or _DEADLINE
    return Times(options.schedule, options.time_zone, round(every), round(deadline), int(grace))


def _listen(kind: Kind, written: str) -> Listen:
    """Where a standing process is probed; a Job's pod is not there for long enough."""
    from rollout.adapters.metrics import parsed_address

    address = written if kind is Kind.DEPLOYMENT else ""
    if not address:
        return Listen()
    host, port = parsed_address(address)
    return Listen(address, port, is_reachable=host in _EVERYWHERE)


def _next_steps(installation: Installation) -> Iterator[str]:
    """Yield what is left to the operator."""
    from rollout.manifests.objects import names_registry

    if installation.kind is Kind.ROLES:
        return
    if not names_registry(installation.image):
        yield f"warning: {installation.image} names no registry: load it on every node, for it is not pulled"
    key, certificate = installation.files.ssh_secret, installation.service.tls_secret
    secret = f"generic {key} --type=kubernetes.io/ssh-auth --from-file={SSH_KEY}=FILE"
    if serves := installation.kind is Kind.FLEETLOCK:
        secret = f"tls {certificate} --cert=FILE --key=FILE" if certificate else ""
    if secret:
        namespace = installation.access.namespace
        yield f"next, where there is none yet: kubectl -n {namespace} create secret {secret}"
    if serves:
        yield from _hosts_steps(installation)


def _hosts_steps(installation: Installation) -> Iterator[str]:
    """How hosts come to ask, and who else can."""
    service, access = installation.service, installation.access
    if not service.networks:
        yield "warning: every pod can ask for a node's drain; --hosts-network CIDR lets hosts alone ask"
    where = service.cluster_ip or "ADDRESS"
    host = f"[{where}]" if ":" in where else where
    asked = f"kubectl -n {access.namespace} get service {access.name}"
    known = "" if service.cluster_ip else f" (ADDRESS: {asked})"
    yield f'next, for the hosts (docs/fleetlock.md): base_url = "{service.scheme}://{host}/"{known}'
