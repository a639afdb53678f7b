"""What goes over the wire, against a real HTTP server on this machine: requests, errors, progress, probes, events."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration
from shapetrace_contract import names
from shapetrace_contract.progress import MAX_BODY_BYTES, RankProgress, body
from shapetrace_operator import kube as kube_module
from shapetrace_operator import probes, progress
from shapetrace_operator.cache import Cache
from shapetrace_operator.events import FIRST_LOOK_SECONDS, LOOK_SECONDS, EventReader
from shapetrace_operator.kube import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    Kube,
    NotFoundError,
    UnreachableError,
)
from shapetrace_operator.listing import forget_gone, resync
from shapetrace_operator.observe import Observed

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serve(handler: Handler, act: Callable[[Kube, TestServer], Awaitable[Any]]) -> Any:
    """Run ``act`` against a server that answers everything with ``handler``."""

    async def main() -> Any:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        configuration = Configuration()
        async with TestServer(app) as server:
            configuration.host = str(server.make_url("")).rstrip("/")
            async with ApiClient(configuration=configuration) as client:
                return await act(Kube(client), server)

    return asyncio.run(main())


def answer(value: Any, status: int = 200) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response(value, status=status)

    return handler


def failure(status: int, reason: str, message: str = "why") -> Handler:
    return answer({"kind": "Status", "reason": reason, "message": message}, status)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (404, "NotFound", NotFoundError),
        (409, "Conflict", ConflictError),
        (409, "AlreadyExists", AlreadyExistsError),
        (403, "Forbidden", ForbiddenError),
        (422, "Invalid", InvalidError),
        (400, "BadRequest", InvalidError),
        (500, "InternalError", ApiError),
        (429, "TooManyRequests", ApiError),
    ],
)
def test_every_refusal_is_an_error_with_the_servers_words(status: int, reason: str, kind: type[ApiError]) -> None:
    async def act(kube: Kube, server: TestServer) -> None:
        with pytest.raises(kind) as raised:
            await kube.get_run("lab", "demo")
        assert type(raised.value) is kind
        assert (raised.value.status, raised.value.reason, raised.value.message) == (status, reason, "why")

    serve(failure(status, reason), act)


def test_an_answer_that_is_no_json_is_an_error_too() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="<html>a proxy</html>")

    async def act(kube: Kube, server: TestServer) -> None:
        with pytest.raises(ApiError, match="a proxy"):
            await kube.get_run("lab", "demo")

    serve(handler, act)


def test_a_server_that_is_away_or_silent_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    forever = 3600

    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(forever)
        return web.Response()

    async def act(kube: Kube, server: TestServer) -> None:
        with pytest.raises(UnreachableError):
            await kube.call("GET", "api", timeout_seconds=0.1)
        await server.close()
        with pytest.raises(UnreachableError):
            await kube.call("GET", "api")

    serve(handler, act)


def test_writes_name_their_manager_and_their_content() -> None:
    seen: list[tuple[str, str, str, str, Any]] = []

    async def handler(request: web.Request) -> web.Response:
        manager = request.query.get("fieldManager", "")
        seen.append((request.method, request.path, request.content_type, manager, await request.json()))
        return web.json_response({"metadata": {}})

    async def act(kube: Kube, server: TestServer) -> None:
        await kube.create_job({"metadata": {"namespace": "lab", "name": "j"}})
        await kube.patch_status("lab", "demo", {"status": {}})
        await kube.delete_job("lab", "j", "uid-1")
        await kube.delete_run("lab", "demo", "uid-2")

    serve(handler, act)
    runs = "/apis/shapetrace.dev/v1alpha1/namespaces/lab/profileruns/demo"
    assert [item[:4] for item in seen] == [
        ("POST", "/apis/batch/v1/namespaces/lab/jobs", "application/json", names.FIELD_MANAGER),
        ("PATCH", f"{runs}/status", "application/merge-patch+json", names.FIELD_MANAGER),
        ("DELETE", "/apis/batch/v1/namespaces/lab/jobs/j", "application/json", ""),
        ("DELETE", runs, "application/json", ""),
    ]
    assert seen[2][4]["preconditions"] == {"uid": "uid-1"}
    assert seen[2][4]["propagationPolicy"] == "Background"
    assert seen[3][4]["preconditions"] == {"uid": "uid-2"}


def test_lists_are_read_to_their_end() -> None:
    async def handler(request: web.Request) -> web.Response:
        second = request.query.get("continue") == "next"
        items = [{"n": 2}] if second else [{"n": 1}]
        assert request.query["labelSelector"] == names.LABEL_RUN
        return web.json_response({"items": items, "metadata": {} if second else {"continue": "next"}})

    async def act(kube: Kube, server: TestServer) -> list[Any]:
        return [item["n"] async for item in kube.list_all(kube_module.JOBS, "jobs", "lab", names.LABEL_RUN)]

    assert serve(handler, act) == [1, 2]


@pytest.mark.parametrize(
    ("handler", "served"),
    [
        (failure(404, "NotFound"), False),
        (answer({"resources": []}), False),
        (answer({"resources": [{"name": "profileruns"}]}), True),
    ],
)
def test_the_crd_is_awaited_by_discovery(handler: Handler, served: bool) -> None:
    async def act(kube: Kube, server: TestServer) -> bool:
        return await kube.served()

    assert serve(handler, act) is served


# ---- events
def test_events_are_asked_for_only_while_a_run_is_stuck_and_not_too_often(make: Any) -> None:
    asked: list[str] = []
    clock = {"monotonic": 0.0}
    run = {"metadata": {"name": "demo", "namespace": "lab", "uid": "u"}}

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.query["fieldSelector"])
        late = {"reason": "FailedCreate", "message": "late", "lastTimestamp": "2026-01-01T00:00:09Z"}
        early = {"reason": "FailedCreate", "message": "early", "lastTimestamp": "2026-01-01T00:00:01Z"}
        return web.json_response({"items": [late, early]})

    async def act(kube: Kube, server: TestServer) -> None:
        reader = EventReader(kube, lambda: clock["monotonic"])
        job = make.job()
        stuck, now = Observed(jobs=(job,)), datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
        assert await reader.read(run, stuck, now) == ((), pytest.approx(FIRST_LOOK_SECONDS - 1))
        now += timedelta(seconds=4)
        events, again_seconds = await reader.read(run, stuck, now)
        assert [event.message for event in events] == ["early", "late"]
        assert again_seconds == LOOK_SECONDS
        clock["monotonic"] = 1.0
        assert (await reader.read(run, stuck, now))[0] == events
        assert asked == [f"involvedObject.uid={job.uid}"]
        going = Observed(jobs=(job,), pods=(make.capture_pod(job=job.uid),))
        assert await reader.read(run, going, now) == ((), None)

    serve(handler, act)


# ---- a deletion that no watch delivered
def test_a_look_at_the_lists_finds_what_is_gone() -> None:
    def child(kind_uid: str) -> dict[str, Any]:
        labels = {"shapetrace.dev/run": "u", "shapetrace.dev/attempt": "1", "shapetrace.dev/role": "capture"}
        return {"metadata": {"name": kind_uid, "namespace": "lab", "uid": kind_uid, "labels": labels}}

    async def handler(request: web.Request) -> web.Response:
        items = [child("job-1")] if request.path.endswith("/jobs") else []
        return web.json_response({"items": items, "metadata": {}})

    async def act(kube: Kube, server: TestServer) -> None:
        cache = Cache()
        key = cache.put_run({"metadata": {"name": "demo", "namespace": "lab", "uid": "u"}})
        cache.put_job(child("job-1"))
        cache.put_pod(child("pod-1"))
        assert await resync(kube, cache, key)
        assert set(cache.jobs) == {"job-1"}
        assert (set(cache.pods), set(cache.gone_pods)) == (set(), {"pod-1"})
        assert not await resync(kube, cache, key)

    serve(handler, act)


def test_a_run_whose_deletion_no_watch_delivered_is_forgotten() -> None:
    async def act(kube: Kube, server: TestServer) -> None:
        cache = Cache()
        for uid in ("u", "v"):
            cache.put_run({"metadata": {"name": uid, "namespace": "lab", "uid": uid}})
        await forget_gone(kube, cache, ["lab"])
        assert set(cache.runs) == {"v"}

    serve(answer({"items": [{"metadata": {"uid": "v"}}], "metadata": {}}), act)


# ---- progress
def fetch(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> list[RankProgress]:
    async def act(kube: Kube, server: TestServer) -> list[RankProgress]:
        monkeypatch.setattr(names, "PROGRESS_PORT", server.port)
        for limit in ("CONNECT_SECONDS", "ANSWER_SECONDS"):  # the server of this test may have to wait for a core
            monkeypatch.setattr(progress, limit, 60.0)
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            return await progress.fetch(session, "127.0.0.1")

    found: list[RankProgress] = serve(handler, act)
    return found


def test_progress_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [RankProgress(0, "Done", expected=2, captured=2, uploaded=2, bytes=9), RankProgress(1)]
    assert fetch(answer(body(entries)), monkeypatch) == entries


@pytest.mark.parametrize(
    "value", [[], {"ranks": 3}, {"ranks": [{"rank": "x"}]}, {"ranks": [{"rank": 0, "captured": -1}]}, {"ranks": [7]}]
)
def test_an_answer_that_is_no_progress_is_refused(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"."):
        fetch(answer(value), monkeypatch)


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(MAX_BODY_BYTES // 65536 + 8):
            await response.write(b"x" * 65536)
        return response

    with pytest.raises(ValueError, match="more than"):
        fetch(handler, monkeypatch)


def test_a_packed_answer_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(request: web.Request) -> web.Response:
        packed = gzip.compress(b'{"ranks": []}')
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    with pytest.raises(ValueError, match="encoding"):
        fetch(handler, monkeypatch)


def test_more_ranks_than_a_pod_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="ranks"):
        fetch(answer({"ranks": [{"rank": 0}] * 80_000}), monkeypatch)


def test_every_pod_has_its_turn_where_there_are_more_than_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * progress.MAX_REQUESTS
    cache = Cache()
    for number in range(count):
        uid = f"{number:05}-run"
        cache.put_run({"metadata": {"name": "demo", "namespace": "lab", "uid": uid}})
        job = f"demo-{number:05}-a1"
        labels = {names.LABEL_RUN: uid}
        owners = {
            "job": {"kind": "ProfileRun", "name": "demo", "uid": uid, "controller": True},
            "pod": {"kind": "Job", "name": job, "uid": job, "controller": True},
        }
        metadata = {
            kind: {"name": job, "namespace": "lab", "uid": job if kind == "job" else uid, "labels": labels}
            | {"ownerReferences": [owner]}
            for kind, owner in owners.items()
        }
        cache.put_job({"metadata": metadata["job"]})
        running = {"name": "collector", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        status = {"phase": "Running", "podIP": f"10.0.{number}.1", "initContainerStatuses": [running]}
        cache.put_pod({"metadata": metadata["pod"], "status": status})
    asked: set[str] = set()

    async def unreachable(session: aiohttp.ClientSession, address: str) -> list[RankProgress]:
        asked.add(address)
        raise TimeoutError

    monkeypatch.setattr(progress, "fetch", unreachable)

    async def main() -> None:
        async with aiohttp.ClientSession() as session:
            poller = progress.Poller(cache, session, lambda key: None)
            for _ in range(3):
                poller.ask_all()
                await asyncio.sleep(0)
                await asyncio.sleep(0)

    asyncio.run(main())
    assert len(asked) == count


def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise web.HTTPFound("http://169.254.169.254/")

    with pytest.raises(ValueError, match="302"):
        fetch(handler, monkeypatch)


# ---- probes
def test_ready_says_what_it_waits_for() -> None:
    async def main() -> None:
        health = probes.Health(waiting_for="the CRD")
        async with TestServer(probes.application(health)) as server, aiohttp.ClientSession() as session:
            async with session.get(server.make_url("/readyz")) as response:
                assert (response.status, await response.text()) == (503, "waiting for the CRD\n")
            health.ready = True
            async with session.get(server.make_url("/readyz")) as response:
                assert response.status == 200
            async with session.get(server.make_url("/healthz")) as response:
                assert response.status == 200

    asyncio.run(main())
