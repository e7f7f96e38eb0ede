import re

from rollout.errors import (
    AdmissionDenial,
    ApiCause,
    ApiConflictError,
    ApiError,
    ApiGoneError,
    ApiNotFoundError,
    ApiUnavailableError,
    DenierKind,
    TooManyRequestsError,
)
from rollout.gather.cluster import wire
from rollout.gather.cluster.wire import decoder_of
from rollout.model.json_text import DECODE_ERRORS
from rollout.model.text import excerpt, joined

_BAD_REQUEST = 400
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_INTERNAL = 500
_LONGEST_BODY = 300
# Of a webhook's or policy's message.
_LONGEST_DENIAL = 500

_ERROR_TYPES: dict[int, type[ApiError]] = {
    404: ApiNotFoundError,
    408: ApiUnavailableError,
    409: ApiConflictError,
    410: ApiGoneError,
    429: TooManyRequestsError,
    502: ApiUnavailableError,
    503: ApiUnavailableError,
    504: ApiUnavailableError,
}
# An eviction under two budgets. Other errors 500 may pass.
_FINAL_500 = "more than one PodDisruptionBudget"
# Other 404s are a proxy's, and must not mean that an object is gone.
_NOT_FOUND = 404
_UNKNOWN_PATH_BODY = b"404 page not found"

_UNAUTHORIZED_HINT = (
    "Renew the credentials of the kubeconfig's user, or use another context with --context."
)
_FORBIDDEN_HINT = (
    "Ask an administrator to grant it; `rollout doctor` lists every permission that is needed."
)
_QUOTA_MARKER = "exceeded quota"
_QUOTA_HINT = "Raise that ResourceQuota, or make room in it: kubectl describe quota -n NAMESPACE"
_DENIAL_HINTS = {
    DenierKind.WEBHOOK: "Ask the owner of that admission webhook what it requires.",
    DenierKind.POLICY: (
        "See what the policy requires: kubectl describe validatingadmissionpolicy {name}"
    ),
}
# Text before it is another refusal, which quotes it.
_BEFORE_DENIAL = r'(?:[\w.-]+ "[^"]*" is forbidden: |Internal error occurred: )?'
_DENIED_BY_WEBHOOK = re.compile(
    rf'{_BEFORE_DENIAL}admission webhook "(?P<name>[^"]+)" denied the request'
    r"(?: without explanation|:\s*(?P<message>.*))?",
    re.DOTALL,
)
_DENIED_BY_POLICY = re.compile(
    rf"{_BEFORE_DENIAL}ValidatingAdmissionPolicy '(?P<name>[^']+)'"
    r"(?: with binding '[^']*')? denied request:\s*(?P<message>.*)",
    re.DOTALL,
)
_MISSING_NAMESPACE = re.compile(r'^namespaces "[^"]+" not found$')
_TERMINATING = "NamespaceTerminating"
_MISSING_NAMESPACE_HINT = "Create that namespace, or use another: --set lock.namespace=NAME."
_TERMINATING_NAMESPACE_HINT = (
    "Create that namespace again after it is deleted, or use another: --set lock.namespace=NAME."
)
_REDIRECT_HINT = "The address in the kubeconfig is not that of an API server."


class Details(wire.Wire, frozen=True):
    causes: tuple[ApiCause, ...] = ()
    retry_after_seconds: float | None = None


class Status(wire.Wire, frozen=True):
    kind: str = ""
    message: str = ""
    reason: str = ""
    details: Details = Details()
    code: int = 0


def error_of_answer(status: int, body: bytes, *, request: str, retry_after: str) -> ApiError:
    """`retry_after` is the header: seconds, or a date, which is ignored."""
    answer = _decode_status(body)
    message = answer.message
    if not message:
        text = " ".join(body.decode("utf-8", "replace").split())[:_LONGEST_BODY]
        message = joined(": ", f"the API server responded with {status} to {request}", text)
    if status == _UNAUTHORIZED and _parse_denial(answer.message) is None:
        message = f"the API server does not accept the credentials: {message}"
    # It answers 404 with a Status, or this text for an unknown path.
    is_from_api_server = bool(answer.kind) or body.startswith(_UNKNOWN_PATH_BODY)
    is_from_proxy = status == _NOT_FOUND and not is_from_api_server
    return _make_error(status, message, answer, retry_after, is_from_proxy=is_from_proxy)


def _decode_status(body: bytes) -> Status:
    """Return an empty `Status` for another body, such as a proxy's."""
    try:
        answer = decoder_of(Status).decode(body)
    except DECODE_ERRORS:
        return Status()
    return answer if answer.kind == "Status" else Status()


def error_of_status(status: Status) -> ApiError:
    message = status.message or "the watch ended with an error"
    return _make_error(status.code, message, status)


def _make_error(
    status: int, message: str, answer: Status, retry_after: str = "", *, is_from_proxy: bool = False
) -> ApiError:
    default_type = ApiUnavailableError if status > _INTERNAL else ApiError
    error_type = _ERROR_TYPES.get(status, default_type)
    is_transient_500 = status == _INTERNAL and _FINAL_500 not in message
    if is_from_proxy or is_transient_500:
        error_type = ApiUnavailableError
    causes = answer.details.causes
    seconds = answer.details.retry_after_seconds
    if not seconds or seconds <= 0:
        seconds = float(retry_after) if retry_after.strip().isdecimal() else None
    denial = _parse_denial(answer.message)
    hint = _hint_for(status, causes, message)
    if denial:
        hint = _DENIAL_HINTS[denial.kind].format(name=denial.name)
    return error_type(
        message,
        status=status,
        reason=answer.reason,
        causes=causes,
        retry_after=seconds,
        denial=denial,
        hint=hint,
    )


def _parse_denial(message: str) -> AdmissionDenial | None:
    patterns = {
        DenierKind.WEBHOOK: _DENIED_BY_WEBHOOK,
        DenierKind.POLICY: _DENIED_BY_POLICY,
    }
    for kind, pattern in patterns.items():
        match = pattern.fullmatch(message)
        if match:
            reason = excerpt(match["message"] or "", _LONGEST_DENIAL)
            return AdmissionDenial(kind, excerpt(match["name"]), reason)
    return None


def _hint_for(status: int, causes: tuple[ApiCause, ...], message: str) -> str:
    if status == _UNAUTHORIZED:
        return _UNAUTHORIZED_HINT
    is_namespace_terminating = any(cause.reason == _TERMINATING for cause in causes)
    if status == _FORBIDDEN and is_namespace_terminating:
        return _TERMINATING_NAMESPACE_HINT
    # With a cause, no permission is missing.
    if status == _FORBIDDEN and not causes:
        return _QUOTA_HINT if _QUOTA_MARKER in message else _FORBIDDEN_HINT
    if status == _NOT_FOUND and _MISSING_NAMESPACE.match(message):
        return _MISSING_NAMESPACE_HINT
    if status < _BAD_REQUEST:
        return _REDIRECT_HINT
    return ""
