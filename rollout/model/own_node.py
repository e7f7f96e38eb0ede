"""The node under this process, where it runs in a pod: never drained, for the drain would end who drains it.

It is left for a run whose process is elsewhere, and marked so that the next pod is placed
elsewhere: by the soft taint, and by a label, which the pod's affinity can name. Neither keeps any
pod away for good, as a cordon would.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollout.model.finding import OwnNodeDeferred, OwnNodeOnly


@dataclass(frozen=True, slots=True)
class OwnPod:
    """What a process in a pod knows of where it runs; each empty where it does not know.

    `node` is what the downward API says; `boot_id` that of the kernel under it, which is the
    node's, but in a sandbox with a kernel of its own. `server` is the API server of the cluster
    that it runs in.
    """

    node: str = ""
    namespace: str = ""
    name: str = ""
    boot_id: str = ""
    server: str = ""

    @property
    def key(self) -> str:
        """Namespace/name; empty where they are not known."""
        return f"{self.namespace}/{self.name}" if self.namespace and self.name else ""


@dataclass(frozen=True, slots=True)
class OwnNode:
    """The node under this process. `pod` is namespace/name, or empty; `is_only_place`: no other node takes that pod."""

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
        """By what a deferred node says that this process has left it; empty where its pod is not known."""
        return f"pod {self.pod}" if self.pod else ""

    @property
    def presence(self) -> str:
        """That this process is there."""
        return f"this process runs on it, in {f'the pod {self.pod}' if self.pod else 'a pod'}"
