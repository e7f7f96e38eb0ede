"""The node of this process, if it runs in a pod. It is never drained: that would evict this pod.

The plan excludes it as deferred, so that a process elsewhere reboots it:

1. At its end, the rollout marks the node with the soft taint, and a label that the pod's affinity
   can name. The scheduler then prefers other nodes for the next pod.
2. `operate` then evicts its own pod, unless it ends anyway with `--once`.
3. The pod that replaces it, or a person's next run from elsewhere, reboots the node.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollout.model.finding import OwnNodeDeferred, OwnNodeOnly


@dataclass(frozen=True, slots=True)
class OwnPod:
    """The pod of this process, as far as it knows.

    `node` is from the downward API. `boot_id` is the kernel's: that of the node, except in a
    sandbox with its own kernel. `server` is the API server of the cluster that the pod is in.
    """

    node: str = ""
    namespace: str = ""
    name: str = ""
    boot_id: str = ""
    server: str = ""

    @property
    def key(self) -> str:
        """Return `namespace/name`; empty if they are not known."""
        return f"{self.namespace}/{self.name}" if self.namespace and self.name else ""


@dataclass(frozen=True, slots=True)
class OwnNode:
    """The node of this process. `pod` is namespace/name, or empty.

    `is_only_place`: no other node takes the pod.
    """

    name: str
    pod: str = ""
    is_only_place: bool = False

    @property
    def finding(self) -> "OwnNodeOnly | OwnNodeDeferred":
        """Return why this process does not reboot the node."""
        # Settings and completion import this module at each start, and need no findings.
        from rollout.model.finding import OwnNodeDeferred, OwnNodeOnly  # noqa: PLC0415

        return OwnNodeOnly(self.pod) if self.is_only_place else OwnNodeDeferred(self.pod)

    @property
    def marker(self) -> str:
        """Return how the annotation of a deferred node names this process; empty without a pod."""
        return f"pod {self.pod}" if self.pod else ""
