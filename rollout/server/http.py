import asyncio
import logging
import signal
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import msgspec
from aiohttp import web

from rollout.model.host import normalize_address
from rollout.model.text import excerpt
from rollout.server.connections import (
    IDLE_SECONDS,
    SHARE_OF_ADDRESS,
    Listening,
    OpenConnections,
    most_host_connections,
    raise_file_limit,
)
from rollout.server.protocol import (
    HEADER,
    INTERNAL_ERROR,
    AnswerKind,
    Denied,
    FleetLockAnswer,
    HostRequest,
    check_request,
    parse_request,
)
from rollout.server.service import Service
from rollout.threads import in_background

LARGEST_BODY = 4096
BODY_SECONDS = 10.0
# Each request uses a thread; a denied host retries after five minutes.
MOST_REQUESTS = 64
MOST_OF_ADDRESS = int(MOST_REQUESTS * SHARE_OF_ADDRESS)
_STOP_SECONDS = 3.0

_LOGGER = logging.getLogger(__name__)
# aiohttp would log each client that hangs up.
_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.disabled = True
Answerer = Callable[[HostRequest], FleetLockAnswer]
# Unread bodies make the connection unusable.
_CLOSING_KINDS = (AnswerKind.BODY_TOO_LARGE, AnswerKind.BODY_TIMEOUT, AnswerKind.SERVER_STOPPING)


class _Handlers:
    def __init__(self, service: Service, metrics: Callable[[], bytes]) -> None:
        self._service = service
        self._render_metrics = metrics
        self._under_way: Counter[str] = Counter()
        self._metrics_lock = asyncio.Lock()
        raise_file_limit()
        self.connections = OpenConnections(most_host_connections())
        self.stopping = False

    def make_application(self) -> web.Application:
        application = web.Application(
            client_max_size=LARGEST_BODY, middlewares=[_errors_as_answers]
        )
        for name, answerer in (
            ("pre-reboot", self._service.pre_reboot),
            ("steady-state", self._service.steady_state),
        ):
            handler = partial(self._answer_host, name, answerer)
            # For wrong methods too, so that their answers are FleetLock's own.
            application.router.add_route("*", f"/v1/{name}", handler)
        application.router.add_get("/healthz", _serve_healthz)
        application.router.add_get("/readyz", self._serve_readyz)
        application.router.add_get("/metrics", self._serve_metrics)
        return application

    async def _answer_host(
        self, name_in_metrics: str, answerer: Answerer, request: web.Request
    ) -> web.Response:
        try:
            answer = await self._answer_within_limits(request, answerer)
        except Denied as denied:
            answer = denied.answer
        # The process may have been suspended since the grant.
        answer = answer.valid_at(self._service.server.clock.monotonic())
        self._service.server.count(name_in_metrics, answer.kind)
        return _json_response(answer)

    async def _answer_within_limits(
        self, request: web.Request, answerer: Answerer
    ) -> FleetLockAnswer:
        if self.stopping:
            raise Denied(AnswerKind.SERVER_STOPPING, "this server is stopping")
        check_request(request.method, request.headers.get(HEADER))
        body = await _read_body(request)
        address = normalize_address(request.remote or "")
        with self.connections.kept_open(request):
            host_request = parse_request(body)
            # Await nothing before the request is counted.
            if self._under_way.total() >= MOST_REQUESTS:
                raise Denied(AnswerKind.SERVER_BUSY, f"{MOST_REQUESTS} requests are in progress")
            if self._under_way[address] >= MOST_OF_ADDRESS:
                raise Denied(
                    AnswerKind.SERVER_BUSY,
                    f"{MOST_OF_ADDRESS} requests from {address} are in progress",
                )
            self._under_way[address] += 1
            try:
                # A background thread does not delay the exit.
                return await asyncio.wrap_future(
                    in_background(lambda: answerer(host_request), "request")
                )
            finally:
                self._under_way[address] -= 1
                if not self._under_way[address]:
                    del self._under_way[address]

    async def _serve_readyz(self, _request: web.Request) -> web.Response:
        why = "this server is stopping" if self.stopping else self._service.why_not_ready()
        return web.Response(text=f"{why or 'ok'}\n", status=503 if why else 200)

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        with self.connections.kept_open(request):
            async with self._metrics_lock:
                body = await asyncio.wrap_future(in_background(self._render_metrics, "metrics"))
        return web.Response(
            body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )


async def _serve_healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _read_body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise Denied(
            AnswerKind.BODY_TIMEOUT, f"the body did not arrive within {BODY_SECONDS:.0f} s"
        ) from None
    except web.HTTPRequestEntityTooLarge:
        raise Denied(
            AnswerKind.BODY_TOO_LARGE, f"the body is larger than {LARGEST_BODY} bytes"
        ) from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise Denied(
            AnswerKind.DECODE_ERROR, f"the body cannot be read: {excerpt(str(error))}"
        ) from error


def _json_response(answer: FleetLockAnswer) -> web.Response:
    body = msgspec.json.encode({"kind": answer.kind.value, "value": answer.value})
    headers = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"}
    response = web.Response(body=body, status=answer.kind.status, headers=headers)
    if answer.kind in _CLOSING_KINDS:
        response.force_close()
    return response


@web.middleware
async def _errors_as_answers(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        message = "available paths: /v1/pre-reboot /v1/steady-state /healthz /readyz /metrics"
        return _json_response(FleetLockAnswer(AnswerKind.NOT_FOUND, message))
    except web.HTTPMethodNotAllowed:
        message = f"{request.method} is not supported"
        return _json_response(FleetLockAnswer(AnswerKind.METHOD_NOT_ALLOWED, message))
    except web.HTTPException as error:
        message = excerpt(error.text or error.reason)
        return _json_response(FleetLockAnswer(AnswerKind.DECODE_ERROR, message))
    except Exception as error:  # noqa: BLE001 - a defect denies the request
        _LOGGER.error("internal error (report it where you got rollout): %r", error)  # noqa: TRY400
        return _json_response(INTERNAL_ERROR)


async def serve_hosts(
    service: Service,
    metrics: Callable[[], bytes],
    listening: Listening,
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM; call `ready` with the URL."""
    tls = listening.load_certificate()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_error)
    stop_requested = asyncio.Event()
    handlers = _Handlers(service, metrics)
    runner = web.AppRunner(
        handlers.make_application(),
        access_log=None,
        logger=_SILENT,
        keepalive_timeout=IDLE_SECONDS,
        shutdown_timeout=_STOP_SECONDS,
        # Nothing would limit a decompressed body.
        auto_decompress=False,
    )
    await runner.setup()
    try:
        assert runner.server is not None  # noqa: S101 - it is set up
        listener = await listening.listen(partial(handlers.connections.accept, runner.server), tls)
        ready(_url(listener.sockets[0], secure=tls is not None))
        tasks = [asyncio.create_task(handlers.connections.close_silent())]
        if tls:
            tasks.append(asyncio.create_task(listening.keep_reloading(tls)))
        for stop_signal in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(stop_signal, stop_requested.set)
        await stop_requested.wait()
        for task in tasks:
            task.cancel()
        handlers.stopping = True
        listener.close()
    finally:
        await runner.cleanup()


def _log_error(_loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
    _LOGGER.warning("warning: %s: %s", context.get("message"), context.get("exception"))


def _url(listener: socket.socket, *, secure: bool) -> str:
    host, port = listener.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    scheme = "https" if secure else "http"
    return f"{scheme}://{host}:{port}"
