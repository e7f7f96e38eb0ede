"""The pod: what it is told, what it can reach, and what it may not do.

It meets the Pod Security Standard `restricted`. Its root cannot be written: what has to be written (the journal,
Ansible's and OpenSSH's files) goes to an emptyDir on /tmp.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256

from rollout.manifests.installation import DEFAULT_NAME, Installation, Json, Kind, Listen
from rollout.model import marks

_USER = 65532
_SETTINGS, _SSH, _TLS = "/etc/rollout/settings", "/etc/rollout/ssh", "/etc/rollout/tls"
# In the volume of the settings.
_FILES = "files"
_SCRATCH = "/tmp"  # noqa: S108 - a volume of its own
# The key of Secrets of the type kubernetes.io/ssh-auth, which the API server checks for.
SSH_KEY = "ssh-privatekey"
SETTINGS_FILE, KNOWN_HOSTS_FILE = "rollout.toml", "known_hosts"
PORT_NAME, METRICS_PORT_NAME = "fleetlock", "metrics"
SETTINGS_DIGEST = "node-rollout.dev/settings-sha256"
_HOSTNAME, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
# Typhoon's label and taint.
_CONTROLLER_LABEL, _CONTROLLER_TAINT = "node.kubernetes.io/controller", "node-role.kubernetes.io/controller"
_PREFER = "preferredDuringSchedulingIgnoredDuringExecution"
_TOLERATED = (_CONTROL_PLANE, "node-role.kubernetes.io/etcd", _CONTROLLER_TAINT, "CriticalAddonsOnly")

# Autoscalers leave the pod where it is.
_UNDISTURBED = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}


def labels(installation: Installation) -> Json:
    """What the pods, and everything else that is printed, are found by."""
    component = {"app.kubernetes.io/component": "fleetlock"} if installation.kind is Kind.FLEETLOCK else {}
    return {"app.kubernetes.io/name": DEFAULT_NAME, "app.kubernetes.io/instance": installation.access.name, **component}


def config_name(installation: Installation) -> str:
    """The ConfigMap's name; not that of the record, which may stand in the same namespace."""
    return f"{installation.access.name}-config"


def settings_data(installation: Installation) -> Mapping[str, str]:
    """Settings and host keys; the FleetLock server trusts no hosts, and always has its settings."""
    files, serves = installation.files, installation.kind is Kind.FLEETLOCK
    settings = {SETTINGS_FILE: files.settings} if files.settings or serves else {}
    return settings if serves else {**settings, KNOWN_HOSTS_FILE: files.known_hosts}


def _settings_volume(installation: Installation) -> Json:
    """Keys have no slashes: where files of folders go along, each says where it stands."""
    volume: Json = {"name": config_name(installation)}
    if carried := installation.files.carried:
        volume["items"] = [
            *({"key": name, "path": name} for name in settings_data(installation)),
            *(
                {"key": file.key, "path": f"{_FILES}/{file.path}", **({"mode": 0o555} if file.is_program else {})}
                for file in carried
            ),
        ]
    return {"name": "settings", "configMap": volume}


def pod_template(installation: Installation) -> Json:
    """The template of a Job, or of a Deployment."""
    ssh = {"name": "ssh", "secret": {"secretName": installation.files.ssh_secret, "defaultMode": 0o440}}
    probes = _probes(installation.listen) if installation.listen.is_reachable else {}
    spec = {
        **({} if installation.kind is Kind.DEPLOYMENT else {"restartPolicy": "Never"}),
        **_pod(installation, {**probes, "args": _arguments(installation)}, {"volume": ssh, "path": _SSH}),
        "affinity": _affinity(installation),
    }
    return {"metadata": {"labels": labels(installation), "annotations": dict(_UNDISTURBED)}, "spec": spec}


def fleetlock_template(installation: Installation) -> Json:
    """The template of the FleetLock server's Deployment: no two pods on one node, in several zones where there are any.

    It uses no SSH: hosts reboot by themselves.
    """
    service, labelled = installation.service, {"matchLabels": labels(installation)}
    tls = {"name": "tls", "secret": {"secretName": service.tls_secret, "defaultMode": 0o440}}
    volumes = [{"volume": tls, "path": _TLS}] if service.tls_secret else []
    apart = {"topologyKey": _HOSTNAME, "labelSelector": labelled}
    zones = {"maxSkew": 1, "topologyKey": _ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": labelled}
    spec = {
        **_pod(installation, _served(installation), *volumes),
        "affinity": {
            **_node_affinity(),
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
        },
        "topologySpreadConstraints": [zones],
    }
    # a server reads its settings once: others are served by other pods
    annotations = {SETTINGS_DIGEST: digest(installation.files.settings)}
    return {"metadata": {"labels": labels(installation), "annotations": annotations}, "spec": spec}


def digest(text: str) -> str:
    """SHA-256, in hex digits."""
    return sha256(text.encode()).hexdigest()


def _pod(installation: Installation, own: Json, *mounted: Json) -> Json:
    """What all pods have in common; `own` fields of the container, further volumes with the path of each."""
    volumes: list[Json] = [
        _settings_volume(installation),
        *(item["volume"] for item in mounted),
        {"name": "scratch", "emptyDir": {"sizeLimit": "256Mi"}},
    ]
    mounts = [
        {"name": "settings", "mountPath": _SETTINGS, "readOnly": True},
        *({"name": item["volume"]["name"], "mountPath": item["path"], "readOnly": True} for item in mounted),
        {"name": "scratch", "mountPath": _SCRATCH},
    ]
    return {
        "serviceAccountName": installation.access.name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": installation.times.grace,
        "tolerations": [{"key": key, "operator": "Exists"} for key in _TOLERATED],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{**_container(installation, mounts), **own}],
        "volumes": volumes,
    }


