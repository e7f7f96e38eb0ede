"""The Status answers of a real API server, word for word where a recording shows them.

Clients decide by code, reason and causes; people read the message. One constructor per refusal
keeps all four together.
"""

from collections.abc import Iterable
from typing import Final

from rollout.lab.api.resources import Resource
from rollout.lab.api.store import Json

# By reason; an error of the server's own has none.
CODES: Final = {
    "BadRequest": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "AlreadyExists": 409,
    "Conflict": 409,
    "Expired": 410,
    "UnsupportedMediaType": 415,
    "Invalid": 422,
    "TooManyRequests": 429,
    "": 500,
    "InternalError": 500,
    "ServiceUnavailable": 503,
    "Timeout": 504,
}
BUDGET_RETRY_SECONDS: Final = 10


def cause(reason: str, message: str, field: str = "") -> Json:
    """Return one entry of `details.causes`."""
    return {"reason": reason, "message": message, **({"field": field} if field else {})}


class StatusError(Exception):
    """A refusal: what the client gets instead of the object it asked for; `retry_seconds` stand in a header, too."""

    def __init__(
        self, reason: str, message: str, details: Json | None = None, *, retry_seconds: int = 0
    ) -> None:
        super().__init__(message)
        self.code = CODES[reason]
        self.reason = reason
        self.message = message
        self.details = (
            {**(details or {}), "retryAfterSeconds": retry_seconds} if retry_seconds else details
        )
        self.headers = {"Retry-After": str(retry_seconds)} if retry_seconds else {}

    def body(self) -> Json:
        """Return the Status object."""
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        explained = {"message": self.message, **({"reason": self.reason} if self.reason else {})}
        details = {} if self.details is None else {"details": self.details}
        return {**body, **explained, **details, "code": self.code}


def evicted() -> Json:
    """Return the Status that says that an eviction worked."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _about(resource: Resource, name: str, causes: Iterable[Json] = (), *, kind: str = "") -> Json:
    """Return the details of a refusal: by the plural as a rule, by the kind where an object's content is refused."""
    pairs: Json = {"name": name, "group": resource.group, "kind": kind or resource.plural}
    return {key: value for key, value in {**pairs, "causes": list(causes)}.items() if value}


def _full_kind(resource: Resource) -> str:
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind


def bad_request(message: str) -> StatusError:
    """Say that the request is not understood."""
    return StatusError("BadRequest", message)


def unauthorized() -> StatusError:
    """Nobody has the token."""
    return StatusError("Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str, causes: Iterable[Json] = ()) -> StatusError:
    """About an object, or (without a name) about its whole resource."""
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    return StatusError(
        "Forbidden", f"{subject} is forbidden: {why}", _about(resource, name, causes)
    )


def namespace_terminating(resource: Resource, name: str, namespace: str) -> StatusError:
    """Nothing new in a namespace that is going away."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    going = cause(
        "NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace"
    )
    return forbidden(resource, name, why, [going])


def unknown_path() -> StatusError:
    """There is no such resource."""
    return StatusError("NotFound", "the server could not find the requested resource", {})


def not_found(resource: Resource, name: str) -> StatusError:
    """There is no such object."""
    return StatusError(
        "NotFound", f'{resource.qualified} "{name}" not found', _about(resource, name)
    )


def method_not_allowed() -> StatusError:
    """Say that the resource has no such verb."""
    return StatusError(
        "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
    )


def already_exists(resource: Resource, name: str) -> StatusError:
    """Say that the name of a new object is taken."""
    return StatusError(
        "AlreadyExists", f'{resource.qualified} "{name}" already exists', _about(resource, name)
    )


def _conflict(subject: str, why: str, details: Json) -> StatusError:
    return StatusError("Conflict", f"Operation cannot be fulfilled on {subject}: {why}", details)


def stale_version(resource: Resource, name: str) -> StatusError:
    """Say that the object was changed since the version that the client read."""
    why = (
        "the object has been modified; please apply your changes to the latest version and try"
        " again"
    )
    return _conflict(f'{resource.qualified} "{name}"', why, _about(resource, name))


def wrong_uid_on_update(resource: Resource, name: str, asked: str, actual: str) -> StatusError:
    """Say that the update was meant for an earlier object of that name."""
    why = f"Precondition failed: UID in precondition: {asked}, UID in object meta: {actual}"
    return _conflict(f'{resource.qualified} "{name}"', why, _about(resource, name))


def wrong_precondition(resource: Resource, name: str, asked: str, actual: str) -> StatusError:
    """Say that the deletion was meant for an earlier object of that name."""
    why = (
        f"the UID in the precondition ({asked}) does not match the UID in record ({actual}). The"
        " object might have been deleted and then recreated"
    )
    return _conflict(
        f'{_full_kind(resource)} "{name}"', why, _about(resource, name, kind=resource.kind)
    )


def expired(message: str) -> StatusError:
    """Say that the version asked for is forgotten."""
    return StatusError("Expired", message)


def unsupported_media_type() -> StatusError:
    """Say that the body is in a form that is not read, as a real server's client library words it."""
    return StatusError("UnsupportedMediaType", "415: Unsupported Media Type", {})


def invalid(resource: Resource, name: str, causes: Iterable[Json]) -> StatusError:
    """Refuse an object, with a cause per broken rule; the message names each rule once."""
    listed = list(causes)
    sentences = list(dict.fromkeys(f"{broken['field']}: {broken['message']}" for broken in listed))
    text = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    message = f'{_full_kind(resource)} "{name}" is invalid: {text}'
    return StatusError("Invalid", message, _about(resource, name, listed, kind=resource.kind))


def server_error(message: str) -> StatusError:
    """Return a 500, which has no reason."""
    return StatusError("", message)


def budget_refuses(why: str, *, retry_seconds: int = 0) -> StatusError:
    """Say that a disruption budget stands against the eviction; `why` says how it stands."""
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    details = {"causes": [cause("DisruptionBudget", why)]}
    return StatusError("TooManyRequests", message, details, retry_seconds=retry_seconds)
