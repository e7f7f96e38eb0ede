"""The Status answers of a real API server, word for word where a recording shows them.

Clients decide by code, reason and causes; people read the message. One constructor per refusal keeps all
four together.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from rollout.lab.api.resources import Resource
from rollout.lab.api.store import Json

BUDGET_RETRY_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of `details.causes`; an empty field is left out of the answer."""

    reason: str
    message: str
    field: str = ""

    def as_json(self) -> Json:
        """Return the cause as clients see it."""
        body = {"reason": self.reason, "message": self.message}
        return {**body, "field": self.field} if self.field else body


class StatusError(Exception):
    """A refusal: what the client gets instead of the object it asked for."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        metadata: Json | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = int(code), reason, message
        self.details, self.headers, self.metadata = details, dict(headers or {}), metadata or {}

    def body(self) -> Json:
        """Return the Status object."""
        body = {"kind": "Status", "apiVersion": "v1", "metadata": self.metadata, "status": "Failure"}
        explained = {"message": self.message, **({"reason": self.reason} if self.reason else {})}
        details = {} if self.details is None else {"details": self.details}
        return {**body, **explained, **details, "code": self.code}


def success(code: int) -> Json:
    """Return a Status that says it worked."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


def _about(resource: Resource, name: str, causes: Iterable[Cause] = (), *, kind: str = "") -> Json:
    """Return the details of a refusal: by the plural as a rule, by the kind where an object's content is refused."""
    pairs: Json = {"name": name, "group": resource.group, "kind": kind or resource.plural}
    listed = [cause.as_json() for cause in causes]
    return {key: value for key, value in {**pairs, "causes": listed}.items() if value}


def _full_kind(resource: Resource) -> str:
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind


def bad_request(message: str) -> StatusError:
    """Say that the request is not understood."""
    return StatusError(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def unauthorized() -> StatusError:
    """Nobody has the token."""
    return StatusError(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str, causes: Iterable[Cause] = ()) -> StatusError:
    """About an object, or (without a name) about its whole resource."""
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    return StatusError(
        HTTPStatus.FORBIDDEN, "Forbidden", f"{subject} is forbidden: {why}", _about(resource, name, causes)
    )


def forbidden_path(user: str, verb: str, path: str) -> StatusError:
    """About an address that is no resource's."""
    return StatusError(HTTPStatus.FORBIDDEN, "Forbidden", f'forbidden: User "{user}" cannot {verb} path "{path}"', {})


def namespace_terminating(resource: Resource, name: str, namespace: str) -> StatusError:
    """Nothing new in a namespace that is going away."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", field="metadata.namespace")
    return forbidden(resource, name, why, [cause])


def unknown_path() -> StatusError:
    """There is no such resource."""
    return StatusError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource", {})


def not_found(resource: Resource, name: str) -> StatusError:
    """There is no such object."""
    message = f'{resource.qualified} "{name}" not found'
    return StatusError(HTTPStatus.NOT_FOUND, "NotFound", message, _about(resource, name))


def method_not_allowed() -> StatusError:
    """Say that the resource has no such verb."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", message, {})


def already_exists(resource: Resource, name: str) -> StatusError:
    """Say that the name of a new object is taken."""
    message = f'{resource.qualified} "{name}" already exists'
    return StatusError(HTTPStatus.CONFLICT, "AlreadyExists", message, _about(resource, name))


def _conflict(subject: str, why: str, details: Json) -> StatusError:
    message = f"Operation cannot be fulfilled on {subject}: {why}"
    return StatusError(HTTPStatus.CONFLICT, "Conflict", message, details)


def stale_version(resource: Resource, name: str) -> StatusError:
    """Say that the object was changed since the version that the client read."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return _conflict(f'{resource.qualified} "{name}"', why, _about(resource, name))


def wrong_uid_on_update(resource: Resource, name: str, asked: str, actual: str) -> StatusError:
    """Say that the update was meant for an earlier object of that name."""
    why = f"Precondition failed: UID in precondition: {asked}, UID in object meta: {actual}"
    return _conflict(f'{resource.qualified} "{name}"', why, _about(resource, name))


def wrong_precondition(resource: Resource, name: str, field: str, asked: str, actual: str) -> StatusError:
    """Say that the deletion was meant for an earlier object of that name (`uid`) or version (`resourceVersion`)."""
    word, what = ("UID", "deleted and then recreated") if field == "uid" else ("ResourceVersion", "modified")
    why = (
        f"the {word} in the precondition ({asked}) does not match the {word} in record ({actual}). The object might "
        f"have been {what}"
    )
    return _conflict(f'{_full_kind(resource)} "{name}"', why, _about(resource, name, kind=resource.kind))


def expired(message: str, metadata: Json | None = None) -> StatusError:
    """Say that the version asked for is forgotten."""
    return StatusError(HTTPStatus.GONE, "Expired", message, metadata=metadata)


def unsupported_media_type() -> StatusError:
    """Say that the body is in a form that is not read, as a real server's client library words it."""
    message = "415: Unsupported Media Type"
    return StatusError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message, {})


def too_large(most: int) -> StatusError:
    """More bytes than any object may have."""
    message = f"Request entity too large: limit is {most}"
    return StatusError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message)


def invalid(resource: Resource, name: str, causes: Iterable[Cause]) -> StatusError:
    """Refuse an object, with a cause per broken rule; the message names each rule once."""
    listed = list(causes)
    sentences = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in listed))
    text = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    message = f'{_full_kind(resource)} "{name}" is invalid: {text}'
    return StatusError(
        HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message, _about(resource, name, listed, kind=resource.kind)
    )


def server_error(message: str) -> StatusError:
    """Return a 500, which has no reason."""
    return StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, "", message)


def budget_refuses(cause: str, *, retry_seconds: int = 0) -> StatusError:
    """Say that a disruption budget stands against the eviction; `cause` says how it stands."""
    later = {"retryAfterSeconds": retry_seconds} if retry_seconds else {}
    return StatusError(
        HTTPStatus.TOO_MANY_REQUESTS,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        {"causes": [Cause("DisruptionBudget", cause).as_json()], **later},
        headers={"Retry-After": str(retry_seconds)} if retry_seconds else {},
    )
