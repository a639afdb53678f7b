"""One cycle against a real HTTP server that plays the API server: what is written, and on the ground of what."""

from __future__ import annotations

import asyncio
import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration
from shapetrace_operator.build.defaults import Defaults
from shapetrace_operator.cache import Cache
from shapetrace_operator.kube import Kube
from shapetrace_operator.reconcile import Reconciler

UID = "0a1b2c3d-0000-4000-8000-000000000001"
NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


class Api:
    """Runs, Jobs and pods of one namespace; ``refuse`` answers every create."""

    def __init__(self, run: dict[str, Any], refuse: tuple[int, str] | None = None) -> None:
        self.run = run
        self.jobs: list[dict[str, Any]] = []
        self.refuse = refuse
        self.written: list[dict[str, Any]] = []

    async def handle(self, request: web.Request) -> web.Response:
        if request.path.endswith("/jobs") and request.method == "POST":
            if self.refuse is not None:
                code, message = self.refuse
                return web.json_response({"kind": "Status", "reason": "InternalError", "message": message}, status=code)
            job = await request.json()
            job["metadata"].update(uid=f"uid-{job['metadata']['name']}", resourceVersion="5")
            self.jobs.append(job)
            return web.json_response(job, status=201)
        if request.method == "PATCH":
            patch = (await request.json())["status"]
            self.written.append(patch)
            merged = {**self.run.get("status", {}), **patch}
            self.run["status"] = {key: value for key, value in merged.items() if value is not None}
            return web.json_response(self.run)
        if request.path.endswith("/profileruns/demo"):
            return web.json_response(self.run)
        items = self.jobs if request.path.endswith("/jobs") else []
        return web.json_response({"items": items, "metadata": {}})


def cycle(api: Api, cache: Cache) -> float | None:
    async def main() -> float | None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", api.handle)
        configuration = Configuration()
        async with TestServer(app) as server:
            configuration.host = str(server.make_url("")).rstrip("/")
            async with ApiClient(configuration=configuration) as client:
                defaults = Defaults(image="shapetrace:1", engine_image="engine:1")
                reconciler = Reconciler(Kube(client), cache, defaults, lambda: NOW, lambda: 0.0)
                return await reconciler.reconcile(cache.put_run(copy.deepcopy(api.run)))

    return asyncio.run(main())


@pytest.fixture
def run(stage: Any) -> dict[str, Any]:
    made: dict[str, Any] = stage().run
    made["metadata"]["resourceVersion"] = "7"
    return made


def test_a_webhook_that_is_away_is_shown_and_waited_for(run: dict[str, Any]) -> None:
    api = Api(run, refuse=(500, 'Internal error occurred: failed calling webhook "w"'))
    wait_seconds = cycle(api, Cache())
    assert wait_seconds is not None
    (scheduled,) = [item for item in api.run["status"]["conditions"] if item["type"] == "Scheduled"]
    assert (scheduled["status"], scheduled["reason"]) == ("False", "AdmissionRefused")
    assert "failed calling webhook" in scheduled["message"]


def test_a_job_of_which_no_watch_has_told_yet_is_not_taken_for_vanished(run: dict[str, Any]) -> None:
    """As after the process stood still while another operator went on with the next attempt."""
    first, later = Api(run), Cache()
    cycle(first, later)
    assert first.run["status"]["attempt"] == 1
    cycle(first, Cache())  # knows the run only, and that its attempt has begun
    assert "failure" not in first.run["status"]
    assert [job["metadata"]["name"] for job in first.jobs] == ["demo-0a1b2-a1"]
