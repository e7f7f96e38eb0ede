"""Checks answers of the API server, and translates failures.

A proxy's answer must not pass for an empty list or a completed change.
"""

import ssl
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import urllib3.exceptions as http

from rollout.errors import ApiError, ApiUnavailableError
from rollout.gather.cluster import wire
from rollout.gather.cluster.decode import invalid_answer
from rollout.model.json_text import DECODE_ERRORS

_DISCOVERY = "APIResourceList"
_GROUP_DISCOVERY = "APIGroup"
_SUCCESS = b'"Success"'
_NAMESPACE_PARTS = 2

_DNS_HINT = "Check the server address in the kubeconfig, and this machine's name resolution."
_REACH_HINT = "Check the server address in the kubeconfig, and the network in between."
_CA_HINT = "Check certificate-authority in the kubeconfig, and whether the server address is right."
_DATE_HINT = (
    "Check this machine's clock (timedatectl), then the expiry of the server's certificate."
)
_PLAIN_HINT = "The server does not speak TLS on this port. Check the port, or use http://."
_CLIENT_CERT_HINT = (
    "The server rejects the client certificate of the kubeconfig's user. Renew the certificate."
)
_PROXY_HINT = "Check proxy-url in the kubeconfig, and HTTPS_PROXY and NO_PROXY in the environment."
# Parts of messages: the ssl module has no such exceptions.
_VERIFICATION_MARKER = "CERTIFICATE_VERIFY_FAILED"
_DATE_MARKERS = ("certificate has expired", "certificate is not yet valid")
_NOT_TLS_MARKERS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_TLS_ALERTS = (
    *("ALERT_BAD_CERTIFICATE", "ALERT_UNKNOWN_CA", "ALERT_CERTIFICATE"),
    *("CERTIFICATE_REQUIRED", "ALERT_HANDSHAKE_FAILURE"),
)
_BROKEN_CONNECTION = (http.ProtocolError, http.DecodeError)
# The first match counts.
_MESSAGES_BY_ERROR: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
    (http.NameResolutionError, "the host name of {server} cannot be resolved", _DNS_HINT),
    (http.ProxyError, "no connection to {server} through the proxy: {cause}", _PROXY_HINT),
    (http.NewConnectionError, "no connection to {server}: {cause}", _REACH_HINT),
    (
        http.ConnectTimeoutError,
        "no connection to {server}: it did not respond in time",
        _REACH_HINT,
    ),
    ((http.ReadTimeoutError, TimeoutError), "{server} did not respond to {request} in time", ""),
    (_BROKEN_CONNECTION, "the connection to {server} broke during {request}: {cause}", ""),
    (Exception, "{request} at {server} failed: {cause}", _REACH_HINT),
)


class _ObjectPath(NamedTuple):
    """Parts of `/apis/GROUP/VERSION/namespaces/NAMESPACE/pods/NAME/log`."""

    version: str
    # Each may be empty.
    resource: str
    name: str
    subresource: str


class _ResponseBody(wire.Wire, frozen=True):
    kind: str = ""
    api_version: str = ""
    metadata: wire.ListMeta = wire.ListMeta()
    status: msgspec.Raw = msgspec.Raw(b"")


def check_answer(body: bytes, method: str, path: str) -> str:
    """Return the token of the next page, or empty.

    Raises `ApiUnavailableError` for a body of another kind.
    """
    request = f"{method} {path}"
    try:
        answer = wire.decoder_of(_ResponseBody).decode(body)
    except DECODE_ERRORS as error:
        raise invalid_answer(request, error) from error
    if not _is_of_expected_kind(answer, method, path):
        kind = answer.kind or "unknown"
        version = answer.api_version or "no version"
        raise invalid_answer(request, f"it is of kind {kind} ({version})")
    return answer.metadata.continue_token


