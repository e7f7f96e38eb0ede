"""Where notifications go, read from the URLs that the operator wrote.

A URL is a secret: whoever has it can write to the channel. Nothing but its scheme is ever shown, and of a webhook its
host: of a service's URL what stands in the host's place may be the token itself.
"""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from rollout.adapters.notify.destination import Destination
from rollout.adapters.notify.service import Service
from rollout.adapters.notify.webhook import Webhook
from rollout.errors import UsageError

_WEBHOOK = ("http", "https")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")
_PLAIN = re.compile(r"[!-~]+")


def destinations(urls: Iterable[str]) -> tuple[Destination, ...]:
    """A destination a URL, each URL once; `UsageError`, which shows none of them, for one that is none."""
    return tuple(_destination(number, url) for number, url in enumerate(dict.fromkeys(urls), start=1))


def _destination(number: int, url: str) -> Destination:
    scheme = match[1].lower() if (match := _SCHEME.match(url)) else ""
    if not scheme:
        raise UsageError(
            f"notification URL {number} has no scheme",
            hint="Write https://… for a webhook, or an Apprise URL: slack://…, mailto://….",
        )
    if scheme not in _WEBHOOK:
        return Service(url, f"{scheme}:// (URL {number})")
    return Webhook(url, f"{scheme}://{_address(url, number)}")


def _address(url: str, number: int) -> str:
    """Host and port of a webhook."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not _PLAIN.fullmatch(url) or "\\" in url:
        raise UsageError(f"notification URL {number} is not a webhook URL", hint="Write it as https://host/path.")
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"
