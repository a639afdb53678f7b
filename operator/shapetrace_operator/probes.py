"""``/healthz`` and ``/readyz`` for the kubelet."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web


@dataclass
class Health:
    """What the probes tell. Ready: the CRD is served and the first lists have been seen."""

    ready: bool = False
    waiting_for: str = "starting"


def application(health: Health) -> web.Application:
    """The two paths. Alive is who answers: a task that dies takes the process with it."""

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        if health.ready:
            return web.Response(text="ok\n")
        return web.Response(text=f"waiting for {health.waiting_for}\n", status=503)

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


async def serve(health: Health, port: int) -> web.AppRunner:
    """Start answering; the caller cleans up."""
    runner = web.AppRunner(application(health), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 - the kubelet asks the pod's address
    return runner
