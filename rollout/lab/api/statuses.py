"""The Status answers of a real API server, word for word from recordings.

Clients decide by code, reason and causes.
"""

from collections.abc import Iterable
from typing import Final

from rollout.lab.api.resources import Resource
from rollout.lab.api.store import Json

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
STALE: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def cause(reason: str, message: str, field: str = "") -> Json:
    entry = {"reason": reason, "message": message}
    if field:
        entry["field"] = field
    return entry


class StatusError(Exception):
    """`retry_seconds` is also sent as the header Retry-After."""

    def __init__(
        self, reason: str, message: str, details: Json | None = None, *, retry_seconds: int = 0
    ) -> None:
        super().__init__(message)
        self.code = CODES[reason]
        self.reason = reason
        self.message = message
        self.details = details
        self.headers: dict[str, str] = {}
        if retry_seconds:
            self.details = {**(details or {}), "retryAfterSeconds": retry_seconds}
            self.headers["Retry-After"] = str(retry_seconds)

    def body(self) -> Json:
        body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def evicted() -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _details(resource: Resource, name: str, causes: Iterable[Json] = (), kind: str = "") -> Json:
    """`kind` is the plural, or the kind for refused content."""
    details = {
        "name": name,
        "group": resource.group,
        "kind": kind or resource.plural,
        "causes": list(causes),
    }
    return {key: value for key, value in details.items() if value}


def _quote(resource: Resource, name: str) -> str:
    return f'{resource.qualified} "{name}"'


def _full_kind(resource: Resource) -> str:
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind


def bad_request(message: str) -> StatusError:
    return StatusError("BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError("Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str, causes: Iterable[Json] = ()) -> StatusError:
    subject = _quote(resource, name) if name else resource.qualified
    details = _details(resource, name, causes)
    return StatusError("Forbidden", f"{subject} is forbidden: {why}", details)


def namespace_terminating(resource: Resource, name: str, namespace: str) -> StatusError:
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    message = f"namespace {namespace} is being terminated"
    terminating = cause("NamespaceTerminating", message, "metadata.namespace")
    return forbidden(resource, name, why, [terminating])


def unknown_path() -> StatusError:
    return StatusError("NotFound", "the server could not find the requested resource", {})


def not_found(resource: Resource, name: str) -> StatusError:
    message = f"{_quote(resource, name)} not found"
    return StatusError("NotFound", message, _details(resource, name))


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError("MethodNotAllowed", message, {})


def already_exists(resource: Resource, name: str) -> StatusError:
    message = f"{_quote(resource, name)} already exists"
    return StatusError("AlreadyExists", message, _details(resource, name))


def _conflict(subject: str, why: str, details: Json) -> StatusError:
    return StatusError("Conflict", f"Operation cannot be fulfilled on {subject}: {why}", details)


def stale_version(resource: Resource, name: str) -> StatusError:
    return _conflict(_quote(resource, name), STALE, _details(resource, name))


def wrong_uid_on_update(resource: Resource, name: str, requested: str, actual: str) -> StatusError:
    why = f"Precondition failed: UID in precondition: {requested}, UID in object meta: {actual}"
    return _conflict(_quote(resource, name), why, _details(resource, name))


def wrong_precondition(resource: Resource, name: str, requested: str, actual: str) -> StatusError:
    why = (
        f"the UID in the precondition ({requested}) does not match the UID in record ({actual})."
        " The object might have been deleted and then recreated"
    )
    details = _details(resource, name, kind=resource.kind)
    return _conflict(f'{_full_kind(resource)} "{name}"', why, details)


def expired(message: str) -> StatusError:
    return StatusError("Expired", message)


def unsupported_media_type() -> StatusError:
    return StatusError("UnsupportedMediaType", "415: Unsupported Media Type", {})


def invalid(resource: Resource, name: str, causes: Iterable[Json]) -> StatusError:
    causes = list(causes)
    sentences = list(dict.fromkeys(f"{broken['field']}: {broken['message']}" for broken in causes))
    text = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    message = f'{_full_kind(resource)} "{name}" is invalid: {text}'
    return StatusError("Invalid", message, _details(resource, name, causes, resource.kind))


def server_error(message: str) -> StatusError:
    return StatusError("", message)


def budget_refuses(why: str, *, retry_seconds: int = 0) -> StatusError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    details = {"causes": [cause("DisruptionBudget", why)]}
    return StatusError("TooManyRequests", message, details, retry_seconds=retry_seconds)
