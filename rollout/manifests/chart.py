"""The objects as a Helm chart: as they are printed, with a few values in them that an installation may choose."""

import re
from collections.abc import Mapping
from typing import Any

from rollout import __version__
from rollout.manifests.installation import Installation, Json, Kind
from rollout.manifests.objects import objects
from rollout.manifests.pod import KNOWN_HOSTS_FILE, SETTINGS_DIGEST, SETTINGS_FILE, SSH_KEY, digest
from rollout.manifests.writing import file_name, yaml_text

_DESCRIPTIONS = {Kind.FLEETLOCK: "Lets hosts with Zincati reboot once their nodes are drained: a FleetLock server."}
# Stands for a template while an object is made into text; templates are Go's text/template.
_MARK = "ROLLOUT-VALUE-"
_MARKED = re.compile(rf"{_MARK}([\w.]+)")
_DIGEST = f"{_MARK}DIGEST"
_SSH_NOTES = f"""Where there is no Secret for SSH yet:

  kubectl -n {{{{ .Release.Namespace }}}} create secret generic {{{{ .Values.sshSecret }}}} \\
    --type=kubernetes.io/ssh-auth --from-file={SSH_KEY}=FILE
"""
_FLEETLOCK_NOTES = """The hosts ask the address of the Service; what they need for that:

  rollout fleetlock zincati --url {scheme}://ADDRESS/
  kubectl -n {{{{ .Release.Namespace }}}} get service {name} -o jsonpath={{.spec.clusterIP}}
"""


def chart(installation: Installation) -> Mapping[str, str]:
    """Files by their path in the chart. The release's namespace is Helm's to make."""
    documents = (document for document in objects(installation) if document["kind"] != "Namespace")
    marks = _marks(installation)
    templates = {f"templates/{file_name(document)}": _template(document, marks) for document in documents}
    head = {
        "apiVersion": "v2",
        "name": installation.access.name,
        "description": _DESCRIPTIONS.get(
            installation.kind, "Takes hosts through their pending OS updates, unattended."
        ),
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.28.0-0",
    }
    values = yaml_text([_values(installation)])
    return {
        "Chart.yaml": yaml_text([head]),
        "values.yaml": values,
        **templates,
        "templates/NOTES.txt": _notes(installation),
    }


def _notes(installation: Installation) -> str:
    if installation.kind is not Kind.FLEETLOCK:
        return _SSH_NOTES
    return _FLEETLOCK_NOTES.format(scheme=installation.service.scheme, name=installation.access.name)


def _values(installation: Installation) -> Json:
    """What an installation may choose, and this one's choices."""
    files, times = installation.files, installation.times
    when = {"schedule": times.schedule, "timeZone": times.time_zone} if installation.kind is Kind.CRONJOB else {}
    settings = {"settings": files.settings} if files.settings else {}
    if installation.kind is Kind.FLEETLOCK:
        service = installation.service
        named = {"tlsSecret": service.tls_secret, "clusterIP": service.cluster_ip}
        given = {name: value for name, value in named.items() if value}
        return {"image": installation.image, **given, "settings": files.settings}
    return {
        "image": installation.image,
        **when,
        "sshSecret": files.ssh_secret,
        **settings,
        "knownHosts": files.known_hosts,
    }


def _marks(installation: Installation) -> Mapping[tuple[str, str], str]:
    """What stands in the objects' fields, by their keys, and what Helm puts there instead."""
    fields = {
        "sshSecret": "secretName",
        "tlsSecret": "secretName",
        "settings": SETTINGS_FILE,
        "knownHosts": KNOWN_HOSTS_FILE,
    }
    values = _values(installation)
    marks = {(fields.get(name, name), str(value)): f"{_MARK}Values.{name}" for name, value in values.items()}
    marks[SETTINGS_DIGEST, digest(installation.files.settings)] = _DIGEST
    access = installation.access
    if access.namespace in (access.lease_namespace, "default"):
        # what is the lock's, or the Nodes', stays where it is
        return marks
    return {**marks, ("namespace", access.namespace): f"{_MARK}Release.Namespace"}


def _template(document: Json, marks: Mapping[tuple[str, str], str]) -> str:
    text = yaml_text([_marked("", document, marks)]).replace("{{", '{{ "{{" }}')
    text = text.replace(_DIGEST, "{{ .Values.settings | sha256sum }}")
    return _MARKED.sub(r"{{ .\1 | toJson }}", text)


def _marked(key: str, value: Any, marks: Mapping[tuple[str, str], str]) -> Any:
    if isinstance(value, dict):
        return {name: _marked(name, item, marks) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(key, item, marks) for item in value]
    return marks.get((key, value), value) if isinstance(value, str) else value
