from collections.abc import Callable

import msgspec
from msgspec import Struct

from rollout.lab.api.requests import NOTHING, Target
from rollout.lab.api.statuses import StatusError, forbidden, unauthorized
from rollout.lab.api.store import Json
from rollout.lab.objects import spec_of

ANONYMOUS = "system:anonymous"
_USER = "lab-admin"
_SELF_REVIEW = "selfsubjectaccessreviews"
_NO_ROLES = ': RBAC: [clusterrole.rbac.authorization.k8s.io "node-rollout" not found]'


class AccessAttributes(Struct, frozen=True):
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Denial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`*` is any verb; an empty namespace or name means all."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def covers(self, act: AccessAttributes) -> bool:
        return (
            self.verb in {"*", act.verb}
            and self.resource == act.resource
            and self.namespace in {"", act.namespace}
            and self.name in {"", act.name}
        )


class AccessControl:
    """Without grants (None), users may do all that no denial covers."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.denials = set[Denial]()
        self.grants: tuple[Callable[[AccessAttributes], bool], ...] | None = None
        # Requests to refuse, as by a server that has not read the roles yet.
        self.not_ready_for = 0

    def user(self, authorization: str) -> str:
        if not authorization:
            return ANONYMOUS
        # Clients in pods write it in lower case.
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or token.strip() != self._token:
            raise unauthorized()
        return _USER

    def check(self, user: str, target: Target) -> None:
        if target.resource is NOTHING:
            return
        if self.not_ready_for:
            self.not_ready_for -= 1
            raise _refusal(user, target, _NO_ROLES)
        act = AccessAttributes(
            verb=target.verb,
            group=target.resource.group,
            resource=target.plural,
            namespace=target.namespace,
            name=target.name,
        )
        if user == ANONYMOUS or not self.allows(act):
            raise _refusal(user, target)

    def allows(self, act: AccessAttributes) -> bool:
        if any(denial.covers(act) for denial in self.denials):
            return False
        if self.grants is None or act.resource == _SELF_REVIEW:
            return True
        return any(grants(act) for grants in self.grants)

    def review(self, review: Json) -> Json:
        spec = spec_of(review)
        attributes = spec.get("resourceAttributes") or {}
        resource = attributes.get("resource", "")
        if attributes.get("subresource"):
            resource = f"{resource}/{attributes['subresource']}"
        act = AccessAttributes(
            verb=attributes.get("verb", ""),
            group=attributes.get("group", ""),
            resource=resource,
            namespace=attributes.get("namespace", ""),
            name=attributes.get("name", ""),
        )
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": review.get("metadata") or {},
            "spec": spec,
            "status": {"allowed": self.allows(act)},
        }


def _refusal(user: str, target: Target, why: str = "") -> StatusError:
    resource = target.resource
    scope = "at the cluster scope"
    if resource.namespaced and target.namespace:
        scope = f'in the namespace "{target.namespace}"'
    right = f'{target.verb} resource "{target.plural}" in API group "{resource.group}" {scope}'
    return forbidden(resource, target.name, f'User "{user}" cannot {right}{why}')
