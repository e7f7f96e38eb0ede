"""The node of this process, which is never drained: that would evict its own pod.

The plan defers the node. At the end, a soft taint and a label keep the next pod away, and `operate`
evicts its own pod. The next pod, or a person elsewhere, reboots the node.
"""

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rollout.model.finding import OwnNodeDeferred, OwnNodeOnly


class OwnPod(Struct, frozen=True):
    """The pod of this process; unknown values are empty."""

    # The value of ROLLOUT_NODE_NAME.
    node_variable: str = ""
    namespace: str = ""
    name: str = ""
    # The node's, except in a sandbox with its own kernel.
    boot_id: str = ""
    # The API server of the pod's cluster.
    server: str = ""

    @property
    def key(self) -> str:
        """Return `namespace/name`, or empty."""
        return f"{self.namespace}/{self.name}" if self.namespace and self.name else ""


class OwnNode(Struct, frozen=True):
    """The node of this process, which runs in a pod; `is_only_place` if no other node takes it."""

    name: str
    pod: str = ""
    is_only_place: bool = False

    @property
    def finding(self) -> "OwnNodeOnly | OwnNodeDeferred":
        """Return why this process does not reboot the node."""
        # This module is imported at each start, and the import of findings would slow it down.
        from rollout.model.finding import OwnNodeDeferred, OwnNodeOnly  # noqa: PLC0415

        return OwnNodeOnly(self.pod) if self.is_only_place else OwnNodeDeferred(self.pod)

    @property
    def marker(self) -> str:
        """Return this process's name for the deferral, or empty."""
        return f"pod {self.pod}" if self.pod else ""
