"""The Status answers of a real API server, word for word where a recording shows them.

Clients decide by code, reason and causes; people read the message. One constructor per refusal keeps all
four together.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from rollout.lab.api.resources import Resource
from rollout.lab.api.store import Json

_UNPROCESSABLE = 422
_TOO_MANY = 429
BUDGET_RETRY_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of `details.causes`; empty fields are left out of the answer."""

    reason: str
    message: str
    field: str = ""

    def as_json(self) -> Json:
        """The cause as clients see it."""
        body = {"reason": self.reason, "message": self.message}
        return {**body, "field": self.field} if self.field else body


class StatusError(Exception):
    """A refusal: what the client gets instead of the object it asked for."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        headers: Mapping[str, str] | None = None,
        metadata: Json | None = None,
    ) -> None:
        super().__init__(message)
        self.code = int(code)
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = dict(headers or {})
        self.metadata = metadata or {}

    def body(self) -> Json:
        """The Status object."""
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return {**body, "code": self.code}


def success(code: int, details: Json | None = None) -> Json:
    """A Status that says it worked; deletions name what went away in `details` and carry no code."""
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**body, "details": details} if details is not None else {**body, "code": code}


def _details(name: str, group: str, kind: str) -> Json:
    pairs = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in pairs.items() if value}


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def unauthorized() -> StatusError:
    """401: a token that nobody has."""
    return StatusError(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str, causes: Iterable[Cause] = ()) -> StatusError:
    """403 about an object, or (without a name) about its whole resource."""
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    details = _details(name, resource.group, resource.plural)
    listed = [cause.as_json() for cause in causes]
    if listed:
        details["causes"] = listed
    return StatusError(HTTPStatus.FORBIDDEN, "Forbidden", f"{subject} is forbidden: {why}", details=details)


def forbidden_path(user: str, verb: str, path: str) -> StatusError:
    """403 about an address that is no resource's."""
    message = f'forbidden: User "{user}" cannot {verb} path "{path}"'
    return StatusError(HTTPStatus.FORBIDDEN, "Forbidden", message, details={})


def namespace_terminating(resource: Resource, name: str, namespace: str) -> StatusError:
    """403: nothing new in a namespace that is going away."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", field="metadata.namespace")
    return forbidden(resource, name, why, [cause])


def unknown_path() -> StatusError:
    """404: no such resource."""
    message = "the server could not find the requested resource"
    return StatusError(HTTPStatus.NOT_FOUND, "NotFound", message, details={})


def not_found(resource: Resource, name: str) -> StatusError:
    """404: no such object."""
    details = _details(name, resource.group, resource.plural)
    return StatusError(HTTPStatus.NOT_FOUND, "NotFound", f'{resource.qualified} "{name}" not found', details=details)


def method_not_allowed() -> StatusError:
    """405."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", message, details={})