def _affinity(installation: Installation) -> Json:
    """Not on a node that is left for a process elsewhere; on a control-plane node where there is one: they come last.

    Replicas on different nodes. None of it is demanded: a cluster may have no other node.
    """
    affinity = _node_affinity()
    if installation.kind is Kind.DEPLOYMENT:
        term = {"topologyKey": _HOSTNAME, "labelSelector": {"matchLabels": labels(installation)}}
        affinity["podAntiAffinity"] = {_PREFER: [{"weight": 100, "podAffinityTerm": term}]}
    return affinity


def _node_affinity() -> Json:
    wishes = (
        (100, {"key": marks.DEFERRED, "operator": "DoesNotExist"}),
        *((10, {"key": key, "operator": "Exists"}) for key in (_CONTROL_PLANE, _CONTROLLER_LABEL)),
    )
    nodes = [{"weight": weight, "preference": {"matchExpressions": [wish]}} for weight, wish in wishes]
    return {"nodeAffinity": {_PREFER: nodes}}


def _container(installation: Installation, mounts: Sequence[Json]) -> Json:
    env_secret = installation.files.env_secret
    return {
        "name": "rollout",
        "image": installation.image,
        "imagePullPolicy": "IfNotPresent" if names_registry(installation.image) else "Never",
        "env": _environment(installation),
        **({"envFrom": [{"secretRef": {"name": env_secret}}]} if env_secret else {}),
        "resources": {
            # measured: 88 MiB for 76 pods, 367 MiB for a plan over 30,000; Ansible takes more
            "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi"},
            "limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": list(mounts),
    }


def _probes(listen: Listen) -> Json:
    """Whether the process answers; that its passes fail is told by alerts, and no reason to start it anew."""
    request = {"httpGet": {"path": "/healthz", "port": METRICS_PORT_NAME}, "periodSeconds": 30, "timeoutSeconds": 5}
    return {
        "ports": [{"name": METRICS_PORT_NAME, "containerPort": listen.port, "protocol": "TCP"}],
        "startupProbe": {**request, "periodSeconds": 5, "failureThreshold": 24},
        "livenessProbe": {**request, "failureThreshold": 6},
    }


def _served(installation: Installation) -> Json:
    """Whether a replica answers, and whether it may be asked: one that cannot reach the API server is left alone."""
    service = installation.service
    tls = ["--tls-cert", f"{_TLS}/tls.crt", "--tls-key", f"{_TLS}/tls.key"] if service.tls_secret else []
    probe = {"periodSeconds": 10, "timeoutSeconds": 5}
    healthz, readyz = (
        {"httpGet": {"path": path, "port": PORT_NAME, "scheme": service.scheme.upper()}, **probe}
        for path in ("/healthz", "/readyz")
    )
    return {
        "args": [
            "fleetlock",
            "serve",
            "--listen",
            f":{service.port}",
            *tls,
            *_told(installation),
        ],
        "ports": [{"name": PORT_NAME, "containerPort": service.port, "protocol": "TCP"}],
        "startupProbe": {**healthz, "periodSeconds": 5, "failureThreshold": 24},
        "livenessProbe": {**healthz, "failureThreshold": 6},
        "readinessProbe": readyz,
    }


def names_registry(image: str) -> bool:
    """Whether an image names its registry: without one, every node would ask Docker Hub for somebody else's."""
    host, slash, _ = image.partition("/")
    return bool(slash) and ("." in host or ":" in host or host == "localhost")


def _arguments(installation: Installation) -> list[str]:
    times = installation.times
    if installation.kind is Kind.DEPLOYMENT:
        listen = ["--set", f"metrics.listen={installation.listen.address}"] if installation.listen.address else []
        return ["operate", "--every", f"{times.every}s", *listen, *_told(installation)]
    return [
        "operate",
        "--once",
        "--active-deadline",
        f"{times.deadline}s",
        *_told(installation),
    ]


def _told(installation: Installation) -> list[str]:
    """What its log is to be, where the lock is, and where the pod has the files that its settings name."""
    places = {name: f"{_SETTINGS}/{_FILES}/{place}" for name, place in installation.files.places.items()}
    values = {"lock.namespace": installation.access.lease_namespace, **places}
    return ["--output", "json", *(word for name, value in values.items() for word in ("--set", f"{name}={value}"))]


def _environment(installation: Installation) -> list[Json]:
    """Where the files are, and by the downward API where the pod itself is."""
    serves = installation.kind is Kind.FLEETLOCK
    settings = {"ROLLOUT_CONFIG": f"{_SETTINGS}/{SETTINGS_FILE}"} if installation.files.settings or serves else {}
    ssh = {"ROLLOUT_KNOWN_HOSTS": f"{_SETTINGS}/{KNOWN_HOSTS_FILE}", "ROLLOUT_SSH_KEY": f"{_SSH}/{SSH_KEY}"}
    values = {
        **settings,
        **({} if serves else ssh),
        "HOME": _SCRATCH,
        "TMPDIR": _SCRATCH,
        "XDG_STATE_HOME": f"{_SCRATCH}/state",
        **({"ROLLOUT_DISABLE_EVICTION": "true"} if installation.access.disable_eviction else {}),
    }
    own = {
        "ROLLOUT_NODE_NAME": "spec.nodeName",
        "ROLLOUT_POD_NAME": "metadata.name",
        "ROLLOUT_POD_NAMESPACE": "metadata.namespace",
    }
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in own.items()),
    ]
