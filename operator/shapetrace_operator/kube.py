"""The one seam for the Kubernetes API: plain dicts in and out, every request bounded, every status checked.

Typed API classes are not used: they cost about 100 MB of memory and refuse fields newer than themselves.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiClient
from shapetrace_contract import names

from shapetrace_operator.objects import Object

REQUEST_TIMEOUT_SECONDS = 10.0
"""A healthy API server answers in milliseconds; a restarting one is better asked again than waited for."""
LIST_TIMEOUT_SECONDS = 30.0
"""A page of a list is larger and may wait for the server's cache."""
PAGE_ITEMS = 500
"""What kubectl asks for; bounds the memory of one answer."""
MAX_EVENTS = 50
"""Of one object; the API server keeps an hour of them and counts repetitions in one."""
MAX_ERROR_CHARACTERS = 2000
"""Of a refusal's text: a webhook may answer with a page."""

RUNS = f"apis/{names.GROUP}/{names.API_VERSION}"
JOBS = "apis/batch/v1"
CORE = "api/v1"
MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"


class ApiError(Exception):
    """The API server refused, or could not be asked. ``status`` is 0 where no answer came."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class UnreachableError(ApiError):
    """No answer within the timeout, or no connection: whether the request was carried out is not known."""


class NotFoundError(ApiError):
    """404."""


class ConflictError(ApiError):
    """409: the object changed since it was read, or a precondition does not hold."""


class AlreadyExistsError(ApiError):
    """409 on a create."""


class ForbiddenError(ApiError):
    """403: admission, a quota, or a missing right; the message tells them apart."""


class InvalidError(ApiError):
    """400 or 422: the object can never be accepted as it is."""


def _error(status: int, body: Any) -> ApiError:
    answer = body if isinstance(body, dict) else {}
    reason, message = str(answer.get("reason") or ""), str(answer.get("message") or body)[:MAX_ERROR_CHARACTERS]
    kind: type[ApiError] = {
        400: InvalidError,
        403: ForbiddenError,
        404: NotFoundError,
        409: ConflictError,
        422: InvalidError,
    }.get(status, ApiError)
    if kind is ConflictError and reason == "AlreadyExists":
        kind = AlreadyExistsError
    return kind(status, reason, message)


class Kube:
    """Requests of the operator. One instance per process; ``client`` carries address and credentials."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = JSON,
        query: Sequence[tuple[str, str]] = (),
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    ) -> Object:
        """One request; :class:`ApiError` for everything but success."""
        request = await self._client.param_serialize(
            method=method,
            resource_path=f"/{path}",
            query_params=list(query),
            body=body,
            auth_settings=["BearerToken"],
            header_params={"Accept": JSON, "Content-Type": content_type},
        )
        try:
            response = await self._client.call_api(*request, _request_timeout=timeout_seconds)
            text = await response.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(0, type(error).__name__, f"{method} {path}: {error}") from error
        try:
            answer = json.loads(text) if text else {}
        except ValueError:
            answer = text.decode(errors="replace")
        # the raw response does not raise by itself: the status has to be looked at
        if response.status >= 400 or not isinstance(answer, dict):
            raise _error(response.status, answer)
        return answer

    async def _write(self, method: str, path: str, body: Any, content_type: str = JSON) -> Object:
        query = [("fieldManager", names.FIELD_MANAGER)]
        return await self.call(method, path, body=body, content_type=content_type, query=query)

    async def served(self) -> bool:
        """Whether the API server serves ProfileRuns yet, by discovery (needs no right on CRDs)."""
        try:
            answer = await self.call("GET", RUNS)
        except NotFoundError:
            return False
        return any(item.get("name") == names.PLURAL for item in answer.get("resources", []))

    async def list_all(self, api: str, plural: str, namespace: str | None, selector: str = "") -> AsyncIterator[Object]:
        """All objects of a kind in one namespace, or everywhere for None, page by page."""
        path = f"{api}/namespaces/{quote(namespace)}/{plural}" if namespace else f"{api}/{plural}"
        token = ""
        while True:
            query = [("limit", str(PAGE_ITEMS))]
            query += [("labelSelector", selector)] if selector else []
            query += [("continue", token)] if token else []
            page = await self.call("GET", path, query=query, timeout_seconds=LIST_TIMEOUT_SECONDS)
            for item in page.get("items", []):
                yield item
            token = page.get("metadata", {}).get("continue") or ""
            if not token:
                return

    async def get_run(self, namespace: str, name: str) -> Object:
        """The ProfileRun as it is now."""
        return await self.call("GET", _run_path(namespace, name))

    async def patch_status(self, namespace: str, name: str, patch: Object) -> Object:
        """Merge patch of the status subresource. With ``metadata.resourceVersion``, a stale write is a Conflict."""
        return await self._write("PATCH", f"{_run_path(namespace, name)}/status", patch, MERGE_PATCH)

    async def delete_run(self, namespace: str, name: str, uid: str) -> None:
        """Delete the ProfileRun, and no other of the same name."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        await self.call("DELETE", _run_path(namespace, name), body=body)

    async def create_job(self, job: Object) -> Object:
        """Create a Job. What refuses it (a namesake, a quota, admission) is the caller's to judge."""
        return await self._write("POST", f"{JOBS}/namespaces/{job['metadata']['namespace']}/jobs", job)

    async def find_job(self, namespace: str, name: str) -> Object | None:
        """The Job of that name by a list: the operator needs no right to get single Jobs."""
        path = f"{JOBS}/namespaces/{quote(namespace)}/jobs"
        page = await self.call("GET", path, query=[("fieldSelector", f"metadata.name={name}")])
        return next(iter(page.get("items", [])), None)

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Delete a Job; its pods get their grace. The uid keeps a namesake safe."""
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        await self.call("DELETE", f"{JOBS}/namespaces/{quote(namespace)}/jobs/{quote(name)}", body=body)

    async def list_events(self, namespace: str, uid: str) -> list[Object]:
        """Events about one object: refusals of quota, admission and mounts are told nowhere else."""
        query = [("fieldSelector", f"involvedObject.uid={uid}"), ("limit", str(MAX_EVENTS))]
        page = await self.call("GET", f"{CORE}/namespaces/{quote(namespace)}/events", query=query)
        return list(page.get("items", []))


def _run_path(namespace: str, name: str) -> str:
    return f"{RUNS}/namespaces/{quote(namespace)}/{names.PLURAL}/{quote(name)}"
