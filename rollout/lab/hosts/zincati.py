"""Zincati's FleetLock client.

Source: Zincati's `src/fleet_lock/mod.rs` (requests), `src/update_agent` (states and times),
`src/identity/mod.rs` (the ID) and `src/config` (the drop-ins). This one reads rollout's drop-in
before each request, so that the unit needs no restart.
"""

import asyncio
import hmac
import json
import random
import ssl
import tomllib
from typing import Final
from urllib.parse import urljoin

import aiohttp
from msgspec import Struct

from rollout.lab.hosts.machine import ZINCATI, HostEvent, Machine

STEADY_STATE: Final = "v1/steady-state"
PRE_REBOOT: Final = "v1/pre-reboot"
DROP_IN: Final = "/etc/zincati/config.d/55-rollout-fleetlock.toml"
ANCHORS: Final = "/etc/pki/ca-trust/source/anchors/"
_APPLICATION: Final = bytes.fromhex("de35106b6ec24688b63afddaa156679b")
_STRATEGY: Final = "fleet_lock"
_REFRESH_SECONDS: Final = 300
_HTTP_SECONDS: Final = 30 * 60
_SUCCESS: Final = range(200, 300)
# systemd restarts a unit that has failed.
_RESTART_SECONDS: Final = 10


class ZincatiRequest(Struct, frozen=True):
    """`at` is simulated seconds; `kind` is the error's, empty if granted."""

    at: float
    path: str
    kind: str


def node_id(machine_id: str) -> str:
    """Return an HMAC of the application's ID by the machine's, as a UUID v4."""
    machine_key = bytes.fromhex(machine_id.replace("-", ""))
    digest = bytearray(hmac.digest(machine_key, _APPLICATION, "sha256")[:16])
    digest[6] = (digest[6] & 0x0F) | 0x40
    digest[8] = (digest[8] & 0x3F) | 0x80
    return digest.hex()


def request_body(machine_id: str, group: str) -> bytes:
    """The body is indented as by serde."""
    parameters = {"id": node_id(machine_id), "group": group}
    return json.dumps({"client_params": parameters}, indent=2).encode()


def drop_in(base_url: str, group: str) -> str:
    lines = (
        "[updates]",
        f'strategy = "{_STRATEGY}"',
        "[updates.fleet_lock]",
        f"base_url = {json.dumps(base_url)}",
        "[identity]",
        f"group = {json.dumps(group)}",
        "",
    )
    return "\n".join(lines)


def settings_of(text: str) -> tuple[str, str] | None:
    """Return base URL and group; None if the drop-in configures no server."""
    settings = tomllib.loads(text)
    updates = settings.get("updates", {})
    base_url = updates.get(_STRATEGY, {}).get("base_url")
    if not base_url or updates.get("strategy") != _STRATEGY or not updates.get("enabled", True):
        return None
    group = settings.get("identity", {}).get("group")
    return base_url, group or "default"


class Zincati:
    """`answers` has all requests, from all boots."""

    def __init__(self, machine: Machine, *, rng: random.Random) -> None:
        self.answers: list[ZincatiRequest] = []
        self._machine = machine
        self._rng = rng
        self._task: asyncio.Task[object] | None = None
        machine.observers.append(self._follow)

    def start(self) -> None:
        self._task = self._machine.spawn(self._run())

    def restart(self) -> None:
        """A granted slot is forgotten."""
        if self._task is not None:
            self._task.cancel()
        self.start()

    def _follow(self, event: HostEvent) -> None:
        if event is HostEvent.UP:
            self.start()

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=self._machine.clock.scaled(_HTTP_SECONDS))
        # Zincati's HTTP client sends none of these headers.
        skipped = ("User-Agent", "Content-Type", "Accept-Encoding")
        async with aiohttp.ClientSession(timeout=timeout, skip_auto_headers=skipped) as session:
            await self._request_until_granted(session, STEADY_STATE)
            while self._machine.update_engine.staged is None:
                self._machine.attempt_update()
                await self._pause(_REFRESH_SECONDS)
            await self._request_until_granted(session, PRE_REBOOT)
        self._machine.reboot()

    async def _request_until_granted(self, session: aiohttp.ClientSession, path: str) -> None:
        while await self._request(session, path):
            await self._pause(_REFRESH_SECONDS)

    async def _request(self, session: aiohttp.ClientSession, path: str) -> str:
        base_url, group = await self._settings()
        url = urljoin(base_url, path)
        body = request_body(self._machine.machine_id, group)
        headers = {"fleet-lock-protocol": "true"}
        trust = self._trust(url)
        kind = ""
        try:
            async with session.post(url, data=body, headers=headers, ssl=trust) as response:
                if response.status not in _SUCCESS:
                    kind = _error_kind(response.status, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError):
            kind = "client_failed_request"
        self.answers.append(ZincatiRequest(self._machine.clock.monotonic(), path, kind))
        return kind

    def _trust(self, url: str) -> ssl.SSLContext | bool:
        anchors = [text for path, text in self._machine.files.items() if path.startswith(ANCHORS)]
        if not anchors or not url.startswith("https:"):
            return True
        return ssl.create_default_context(cadata="\n".join(anchors))

    async def _settings(self) -> tuple[str, str]:
        while True:
            settings = settings_of(self._machine.files.get(DROP_IN, ""))
            if settings is not None and self._machine.units.active(ZINCATI):
                return settings
            await self._sleep(_RESTART_SECONDS)

    async def _pause(self, seconds: int) -> None:
        # Random delays keep hosts from requesting at the same time.
        await self._sleep(seconds + max(seconds // 100, 1) * self._rng.randint(0, 10))

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(self._machine.clock.scaled(seconds))


def _error_kind(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["kind"])
    except (ValueError, TypeError, KeyError):
        return f"generic_http_{status}"
