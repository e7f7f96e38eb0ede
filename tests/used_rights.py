"""What the program asked a lab's API server for, as rights, and whether `rollout manifests` prints
each of them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import msgspec

from rollout.adapters.kube.api import USER_AGENT
from rollout.lab.api.access import AccessAttributes
from rollout.lab.api.requests import NOTHING, Target
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from rollout.manifests.objects import Installation, InstallationKind, roles
from rollout.model.gates import GatePolicy, HealthRule
from rollout.model.marks import LEASE_NAMESPACE
from rollout.model.policy import CourtesyPolicy, DrainPolicy, Policy, Restart

# What every account may do on a real server: system:discovery and system:basic-user.
_EVERYBODYS = re.compile(r"/version|/api(/v1)?|/apis(/[a-z0-9.]+(/v[a-z0-9]+)?)?")
# The object that tests name in gates.healthy.
_HEALTHY = HealthRule("cephclusters.ceph.rook.io/rook-ceph/main", "true")
_OWN_REVIEW = "selfsubjectaccessreviews"
# Whom the lab knows nothing of: like a real server, it says so only to those who may ask.
_UNSERVED = re.compile(r"/apis/(?P<group>[a-z0-9.]+)/v[a-z0-9]+/(?P<plural>[a-z]+)")


class Grant(msgspec.Struct, frozen=True, rename="camel"):
    """A rule of RBAC, of a ClusterRole or, where it has a namespace, of a Role."""

    verbs: tuple[str, ...]
    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    resource_names: tuple[str, ...] = ()
    namespace: str = ""

    def covers(self, act: AccessAttributes) -> bool:
        """Whether it allows the act: a rule with names never allows what has none, as creating and
        listing have not.
        """
        right_object = not self.resource_names or act.name in self.resource_names
        right_place = self.namespace in {"", act.namespace} and right_object
        right_kind = act.group in self.api_groups and act.resource in self.resources
        return right_place and right_kind and act.verb in self.verbs


def grants_of(roles: Iterable[Json]) -> tuple[Grant, ...]:
    """Return the rules of ClusterRoles and Roles, each bound to everybody with a token."""
    return tuple(
        msgspec.convert({**rule, "namespace": role["metadata"].get("namespace", "")}, Grant)
        for role in roles
        for rule in role["rules"]
    )


def used(lab: Lab) -> list[AccessAttributes]:
    """What the program asked for that not every account may, each once."""

    def asked() -> list[Target]:
        return [record.target for record in lab.requests if record.user_agent == USER_AGENT]

    # of a lab that a test has stopped, nobody else touches the log
    log = lab.call(asked) if lab._thread.is_alive() else asked()
    acts = (_act(target) for target in dict.fromkeys(log))
    return [act for act in dict.fromkeys(acts) if act is not None]


def _act(target: Target) -> AccessAttributes | None:
    if target.resource is not NOTHING:
        act = AccessAttributes(
            target.verb, target.resource.group, target.plural, target.namespace, target.name
        )
        return None if act.resource == _OWN_REVIEW else act
    if unserved := _UNSERVED.fullmatch(target.path):
        return AccessAttributes(
            "list" if target.verb == "get" else target.verb, unserved["group"], unserved["plural"]
        )
    return (
        None
        if _EVERYBODYS.fullmatch(target.path)
        else AccessAttributes(target.verb, "", target.path)
    )


def unprinted(lab: Lab) -> list[AccessAttributes]:
    """Those that no printed role allows, wherever the lock is, and whether pods are evicted or
    deleted.
    """
    return [
        act
        for act in used(lab)
        if not any(grant.covers(act) for grant in _printed(act.namespace or LEASE_NAMESPACE))
    ]


@cache
def _printed(lock_namespace: str) -> Sequence[Grant]:
    grants: list[Grant] = []
    courtesy = CourtesyPolicy(conditions=True)
    for drain in (DrainPolicy(disable_eviction=True), DrainPolicy(restart=Restart.BLOCKED)):
        policy = Policy(drain=drain, courtesy=courtesy, gates=GatePolicy(healthy=(_HEALTHY,)))
        grants += grants_of(
            roles(
                Installation(
                    kind=InstallationKind.ROLES,
                    lock_namespace=lock_namespace,
                    policy=policy,
                )
            )
        )
    return tuple(grants)


def single(grants: tuple[Grant, ...]) -> Iterator[Grant]:
    """One verb on one resource each."""
    for grant in grants:
        for verb in grant.verbs:
            for resource in grant.resources:
                yield Grant(
                    (verb,), grant.api_groups, (resource,), grant.resource_names, grant.namespace
                )
