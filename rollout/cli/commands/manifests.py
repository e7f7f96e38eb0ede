"""`rollout manifests`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options.cluster import LeaseOptions
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.manifests import Format, ManifestOptions
from rollout.cli.options.metrics import ListenOptions
from rollout.errors import InputError, UsageError
from rollout.manifests.installation import Access, Kind

if TYPE_CHECKING:
    from rollout.cli.stages.pod_settings import PodSettings
    from rollout.manifests.installation import Files, Installation, Listen, Times

KindArgument = Annotated[Kind, typer.Argument(help="What to install; roles prints the roles alone.")]

# What is told and written around the work itself.
_MARGIN_SECONDS = 120
_MINUTE = 60
_DEADLINE = 6 * 3600
# What the API server takes, and what kubectl can keep beside it as the state that it applied last.
_MOST_BYTES, _MOST_APPLIED_BYTES = 1 << 20, 1 << 17
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - what the operator may have written


def manifests(
    call: typer.Context,
    options: ManifestOptions,
    lease: LeaseOptions,
    metrics: ListenOptions,
    general: GeneralOptions,
    kind: KindArgument = Kind.CRONJOB,
) -> None:
    """Print what runs `rollout operate` in the cluster, for kubectl apply: account, roles, settings, workload.

    The settings file and known_hosts are checked and go into a ConfigMap. The roles hold the rights that are used, and
    no others. The SSH key stays where it is: make the Secret yourself.

    \b
    Examples:
      rollout manifests --image registry.example/node-rollout:1.0 --known-hosts known_hosts | kubectl apply -f -
      rollout manifests deployment --image ... --known-hosts known_hosts --config rollout.toml
      rollout manifests --image ... --known-hosts known_hosts --format kustomize --out deploy/
      rollout manifests --image ... --known-hosts known_hosts --format helm --out chart/
      rollout manifests roles
    """
    from rollout.cli.stages.pod_settings import read_pod_settings
    from rollout.cli.terminal import say

    settings = read_pod_settings(call)
    source = call.get_parameter_source("lease_namespace")
    is_given = source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")
    lock = lease.lease_namespace if is_given else settings.values["lease_namespace"]
    installation = replace(_installation(kind, options, lock, settings), listen=_listen(kind, metrics, settings))
    if options.format is not Format.YAML:
        _write_files(installation, options.format, options.out)
    else:
        _print(installation, options, as_json=general.as_json)
    for line in _next_steps(installation, options):
        say(line)


def _installation(
    kind: Kind, options: ManifestOptions, lease_namespace: str, settings: "PodSettings"
) -> "Installation":
    from rollout.manifests.installation import Installation

    access = Access(
        options.name,
        options.namespace,
        lease_namespace,
        disable_eviction=options.disable_eviction or settings.policy.drain.disable_eviction,
    )
    if kind is not Kind.ROLES and not options.image:
        raise UsageError(
            "no --image: rollout has no published image",
            hint="Build and push your own: docker build -t REGISTRY/node-rollout:TAG . && docker push "
            "REGISTRY/node-rollout:TAG; then --image REGISTRY/node-rollout:TAG.",
        )
    return Installation(kind, options.image, access, _files(kind, options, settings), _times(options, settings))


def _files(kind: Kind, options: ManifestOptions, settings: "PodSettings") -> "Files":
    from rollout.manifests.installation import Files

    known_hosts = "" if kind is Kind.ROLES else _known_hosts(options.known_hosts)
    size = len(settings.text.encode()) + len(known_hosts.encode())
    if size > _MOST_BYTES:
        raise InputError(
            f"settings and known_hosts have {size} bytes, and a ConfigMap holds {_MOST_BYTES}",
            hint="Leave one key a host (ssh-ed25519), or trust an authority: a line @cert-authority.",
        )
    return Files(settings.text, known_hosts, options.ssh_secret, options.env_secret)


def _known_hosts(file: Path | None) -> str:
    """Its content; `InputError` where no host could be trusted by it."""
    from rollout.adapters.ssh.known_hosts_file import vouches

    if file is None:
        raise UsageError(
            "no --known-hosts: the pod would trust no host",
            hint="Fill a file with `rollout known-hosts --out known_hosts`, or write a line @cert-authority into one.",
        )
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {getattr(error, 'strerror', None) or 'it is no text'}") from error
    if "PRIVATE KEY" in text:
        raise InputError(f"{file} holds a private key", hint="Name the file with the hosts' public keys: known_hosts.")
    if not vouches(text):
        raise InputError(
            f"{file} knows no host",
            hint="Fill it with `rollout known-hosts --out FILE`, or write a line @cert-authority into it.",
        )
    return text


def _times(options: ManifestOptions, settings: "PodSettings") -> "Times":
    from rollout.manifests.installation import Times
    from rollout.planning.grace import slowest_node_seconds

    grace = -(-(slowest_node_seconds(settings.policy) + _MARGIN_SECONDS) // _MINUTE) * _MINUTE
    every = options.every or settings.values["every"]
    deadline = options.active_deadline or settings.values["active_deadline"] or _DEADLINE
    return Times(options.schedule, options.time_zone, round(every), round(deadline), int(grace))


def _listen(kind: Kind, metrics: ListenOptions, settings: "PodSettings") -> "Listen":
    """Where a standing process is probed; a Job's pod is not there for long enough."""
    from rollout.adapters.metrics_server import parsed_address
    from rollout.manifests.installation import Listen

    address = metrics.metrics_listen or settings.values["metrics_listen"]
    if kind is not Kind.DEPLOYMENT or not address:
        return Listen()
    host, port = parsed_address(address)
    return Listen(address, port, is_reachable=host in _EVERYWHERE)


