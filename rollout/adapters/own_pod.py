import os
import socket
from pathlib import Path

from rollout.model.own_node import OwnPod

NODE_VARIABLE = "ROLLOUT_NODE_NAME"
POD_VARIABLE = "ROLLOUT_POD_NAME"
NAMESPACE_VARIABLE = "ROLLOUT_POD_NAMESPACE"
OWN_POD_VARIABLES = (NODE_VARIABLE, POD_VARIABLE, NAMESPACE_VARIABLE)

# The kubelet sets the first in each pod.
_POD_VARIABLES = ("KUBERNETES_SERVICE_HOST", *OWN_POD_VARIABLES)
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


def read_own_pod() -> OwnPod | None:
    """Describe the pod; None outside a pod."""
    if not any(os.environ.get(name) for name in _POD_VARIABLES):
        return None
    return OwnPod(
        node_variable=os.environ.get(NODE_VARIABLE, ""),
        namespace=os.environ.get(NAMESPACE_VARIABLE) or _read_text(_NAMESPACE_FILE),
        name=os.environ.get(POD_VARIABLE) or socket.gethostname(),
        boot_id=_read_text(_BOOT_ID_FILE),
        server=os.environ.get("KUBERNETES_SERVICE_HOST", ""),
    )


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        return ""
