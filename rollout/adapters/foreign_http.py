"""HTTP exchanges with servers that are none of ours: bounded in time, and in the size of the answer.

No redirect is followed: what is meant for one address goes to no other.
"""

import logging
import ssl
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import urllib3
import urllib3.exceptions

_CHUNK = 1 << 16


class ExchangeError(Exception):
    """There was no answer; the message holds nothing of the URL."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is its beginning where it `is_cut`: there was more than was asked for."""

    status: int
    body: bytes
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds for the exchange, and bytes of its answer; with 0 the answer's body is not waited for."""

    seconds: float
    largest: int = 0


def exchange(
    url: str,
    bounds: Bounds,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    method: str = "GET",
    by_proxy: bool = False,
) -> Answer:
    """What is answered, whatever its status is; `ExchangeError`. `by_proxy`: through those of the environment."""
    # it logs whole URLs, which may be secrets
    logging.getLogger("urllib3").setLevel(logging.CRITICAL + 1)
    deadline = time.monotonic() + bounds.seconds
    try:
        with _pool(url, by_proxy=by_proxy) as pool:
            response = pool.request(
                method,
                url,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(total=bounds.seconds),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            return _read(response, bounds.largest, deadline)
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise ExchangeError(_why(error)) from None


def _pool(url: str, *, by_proxy: bool) -> urllib3.PoolManager:
    parts = urlsplit(url)
    is_direct = not by_proxy or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2])
    proxies = {} if is_direct else urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return urllib3.PoolManager()
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    auth = urllib3.util.parse_url(proxy).auth
    headers = urllib3.util.make_headers(proxy_basic_auth=unquote(auth)) if auth else None
    return urllib3.ProxyManager(proxy, proxy_headers=headers)


def _read(response: urllib3.BaseHTTPResponse, largest: int, deadline: float) -> Answer:
    body = b""
    while largest and len(body) <= largest and (chunk := response.read1(_CHUNK)):
        body += chunk
        if time.monotonic() > deadline:
            raise TimeoutError
    response.close()
    return Answer(response.status, body[:largest], len(body) > largest)


def _why(error: Exception) -> str:
    match innermost(error):
        case TimeoutError() | urllib3.exceptions.TimeoutError():
            return "it did not answer in time"
        case ssl.SSLCertVerificationError() as reason:
            return f"its certificate is not valid: {reason.verify_message}"
        case OSError() as reason if reason.strerror:
            return f"it cannot be reached: {reason.strerror}"
        case reason:
            return f"it does not answer like a web server ({type(reason).__name__})"


def innermost(error: BaseException) -> BaseException:
    """Return what an error of urllib3 came of in the end."""
    while (below := error.__cause__ or error.__context__ or _wrapped(error)) is not None:
        error = below
    return error


def _wrapped(error: BaseException) -> BaseException | None:
    return next((part for part in error.args if isinstance(part, BaseException)), None)