def _print(installation: "Installation", options: ManifestOptions, *, as_json: bool) -> None:
    from rollout.cli.terminal import show, show_bytes
    from rollout.manifests.objects import objects
    from rollout.manifests.writing import list_document, yaml_text
    from rollout.model.json_text import json_document

    if options.out is not None:
        raise UsageError("--out is for --format kustomize and helm", hint="Send the output into a file: > rollout.yaml")
    documents = objects(installation)
    if as_json:
        show_bytes(json_document(list_document(documents)))
    else:
        show(yaml_text(documents).rstrip("\n"))


def _write_files(installation: "Installation", form: Format, folder: Path | None) -> None:
    from rollout.cli.files import write_whole
    from rollout.manifests.chart import chart
    from rollout.manifests.writing import kustomization

    if installation.kind is Kind.ROLES:
        raise UsageError("roles are one text", hint=f"Drop --format {form}, and send the output into a file.")
    if folder is None:
        raise UsageError(f"--format {form} makes several files", hint="Name a directory for them: --out DIR")
    files = chart(installation) if form is Format.HELM else kustomization(installation)
    try:
        folder.mkdir(exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder} is not empty", hint="Name a new directory: what is edited there would be lost.")
        for parent in {(folder / name).parent for name in files}:
            parent.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from error
    for name, text in files.items():
        write_whole(folder / name, text.encode())


def _next_steps(installation: "Installation", options: ManifestOptions) -> Sequence[str]:
    """What is left to the operator."""
    from rollout.manifests.pod import SSH_KEY, names_registry

    if installation.kind is Kind.ROLES:
        return ()
    namespace = installation.access.namespace
    files = installation.files
    side = "--server-side " if len(files.settings) + len(files.known_hosts) > _MOST_APPLIED_BYTES else ""
    what = f"-k {options.out}" if options.out else "-f -"
    apply = [f"next: kubectl apply {side}{what}"] if options.out or side else []
    if options.format is Format.HELM:
        apply = [f"next: helm install {options.name} {options.out} --namespace {namespace} --create-namespace"]
    local = f"{options.image} names no registry: load it on every node, for it is not pulled"
    key = f"{options.ssh_secret} --type=kubernetes.io/ssh-auth --from-file={SSH_KEY}=FILE"
    return (
        *(() if names_registry(options.image) else (f"warning: {local}",)),
        *apply,
        f"next, where there is none yet: kubectl -n {namespace} create secret generic {key}",
    )
