import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from email.utils import format_datetime
from weakref import WeakSet

from aiohttp import web

from rollout.lab.api.access import AccessControl
from rollout.lab.api.endpoints import EndpointResponse, Endpoints, refused
from rollout.lab.api.faults import ApiFault, FaultAnswer, FaultPlan, cut_answer, stand_in
from rollout.lab.api.lifecycle import SYSTEM_NAMESPACES, ensure_namespace
from rollout.lab.api.reads import BOOKMARK_SECONDS, Watch, follow
from rollout.lab.api.representation import JSON, compress, encode_body, object_body
from rollout.lab.api.requests import Call, RequestLog, RequestRecord, parse_target
from rollout.lab.api.statuses import StatusError
from rollout.lab.api.store import Json, ObjectStore
from rollout.lab.clock import LabClock
from rollout.lab.listener import LOOPBACK, Listener, open_socket, reserve_port

_LOGGED_BYTES = 1000
_SHUTDOWN_SECONDS = 1.0
_WITHOUT_ANSWER = frozenset({FaultAnswer.HANG, FaultAnswer.OUTAGE, FaultAnswer.DROP})


class ApiServer:
    """Serves the store over HTTPS, in the event loop that owns the store."""

    def __init__(
        self,
        store: ObjectStore,
        clock: LabClock,
        *,
        token: str,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.store = store
        self.access = AccessControl(token)
        self.faults = FaultPlan(now=clock.monotonic)
        self.requests = RequestLog()
        self.port = 0
        self._clock = clock
        self._ssl = ssl_context
        self._endpoints = Endpoints(store, self.access)
        self._connections: _TrackingServer | None = None
        self._listener = Listener(self._handshake)
        # Keeps the port during outages.
        self._reservation: socket.socket | None = None
        self._stopped = False
        self._outage: asyncio.Task[None] | None = None
        for name in SYSTEM_NAMESPACES:
            ensure_namespace(store, name)

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.port}"

    async def start(self) -> None:
        self._reservation = reserve_port()
        if self._reservation is not None:
            self.port = self._reservation.getsockname()[1]
        self._connections = _TrackingServer(self._handle)
        self.come_back()

    async def stop(self) -> None:
        self._stopped = True
        if self._outage is not None:
            self._outage.cancel()
        await self.go_away()
        if self._connections is not None:
            await self._connections.shutdown(_SHUTDOWN_SECONDS)
        if self._reservation is not None:
            self._reservation.close()

    async def go_away(self) -> None:
        self._listener.break_off()
        await self._listener.wait_for_handshakes()
        self.cut_connections()

    def cut_connections(self) -> None:
        if self._connections is not None:
            self._connections.abort()

    def come_back(self) -> None:
        if self._connections is None or self._stopped or self._listener.listening:
            return
        listening = open_socket(LOOPBACK, self.port)
        self.port = listening.getsockname()[1]
        self._listener.listen(listening)

    async def outage(self, seconds: float | None, *, refused: int = 0) -> None:
        """`seconds` are simulated; None lasts until `come_back`.

        Afterwards the first `refused` requests get a 403.
        """
        await self.go_away()
        self.access.not_ready_for = refused
        if seconds is not None:
            await asyncio.sleep(self._clock.scaled(seconds))
            self.come_back()

    async def _handshake(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        if self._connections is not None:
            await loop.connect_accepted_socket(self._connections, connection, ssl=self._ssl)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        payload = await request.content.read()
        # kubectl's client for scales sends no type, which a real server takes for JSON.
        has_type = payload and "Content-Type" in request.headers
        call = Call(
            target=parse_target(request.method, request.path, request.query),
            query=request.query,
            accept=request.headers.get("Accept", ""),
            content_type=request.content_type if has_type else "",
            payload=payload,
            user_agent=request.headers.get("User-Agent", ""),
        )
        try:
            answer = await self._answer(request, call)
        except asyncio.CancelledError:
            self._log(request, call, 0)
            raise
        if isinstance(answer, Watch):
            self._log(request, call, web.HTTPOk.status_code)
            return await self._stream(request, answer)
        self._log(request, call, answer.status)
        return await self._respond(request, answer)

    async def _respond(
        self, request: web.BaseRequest, answer: EndpointResponse
    ) -> web.StreamResponse:
        accepted = request.headers.get("Accept-Encoding", "")
        payload, encoding_headers = compress(answer.payload, accepted)
        headers = {"Content-Type": answer.content_type, "Date": self._date()}
        headers |= encoding_headers
        headers |= answer.headers
        if answer.breaks_off:
            return await _respond_cut(request, answer.status, payload, headers)
        return web.Response(status=answer.status, body=payload, headers=headers)

    async def _stream(self, request: web.BaseRequest, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": JSON, "Date": self._date()})
        response.enable_chunked_encoding()
        bookmark_seconds = self._clock.scaled(BOOKMARK_SECONDS)
        batches = follow(self.store, watch, bookmark_seconds=bookmark_seconds)
        with suppress(ConnectionResetError):
            await response.prepare(request)
            async with aclosing(batches):
                async for events in batches:
                    lines = [_line(self.store, watch, event) for event in events]
                    if lines:
                        await response.write(b"".join(lines))
            await response.write_eof()
        return response

    async def _answer(self, request: web.BaseRequest, call: Call) -> EndpointResponse | Watch:
        fault = self.faults.strike(call.target)
        if fault is None:
            return self._compute(request, call)
        replacement = stand_in(fault)
        if replacement is not None:
            if fault.done:
                self._compute(request, call)
            return replacement
        await self._delay_or_break(request, fault)
        answer = self._compute(request, call)
        if fault.answer is FaultAnswer.LOSE_ANSWER:
            await _break_connection(request)
        return cut_answer(fault, answer)

    async def _delay_or_break(self, request: web.BaseRequest, fault: ApiFault) -> None:
        if fault.answer is FaultAnswer.SLOW:
            await asyncio.sleep(self._clock.scaled(fault.delay))
        elif fault.answer is FaultAnswer.HANG:
            seconds = fault.delay or self.faults.remaining(fault)
            await asyncio.sleep(self._clock.scaled(seconds))
        elif fault.answer is FaultAnswer.OUTAGE:
            self._listener.stop_accepting()
            self._outage = asyncio.create_task(self.outage(fault.duration, refused=fault.refused))
        if fault.answer in _WITHOUT_ANSWER:
            await _break_connection(request)

    def _compute(self, request: web.BaseRequest, call: Call) -> EndpointResponse | Watch:
        try:
            user = self.access.user(request.headers.get("Authorization", ""))
            self.access.check(user, call.target)
            return self._endpoints.answer(call)
        except StatusError as refusal:
            return refused(refusal)

    def _date(self) -> str:
        """Return the lab's time; aiohttp would send this machine's."""
        return format_datetime(self._clock.now(), usegmt=True)

    def _log(self, request: web.BaseRequest, call: Call, status: int) -> None:
        record = RequestRecord(
            at=time.monotonic(),
            method=request.method,
            target=call.target,
            query=dict(call.query),
            status=status,
            user_agent=call.user_agent,
            body=call.payload[:_LOGGED_BYTES].decode(errors="replace"),
        )
        self.requests.append(record)


class _TrackingServer(web.Server):
    """aiohttp forgets connections before they close."""

    def __init__(self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(handle, handler_cancellation=True, access_log=None)
        self._transports = WeakSet[asyncio.Transport]()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._transports.add(transport)

    def abort(self) -> None:
        for transport in list(self._transports):
            transport.abort()


async def _respond_cut(
    request: web.BaseRequest, status: int, payload: bytes, headers: Mapping[str, str]
) -> web.StreamResponse:
    # Even an empty payload is announced as longer, so that the client notices.
    announced = {**headers, "Content-Length": str(2 * len(payload) + 2)}
    response = web.StreamResponse(status=status, headers=announced)
    response.force_close()
    await response.prepare(request)
    await response.write(payload)
    if request.transport is not None:
        request.transport.close()
    return response


async def _break_connection(request: web.BaseRequest) -> None:
    """Never return: the server then cancels the handler."""
    if request.transport is not None:
        request.transport.abort()
    await asyncio.get_running_loop().create_future()


def _line(store: ObjectStore, watch: Watch, event: Json) -> bytes:
    if event["type"] == "ERROR" or not watch.include:
        return encode_body(event)
    table = object_body(watch.target.resource, event["object"], store.now(), watch.include)
    if event["type"] == "BOOKMARK":
        # A bookmark has no row.
        table = {**table, "rows": []}
    return encode_body({**event, "object": table})
