"""A watch on the wire: one JSON object a line, for as long as the client stays and its time lasts."""

from aiohttp import web

from rollout.lab.api.endpoints import Streaming
from rollout.lab.api.representation import JSON, TableOptions, View, encoded, object_body
from rollout.lab.api.store import Json, ObjectStore
from rollout.lab.api.watching import Watch, WatchEvent


async def stream(
    store: ObjectStore, request: web.BaseRequest, streaming: Streaming, *, bookmark_seconds: float, date: str
) -> web.StreamResponse:
    """Serve a watch to its end; the subscription ends with it, also when the client leaves."""
    watch = Watch(store, streaming.request, bookmark_seconds=bookmark_seconds)
    writer = _Lines(store, streaming)
    response = web.StreamResponse(headers={"Content-Type": JSON, "Date": date})
    response.enable_chunked_encoding()
    try:
        await response.prepare(request)
        async for events in watch.batches():
            if events:
                await response.write(b"".join(writer.line(event) for event in events))
        await response.write_eof()
    except ConnectionResetError:
        # The client left between two events; there is nobody to tell.
        return response
    finally:
        watch.close()
    return response


class _Lines:
    """Writes events; of a table's watch only the first carries the column headers."""

    def __init__(self, store: ObjectStore, streaming: Streaming) -> None:
        self._store = store
        self._streaming = streaming
        self._options = streaming.options

    def line(self, event: WatchEvent) -> bytes:
        return encoded({"type": event.type, "object": self._shown(event)})

    def _shown(self, event: WatchEvent) -> Json:
        view = self._streaming.view
        if event.type == "ERROR" or view is View.OBJECT:
            return event.obj
        resource = self._streaming.request.resource
        shown = object_body(resource, event.obj, view, self._store.now(), self._options)
        self._options = TableOptions(include=self._options.include, headers=False)
        return {**shown, "rows": []} if _empty_row(event, view) else shown


def _empty_row(event: WatchEvent, view: View) -> bool:
    """A bookmark is no object, so a table has no row for it."""
    return event.type == "BOOKMARK" and view is View.TABLE