def not_acceptable(accepted: Iterable[str]) -> StatusError:
    """406: none of the representations asked for is served."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return StatusError(HTTPStatus.NOT_ACCEPTABLE, "NotAcceptable", message)


def already_exists(resource: Resource, name: str) -> StatusError:
    """409 on create."""
    details = _details(name, resource.group, resource.plural)
    message = f'{resource.qualified} "{name}" already exists'
    return StatusError(HTTPStatus.CONFLICT, "AlreadyExists", message, details=details)


def _conflict(subject: str, details: Json, why: str) -> StatusError:
    message = f"Operation cannot be fulfilled on {subject}: {why}"
    return StatusError(HTTPStatus.CONFLICT, "Conflict", message, details=details)


def stale_version(resource: Resource, name: str) -> StatusError:
    """409: the object was changed since the version that the client read."""
    return _conflict(
        f'{resource.qualified} "{name}"',
        _details(name, resource.group, resource.plural),
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def wrong_uid_on_update(resource: Resource, name: str, asked: str, actual: str) -> StatusError:
    """409: the update was meant for an earlier object of that name."""
    return _conflict(
        f'{resource.qualified} "{name}"',
        _details(name, resource.group, resource.plural),
        f"Precondition failed: UID in precondition: {asked}, UID in object meta: {actual}",
    )


def _failed_precondition(resource: Resource, name: str, why: str) -> StatusError:
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return _conflict(f'{qualified} "{name}"', _details(name, resource.group, resource.kind), why)


def wrong_uid(resource: Resource, name: str, asked: str, actual: str) -> StatusError:
    """409: the deletion was meant for an earlier object of that name."""
    why = (
        f"the UID in the precondition ({asked}) does not match the UID in record ({actual}). "
        "The object might have been deleted and then recreated"
    )
    return _failed_precondition(resource, name, why)


def wrong_version(resource: Resource, name: str, asked: str, actual: str) -> StatusError:
    """409: the deletion was meant for an earlier version of the object."""
    why = (
        f"the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record "
        f"({actual}). The object might have been modified"
    )
    return _failed_precondition(resource, name, why)


def expired(message: str, metadata: Json | None = None) -> StatusError:
    """410: the version asked for is forgotten."""
    return StatusError(HTTPStatus.GONE, "Expired", message, metadata=metadata)


def unsupported_media_type() -> StatusError:
    """415, as a real server's client library words it."""
    return StatusError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "UnsupportedMediaType",
        "415: Unsupported Media Type",
        details={},
    )


def invalid(resource: Resource, name: str, causes: Iterable[Cause]) -> StatusError:
    """422 with a cause per broken rule; the message names each rule once."""
    listed = list(causes)
    details: Json = _details(name, resource.group, resource.kind)
    details["causes"] = [cause.as_json() for cause in listed]
    sentences = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in listed))
    text = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return StatusError(_UNPROCESSABLE, "Invalid", f'{qualified} "{name}" is invalid: {text}', details=details)


def too_large(most: int) -> StatusError:
    """413: more bytes than any object may have."""
    message = f"Request entity too large: limit is {most}"
    return StatusError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message)


def invalid_patch(why: str) -> StatusError:
    """422 for a patch of which no object comes out."""
    cause = Cause("FieldValueInvalid", f"Invalid value: {why}", field="patch")
    message = f' "" is invalid: patch: {cause.message}'
    return StatusError(_UNPROCESSABLE, "Invalid", message, details={"causes": [cause.as_json()]})


def invalid_options(kind: str, cause: Cause) -> StatusError:
    """422 for options of a request that no server knows, such as `DeleteOptions`."""
    details: Json = {"group": "meta.k8s.io", "kind": kind, "causes": [cause.as_json()]}
    message = f'{kind}.meta.k8s.io "" is invalid: {cause.field}: {cause.message}'
    return StatusError(_UNPROCESSABLE, "Invalid", message, details=details)


def version_on_create() -> StatusError:
    """500: a new object that names a version."""
    message = "resourceVersion should not be set on objects to be created"
    return StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, "", message)


def too_many_budgets() -> StatusError:
    """500 without a reason: more than one disruption budget covers the pod."""
    message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    return StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, "", message)


def budget_refuses(cause: str, *, retry_seconds: int = 0) -> StatusError:
    """429: a disruption budget stands against the eviction; `cause` says how it stands."""
    details: Json = {"causes": [Cause("DisruptionBudget", cause).as_json()]}
    headers = {}
    if retry_seconds:
        details["retryAfterSeconds"] = retry_seconds
        headers["Retry-After"] = str(retry_seconds)
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return StatusError(_TOO_MANY, "TooManyRequests", message, details=details, headers=headers)


def future_version(asked: int, current: int) -> StatusError:
    """504: a list was asked at a version that does not exist yet."""
    message = f"Too large resource version: {asked}, current: {current}"
    cause = Cause("ResourceVersionTooLarge", "Too large resource version")
    return StatusError(
        HTTPStatus.GATEWAY_TIMEOUT,
        "Timeout",
        message,
        details={"causes": [cause.as_json()], "retryAfterSeconds": 1},
        headers={"Retry-After": "1"},
    )
