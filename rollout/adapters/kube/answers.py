"""Which answers are believed: the sole place where bodies of successful answers come in; and why there was none.

A proxy, a login page, or a connection that is cut answers 200 as well. What such an answer says
must not be taken for an empty list or a done deed, and must not surface as a decoder's complaint:
it is an API server that is away for the moment. So every body is looked over once, whole, for being
JSON and of the kind that was asked for; a list's continue token is read on the same way, so that
large pages are not gone through once more.

Exchanges that never came to an answer are told as errors of our tree here, too; answers with a
status that is none of success are read by `rollout.gather.cluster.failure`.
"""

import ssl

import msgspec
import urllib3.exceptions as http

from rollout.errors import ApiError, ApiUnavailableError
from rollout.gather.cluster import wire
from rollout.gather.cluster.decode import garbled
from rollout.model.json_text import NOT_READ

_DISCOVERY = "APIResourceList"
_SUCCESS = b'"Success"'


_DNS_HINT = "Check the server address in the kubeconfig, and this machine's name resolution."
_REACH_HINT = "Check the server address in the kubeconfig, and the network between here and there."
_CA_HINT = (
    "The kubeconfig's certificate-authority is not the one that signed it, or the address is"
    " another's."
)
_DATE_HINT = (
    "Check this machine's clock (timedatectl), then until when the server's certificate is valid."
)
_PLAIN_HINT = (
    "The server does not speak TLS on this port: https:// may have to be http://, or the port is"
    " wrong."
)
_CLIENT_CERT_HINT = (
    "The server asks for another client certificate than the kubeconfig's user has: renew it."
)
_PROXY_HINT = "Check proxy-url in the kubeconfig, and HTTPS_PROXY and NO_PROXY in the environment."
# Markers in OpenSSL's texts: the ssl module gives them no classes of their own.
_VERIFICATION = "CERTIFICATE_VERIFY_FAILED"
_BY_DATE = ("certificate has expired", "certificate is not yet valid")
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_ALERTS = (
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "CERTIFICATE_REQUIRED",
    "ALERT_CERTIFICATE",
    "ALERT_HANDSHAKE_FAILURE",
)
_BROKEN = (http.ProtocolError, http.DecodeError)
# The first that fits, with a sentence and a hint.
_SENTENCES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
    (http.NameResolutionError, "the name of {server} cannot be resolved", _DNS_HINT),
    (http.ProxyError, "no connection to {server} through the proxy: {cause}", _PROXY_HINT),
    (http.NewConnectionError, "no connection to {server}: {cause}", _REACH_HINT),
    (http.ConnectTimeoutError, "no connection to {server}: it did not answer in time", _REACH_HINT),
    ((http.ReadTimeoutError, TimeoutError), "{server} did not answer {request} in time", ""),
    (_BROKEN, "the connection to {server} broke during {request}: {cause}", ""),
    (Exception, "{request} at {server} failed: {cause}", _REACH_HINT),
)


class _Body(wire.Wire, frozen=True):
    kind: str = ""
    api_version: str = ""
    metadata: wire.ListMeta = wire.ListMeta()
    status: msgspec.Raw = msgspec.Raw(b"")


def continue_token(body: bytes, method: str, path: str) -> str:
    """Return the token of the page that follows, empty where none does.

    Raises:
        ApiUnavailableError: The body is no answer of an API server to this request.
    """
    request = f"{method} {path}"
    try:
        read = wire.decoder_of(_Body).decode(body)
    except NOT_READ as error:
        raise garbled(request, error) from error
    if not _is_answer(read, method, path):
        raise garbled(
            request, f"it is of kind {read.kind or 'unknown'} ({read.api_version or 'no version'})"
        )
    return read.metadata.continue_token


def _is_answer(read: _Body, method: str, path: str) -> bool:
    """Whether it is what a path (`/api/VERSION/…`, `/apis/GROUP/VERSION/…`) is about; others are of no kind."""
    root, *parts = path.strip("/").split("/")
    if root not in ("api", "apis"):
        return True
    at = 1 if root == "api" else 2
    version = "/".join(parts[:at])
    rest = parts[at:]
    in_namespace = rest[:1] == ["namespaces"] and len(rest) > 2  # noqa: PLR2004 - else it is the namespace itself
    resource, name, subresource = (*(rest[2:] if in_namespace else rest), "", "", "")[:3]
    if not resource:
        return read.kind == _DISCOVERY
    if subresource and read.kind.lower() == subresource:
        return True
    if read.kind == "Status":
        # The answer to a deed that leaves no object, or not this one, behind.
        return (method == "DELETE" or bool(subresource)) and bytes(read.status) == _SUCCESS
    is_list = method == "GET" and not name
    kind = read.kind.removesuffix("List") if is_list and read.kind.endswith("List") else read.kind
    return (
        read.api_version == version and _plural(kind) == resource and (kind != read.kind) == is_list
    )


def _plural(kind: str) -> str:
    """Return the resource of a kind, by the rule that Kubernetes' own clients guess it by."""
    word = kind.lower()
    if word.endswith(("s", "x", "ch", "sh")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def exchange_error(error: Exception, server: str, request: str) -> ApiError:
    """Return the error that a failed exchange means; `request` is its method and path."""
    if isinstance(error, http.SSLError | ssl.SSLError):
        return _tls_error(error, server)
    sentence, hint = next(
        (sentence, hint) for kinds, sentence, hint in _SENTENCES if isinstance(error, kinds)
    )
    cause = "the answer ended early" if _ended_early(error) else _cause(error)
    return ApiUnavailableError(
        sentence.format(server=server, request=request, cause=cause), hint=hint
    )


def is_broken_off(error: Exception) -> bool:
    """Whether the connection ended without a word: of a TLS error that is only one kind."""
    return isinstance(error, http.ProtocolError) or isinstance(_innermost(error), ssl.SSLEOFError)


def _ended_early(error: Exception) -> bool:
    """Whether a stream ended in the midst of a chunk: the client tells it as a number that it cannot read."""
    unread = isinstance(error, http.InvalidChunkLength) or isinstance(_innermost(error), ValueError)
    return unread and isinstance(error, _BROKEN)


def _tls_error(error: Exception, server: str) -> ApiError:
    text = str(error)
    if _VERIFICATION in text:
        hint = _DATE_HINT if any(marker in text for marker in _BY_DATE) else _CA_HINT
        return ApiError(
            f"the certificate of {server} cannot be verified: {_cause(error)}", hint=hint
        )
    if any(marker in text for marker in _NOT_TLS):
        return ApiError(f"no TLS with {server}: {_cause(error)}", hint=_PLAIN_HINT)
    if any(marker in text for marker in _ALERTS):
        return ApiError(
            f"{server} ended the TLS handshake: {_cause(error)}", hint=_CLIENT_CERT_HINT
        )
    return ApiUnavailableError(
        f"the TLS connection to {server} broke: {_cause(error)}", hint=_REACH_HINT
    )


def _cause(error: BaseException) -> str:
    """Return the innermost reason, without the names of client classes around it."""
    inner = _innermost(error)
    text = getattr(inner, "strerror", None) or getattr(inner, "verify_message", None) or str(inner)
    return str(text) or type(inner).__name__


def _innermost(error: BaseException) -> BaseException:
    wrapped = (part for part in error.args if isinstance(part, BaseException))
    below = error.__cause__ or error.__context__ or next(wrapped, None)
    return error if below is None else _innermost(below)
