"""Which form of eviction the API server takes: found out once a drain, before anything is asked for.

A body of the wrong version is refused as a bad request, which would look like a pod that cannot be evicted.
"""

import msgspec

from rollout.errors import DrainError
from rollout.gather.cluster import decode
from rollout.ports import ClusterApi

CORE = "/api/v1"
CURRENT, OLD = "policy/v1", "policy/v1beta1"

_SUBRESOURCE = "pods/eviction"


class _Resource(msgspec.Struct, frozen=True):
    name: str = ""
    kind: str = ""
    group: str = ""
    version: str = ""


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] = ()


def find_eviction_version(api: ClusterApi) -> str:
    """`policy/v1` where it is served, else `policy/v1beta1`; `DrainError` where pods cannot be evicted at all."""
    served = decode.decode(api.get(CORE), _Resources, CORE).resources
    evictions = [resource for resource in served if resource.name == _SUBRESOURCE and resource.kind == "Eviction"]
    if not any(resource.group and resource.version for resource in evictions):
        raise DrainError(
            "the API server does not serve pods/eviction: pods cannot be evicted within their budgets",
            hint="--disable-eviction deletes pods instead, ignoring their budgets.",
        )
    return CURRENT if any(f"{resource.group}/{resource.version}" == CURRENT for resource in evictions) else OLD
