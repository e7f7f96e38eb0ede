"""Who asks, and what they may do.

Everybody with a token may do everything, but for the rights that a test or a scenario takes away; the self
review answers from the same rules, so that it never disagrees with what the server then does.
"""

from collections.abc import Iterable, Mapping

import msgspec

from rollout.lab.api.requests import Target
from rollout.lab.api.resources import Resource
from rollout.lab.api.statuses import StatusError, forbidden, forbidden_path, unauthorized
from rollout.lab.api.store import Json

ANONYMOUS = "system:anonymous"
_PUBLIC = frozenset({"/version", "/version/", "/healthz", "/livez", "/readyz"})
_BEARER = "bearer "
_NO_ROLES = ': RBAC: [clusterrole.rbac.authorization.k8s.io "node-rollout" not found]'


class Denial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A right taken away: a verb (`*`: any) on a resource (`pods`, `pods/eviction`), in a namespace or everywhere."""

    verb: str
    resource: str
    namespace: str = ""

    def covers(self, verb: str, resource: str, namespace: str) -> bool:
        """Whether it stands against the verb."""
        right_verb = self.verb in {"*", verb}
        right_place = self.namespace in {"", namespace}
        return right_verb and right_place and self.resource == resource


class Access:
    """Authentication by bearer token, and authorization by a set of denials.

    `tokens` maps a token to the name of its user.
    """

    def __init__(self, tokens: Mapping[str, str], denials: Iterable[Denial] = ()) -> None:
        self._tokens = dict(tokens)
        self.denials = set(denials)
        self._not_ready_for = 0

    def forget_roles(self, requests: int) -> None:
        """Refuse that many requests, as a server does that has just started and has not read the roles yet."""
        self._not_ready_for = requests

    def user(self, authorization: str) -> str:
        """The user of an Authorization header; raises 401 for a token that nobody has."""
        if not authorization:
            return ANONYMOUS
        if not authorization.lower().startswith(_BEARER):
            raise unauthorized()
        user = self._tokens.get(authorization[len(_BEARER) :].strip())
        if user is None:
            raise unauthorized()
        return user

    def check(self, user: str, target: Target) -> None:
        """Raise a 403 unless the user may do it."""
        if self._not_ready_for and target.resource is not None:
            self._not_ready_for -= 1
            raise _refusal(user, target, target.resource, _NO_ROLES)
        if target.resource is None:
            if user == ANONYMOUS and target.path not in _PUBLIC:
                raise forbidden_path(user, target.verb, target.path)
            return
        if user == ANONYMOUS or not self.allows(target.verb, target.plural, target.namespace):
            raise _refusal(user, target, target.resource)

    def allows(self, verb: str, plural: str, namespace: str) -> bool:
        """Whether no denial stands against it."""
        return not any(denial.covers(verb, plural, namespace) for denial in self.denials)

    def review(self, review: Json) -> Json:
        """Answer a SelfSubjectAccessReview."""
        asked = (review.get("spec") or {}).get("resourceAttributes") or {}
        plural = asked.get("resource", "")
        if asked.get("subresource"):
            plural = f"{plural}/{asked['subresource']}"
        allowed = self.allows(asked.get("verb", ""), plural, asked.get("namespace", ""))
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": review.get("metadata") or {},
            "spec": review.get("spec") or {},
            "status": {"allowed": allowed},
        }


def _refusal(user: str, target: Target, resource: Resource, why: str = "") -> StatusError:
    # The review of one's own rights is about no namespace, and a namespace is not in one.
    scoped = resource.namespaced and target.namespace
    scope = f'in the namespace "{target.namespace}"' if scoped else "at the cluster scope"
    asked = f'cannot {target.verb} resource "{target.plural}" in API group "{resource.group}" {scope}'
    return forbidden(resource, target.name, f'User "{user}" {asked}{why}')
