"""Who asks, and what they may do.

Everybody with a token may do everything, but for the rights that a test or a scenario takes away;
or, where there are grants, nothing but what they hold, as with RBAC. The self review answers from
the same rules, so that it never disagrees with what the server then does.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rollout.lab.api.requests import NOTHING, Target
from rollout.lab.api.statuses import StatusError, forbidden, unauthorized
from rollout.lab.api.store import Json
from rollout.lab.objects import spec_of

ANONYMOUS = "system:anonymous"
_USER = "lab-admin"
_SELF_REVIEW = "selfsubjectaccessreviews"
_NO_ROLES = ': RBAC: [clusterrole.rbac.authorization.k8s.io "node-rollout" not found]'


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody wants to do, as authorizers are asked; `resource` may name a subresource (`pods/eviction`)."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Denial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A right taken away: a verb (`*`: any) on a resource (`pods`, `pods/eviction`), in a namespace or everywhere.

    `name` restricts it to one object.
    """

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def covers(self, act: Act) -> bool:
        """Whether it stands against the act."""
        right_verb = self.verb in {"*", act.verb}
        right_place = self.namespace in {"", act.namespace} and self.name in {"", act.name}
        return right_verb and right_place and self.resource == act.resource


class AccessControl:
    """Authentication by one bearer token, and authorization by a set of denials."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.denials = set[Denial]()
        self.grants: tuple[Callable[[Act], bool], ...] | None = None
        # so many requests are refused, as by a server that has just started and has not read the
        # roles yet
        self.not_ready_for = 0

    def user(self, authorization: str) -> str:
        """Return the user of an Authorization header; raises 401 for a token that nobody has."""
        if not authorization:
            return ANONYMOUS
        # clients in pods write it small
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or token.strip() != self._token:
            raise unauthorized()
        return _USER

    def check(self, user: str, target: Target) -> None:
        """Raise a 403 unless the user may do it."""
        if target.resource is NOTHING:
            return
        if self.not_ready_for:
            self.not_ready_for -= 1
            raise _refusal(user, target, _NO_ROLES)
        act = Act(target.verb, target.resource.group, target.plural, target.namespace, target.name)
        if user == ANONYMOUS or not self.allows(act):
            raise _refusal(user, target)

    def allows(self, act: Act) -> bool:
        """Whether no denial stands against it, and a grant for it where there are any."""
        if any(denial.covers(act) for denial in self.denials):
            return False
        # like every role of a real server's, asking for one's own rights is everybody's
        return (
            self.grants is None
            or act.resource == _SELF_REVIEW
            or any(grants(act) for grants in self.grants)
        )

    def review(self, review: Json) -> Json:
        """Answer a SelfSubjectAccessReview."""
        spec = spec_of(review)
        asked = spec.get("resourceAttributes") or {}
        plural = asked.get("resource", "")
        if asked.get("subresource"):
            plural = f"{plural}/{asked['subresource']}"
        place = (asked.get("namespace", ""), asked.get("name", ""))
        allowed = self.allows(Act(asked.get("verb", ""), asked.get("group", ""), plural, *place))
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": review.get("metadata") or {},
            "spec": spec,
            "status": {"allowed": allowed},
        }


def _refusal(user: str, target: Target, why: str = "") -> StatusError:
    resource = target.resource
    # The review of one's own rights is about no namespace, and a namespace is not in one.
    scoped = resource.namespaced and target.namespace
    scope = f'in the namespace "{target.namespace}"' if scoped else "at the cluster scope"
    asked = (
        f'cannot {target.verb} resource "{target.plural}" in API group "{resource.group}" {scope}'
    )
    return forbidden(resource, target.name, f'User "{user}" {asked}{why}')
