"""The server of the live page, for this machine only; needs the extra ``watch``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rido.core.extras import import_extra
from rido.integrations.live import LiveRun
from rido.plots.live import live_html

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_HOSTS = ["127.0.0.1", "localhost"]  # other names could be those of a page that wants to read along
_SECONDS = 0.3  # between two looks at the file


def watch_app(path: str | Path) -> Starlette:
    """Returns an application that serves the live page of a run. It never writes to the run's files."""
    import_extra("rido watch", "starlette", "watch")
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import HTMLResponse, StreamingResponse
    from starlette.routing import Route

    run, page = LiveRun(path), live_html(str(path))
    reader = ThreadPoolExecutor(1)  # a connection to SQLite stays in one thread

    async def show(request: Request) -> Response:
        return HTMLResponse(page)

    async def stream() -> AsyncIterator[str]:
        loop, shown = asyncio.get_running_loop(), None
        while not app.state.ended():
            state = await loop.run_in_executor(reader, run.state)
            if state is not shown:
                yield f"data: {json.dumps(state, allow_nan=False)}\n\n"
                shown = state
            await asyncio.sleep(_SECONDS)

    async def events(request: Request) -> Response:
        return StreamingResponse(stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    app = Starlette(
        routes=[Route("/", show), Route("/events", events)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=_HOSTS)],
    )
    app.state.ended = lambda: False
    return app


def serve(path: str | Path, *, port: int, opened: Any = None) -> None:
    """Serves the live page of a run on 127.0.0.1 until it is interrupted; calls ``opened`` with its address."""
    app = watch_app(path)
    uvicorn = import_extra("rido watch", "uvicorn", "watch")
    config = uvicorn.Config(app, host=_HOSTS[0], port=port, log_level="critical", timeout_graceful_shutdown=2)
    server, listener = uvicorn.Server(config), config.bind_socket()
    listener.listen()  # who asks before the server is ready waits for it
    app.state.ended = lambda: server.should_exit  # else it would wait for the streams
    if opened is not None:
        opened(f"http://{_HOSTS[0]}:{listener.getsockname()[1]}/")
    server.run(sockets=[listener])
