"""A proxy before the API server: counts requests, and can hold the k-th of them until its test has acted.

It stands between an operator on the host (plain HTTP, its bearer token passed through) and the real API server, so
that faults at the API are made without any hook in the product.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

HOP = {"host", "connection", "transfer-encoding", "content-length", "keep-alive", "upgrade"}


@dataclass
class Seen:
    """One request as it came."""

    method: str
    path: str
    watch: bool

    @property
    def kind(self) -> str:
        """Verb and resource: ``create jobs``, ``patch profileruns/status``, ``watch pods``, ``other``."""
        parts = self.path.strip("/").split("/")
        tail = parts[parts.index("namespaces") + 2 :] if "namespaces" in parts else parts[-1:]
        if not tail:
            return "other"
        resource = tail[0] + (f"/{tail[2]}" if len(tail) > 2 else "")
        verb = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}.get(self.method)
        if verb is None:
            verb = "watch" if self.watch else "list" if len(tail) == 1 else "get"
        return f"{verb} {resource}"


@dataclass
class ApiProxy:
    """``before(seen)`` and ``after(seen)`` run in a thread of their own around each request; True drops the request."""

    upstream: str
    ca_file: str
    before: Callable[[Seen], bool] = lambda seen: False
    after: Callable[[Seen], bool] = lambda seen: False
    requests: list[Seen] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> ApiProxy:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        if not ready.wait(60):
            raise RuntimeError("the proxy did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def _serve(self, ready: threading.Event) -> None:
        asyncio.run(self._main(ready))  # which cancels the watches that are still open, and waits for them

    async def _main(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        context = ssl.create_default_context(cafile=self.ca_file)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0), timeout=timeout, auto_decompress=False
        ) as session:
            self._session = session
            app = web.Application(client_max_size=8 * 1024 * 1024)
            app.router.add_route("*", "/{tail:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
            self.url = f"http://127.0.0.1:{port}"
            ready.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.method, request.path, request.query.get("watch") in ("true", "1"))
        self.requests.append(seen)
        if await asyncio.to_thread(self.before, seen):
            request.transport and request.transport.abort()
            return web.Response(status=502)
        headers = {key: value for key, value in request.headers.items() if key.lower() not in HOP}
        try:
            async with self._session.request(
                request.method,
                self.upstream + request.raw_path,
                headers=headers,
                # without a body no type either: the API server refuses one that it does not know
                data=await request.read() or None,
                skip_auto_headers=("Content-Type",),
            ) as answer:
                if await asyncio.to_thread(self.after, seen):
                    request.transport and request.transport.abort()
                    return web.Response(status=502)
                kept = {key: value for key, value in answer.headers.items() if key.lower() not in HOP}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, ConnectionError):
            return web.Response(status=502, text="the API server is away")