def _is_of_expected_kind(answer: _ResponseBody, method: str, path: str) -> bool:
    """Only paths below `/api` and `/apis` have kinds."""
    root, *parts = path.strip("/").split("/")
    if root not in ("api", "apis"):
        return True
    version_parts = 1 if root == "api" else 2
    requested = _parse_object_path(parts, version_parts)
    if not requested.resource:
        has_version = len(parts) == version_parts
        return answer.kind == (_DISCOVERY if has_version else _GROUP_DISCOVERY)
    # Such as Eviction.
    is_named_by_subresource = answer.kind.lower() == requested.subresource
    if requested.subresource and is_named_by_subresource:
        return True
    if answer.kind == "Status":
        # A deletion leaves no object; a subresource may change another.
        may_be_status = method == "DELETE" or bool(requested.subresource)
        return may_be_status and bytes(answer.status) == _SUCCESS
    is_of_version = answer.api_version == requested.version
    return is_of_version and _is_of_resource(answer.kind, method, requested)


def _is_of_resource(kind: str, method: str, requested: _ObjectPath) -> bool:
    is_list_requested = method == "GET" and not requested.name
    if is_list_requested:
        return kind.endswith("List") and _plural(kind.removesuffix("List")) == requested.resource
    # A custom resource's plural need not follow from its kind.
    has_any_plural = method == "GET" and "." in requested.version
    return has_any_plural or _plural(kind) == requested.resource


def _parse_object_path(parts: Sequence[str], version_parts: int) -> _ObjectPath:
    version = "/".join(parts[:version_parts])
    object_parts = parts[version_parts:]
    # `namespaces/NAME` alone is the namespace itself.
    is_in_namespace = object_parts[:1] == ["namespaces"] and len(object_parts) > _NAMESPACE_PARTS
    if is_in_namespace:
        object_parts = object_parts[_NAMESPACE_PARTS:]
    resource, name, subresource, *_ = (*object_parts, "", "", "")
    return _ObjectPath(version, resource, name, subresource)


def _plural(kind: str) -> str:
    word = kind.lower()
    if word.endswith(("s", "x", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y"):
        return f"{word.removesuffix('y')}ies"
    return f"{word}s"


def exchange_error(error: Exception, server: str, request: str) -> ApiError:
    """Translate an exception of the HTTP client."""
    if isinstance(error, http.SSLError | ssl.SSLError):
        return _tls_error(error, server)
    cause = "the response ended early" if _ended_early(error) else _cause(error)
    for error_types, template, hint in _MESSAGES_BY_ERROR:
        if isinstance(error, error_types):
            message = template.format(server=server, request=request, cause=cause)
            return ApiUnavailableError(message, hint=hint)
    raise AssertionError("the last row is for every exception")


def is_broken_off(error: Exception) -> bool:
    """Whether the connection closed without an answer."""
    if isinstance(error, http.ProtocolError):
        return True
    return isinstance(_innermost_error(error), ssl.SSLEOFError)


def _ended_early(error: Exception) -> bool:
    if not isinstance(error, _BROKEN_CONNECTION):
        return False
    if isinstance(error, http.InvalidChunkLength):
        return True
    return isinstance(_innermost_error(error), ValueError)


def _tls_error(error: Exception, server: str) -> ApiError:
    """Return an `ApiUnavailableError` only if a retry may succeed."""
    text = str(error)
    cause = _cause(error)
    if _VERIFICATION_MARKER in text:
        is_about_dates = any(marker in text for marker in _DATE_MARKERS)
        hint = _DATE_HINT if is_about_dates else _CA_HINT
        return ApiError(f"the certificate of {server} cannot be verified: {cause}", hint=hint)
    if any(marker in text for marker in _NOT_TLS_MARKERS):
        return ApiError(f"TLS with {server} failed: {cause}", hint=_PLAIN_HINT)
    if any(marker in text for marker in _TLS_ALERTS):
        return ApiError(f"{server} ended the TLS handshake: {cause}", hint=_CLIENT_CERT_HINT)
    return ApiUnavailableError(f"the TLS connection to {server} broke: {cause}", hint=_REACH_HINT)


def _cause(error: BaseException) -> str:
    inner = _innermost_error(error)
    text = getattr(inner, "strerror", None) or getattr(inner, "verify_message", None) or str(inner)
    return str(text) or type(inner).__name__


def _innermost_error(error: BaseException) -> BaseException:
    # urllib3 has some causes only in `args`.
    errors_in_args = [part for part in error.args if isinstance(part, BaseException)]
    cause = error.__cause__ or error.__context__ or next(iter(errors_in_args), None)
    return error if cause is None else _innermost_error(cause)
