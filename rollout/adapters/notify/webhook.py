"""A plain webhook: the event as JSON in a POST, through the proxies of the environment."""

import base64
from urllib.parse import unquote, urlsplit, urlunsplit

from rollout import __version__
from rollout.adapters.foreign_http import Bounds, ExchangeError, exchange, request_to
from rollout.adapters.notify.destination import DeliveryError
from rollout.model.json_text import json_line
from rollout.model.notification import Note

_BOUNDS = Bounds(seconds=5.0)
_FAILURES, _SERVER_ERROR = 300, 500
_TRANSIENT = frozenset({408, 425, 429})


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

    def send(self, note: Note) -> None:
        """POST one notification."""
        request = request_to(self._url, self._headers, json_line(note), "POST")
        try:
            status = exchange(request, _BOUNDS, by_proxy=True).status
        except ExchangeError as error:
            raise DeliveryError(str(error)) from None
        if status >= _FAILURES:
            raise DeliveryError(f"it answers {status}", final=status < _SERVER_ERROR and status not in _TRANSIENT)
