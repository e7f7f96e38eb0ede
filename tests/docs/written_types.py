"""Documents whose form is another program's: Ansible's inventories and Kubernetes' lists, written
down as types.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from rollout.model.detection import Source
from rollout.model.host import UpdateOperation

Untemplated = TypedDict("Untemplated", {"__ansible_unsafe": str})


class HostVariables(TypedDict):
    """How to connect to a host, and facts about the host and its Node."""

    ansible_host: NotRequired[str]
    ansible_port: NotRequired[int]
    ansible_user: NotRequired[str]
    ansible_ssh_private_key_file: NotRequired[str]
    ansible_ssh_common_args: NotRequired[str]
    rollout_ready: bool
    rollout_schedulable: bool
    rollout_control_plane: bool
    rollout_roles: Sequence[str]
    rollout_zone: str
    rollout_os_image: Untemplated
    rollout_kubelet_version: Untemplated
    rollout_labels: Mapping[str, str]
    rollout_annotations: Mapping[str, Untemplated]
    rollout_needs_reboot: NotRequired[bool]
    rollout_detected_by: NotRequired[Sequence[Source]]
    rollout_operation: NotRequired[UpdateOperation]
    rollout_running_version: NotRequired[str]
    rollout_staged_version: NotRequired[str]
    rollout_boot_id: NotRequired[str]


class HostGroup(TypedDict):
    """A group of hosts: `nodes`, `cordoned`, `needs_reboot`, `role_…`, `zone_…`, `os_version_…`."""

    hosts: Sequence[str]


class AllGroup(TypedDict):
    """Ansible's `all` group, which contains the other groups."""

    children: Sequence[str]


class InventoryMeta(TypedDict):
    """Variables of all hosts, so that Ansible does not ask for each host."""

    hostvars: Mapping[str, HostVariables]


class Manifest(TypedDict):
    """A Kubernetes object; for its other fields, see the Kubernetes API."""

    apiVersion: str
    kind: str
    metadata: Mapping[str, Any]


class ManifestList(TypedDict):
    """Objects for `kubectl apply -f -`."""

    apiVersion: Literal["v1"]
    kind: Literal["List"]
    items: Sequence[Manifest]
