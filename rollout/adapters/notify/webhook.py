"""A plain webhook: the event as JSON in a POST, through the proxies of the environment.

Not by urllib3, which logs whole URLs where an answer is garbled.
"""

import base64
import http.client
import ssl
import urllib.error
import urllib.request
from urllib.parse import unquote, urlsplit, urlunsplit

from rollout import __version__
from rollout.adapters.notify.destination import DeliveryError
from rollout.model.json_text import json_line
from rollout.model.notification import AnyNote

_SECONDS = 5.0
_REFUSED, _SERVER_ERROR = 400, 500
_TRANSIENT = frozenset({408, 425, 429})


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What is meant for one address goes to no other."""

    def redirect_request(self, *_request: object) -> None:
        return None


class Webhook:
    """One URL; a user and password in it are sent as basic authentication."""

    def __init__(self, url: str, name: str) -> None:
        parts = urlsplit(url)
        userinfo, at, address = parts.netloc.rpartition("@")
        self.name = name
        self._url = urlunsplit((*parts[:1], address, *parts[2:4], ""))
        self._headers = {"Content-Type": "application/json", "User-Agent": f"rollout/{__version__}"}
        if at:
            credentials = base64.b64encode(unquote(userinfo).encode()).decode()
            self._headers["Authorization"] = f"Basic {credentials}"

    def send(self, note: AnyNote) -> None:
        """POST one notification."""
        # made of a URL whose scheme is http or https
        request = urllib.request.Request(self._url, json_line(note), self._headers, method="POST")  # noqa: S310
        opener = urllib.request.build_opener(_NoRedirect)
        try:
            with opener.open(request, timeout=_SECONDS):
                pass
        except urllib.error.HTTPError as error:
            error.close()
            final = error.code < _SERVER_ERROR and error.code not in _TRANSIENT
            raise DeliveryError(f"it answers {error.code}", final=final) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise DeliveryError(_why(error)) from None


def _why(error: Exception) -> str:
    """What went wrong, in words that hold nothing of the URL."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    match reason:
        case TimeoutError():
            return "it did not answer in time"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not valid: {reason.verify_message}"
        case OSError() if reason.strerror:
            return f"it cannot be reached: {reason.strerror}"
        case _:
            return f"it does not answer like a web server ({type(reason).__name__})"
