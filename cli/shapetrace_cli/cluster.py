"""Reading a ProfileRun as kubectl would: the person's kubeconfig, context and namespace. Nothing is written."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shapetrace_contract import names

from shapetrace_cli.errors import CliError, UsageError
from shapetrace_cli.text import plain

_TIMEOUT_SECONDS = (5, 20)
"""Connect, read: longer than an API server needs, shorter than a person's patience."""
CREDENTIAL_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Keys of the Secret, and variables of the SDK; the third is optional."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""Names of Kubernetes objects (RFC 1123 subdomain); anything else would change the request's path."""


def checked_name(what: str, name: str) -> None:
    """:class:`UsageError` where ``name`` cannot be the name of a Kubernetes object."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a {what}", "Names hold small letters, digits, '-' and '.' only.")


class UnreachableError(CliError):
    """No answer from the API server: asking again may help."""


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster: empty texts mean what kubectl would take (KUBECONFIG, the current context, its namespace)."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""


class Cluster:
    """A thin reader of the Kubernetes API; the typed client's models are never loaded (they cost 100 MB)."""

    def __init__(self, options: ClusterOptions) -> None:
        """Load the kubeconfig; :class:`UsageError` where there is none or it has no such context."""
        import yaml  # noqa: PLC0415
        from kubernetes import client, config  # noqa: PLC0415 - a second to import, only where a cluster is asked
        from kubernetes.config import kube_config  # noqa: PLC0415

        loader: Any = config  # half of the package is typed
        file = options.kubeconfig or None
        settings = client.Configuration()
        settings.retries = 1  # the default of 3 makes a wrong address cost 20 s
        try:
            contexts, active = loader.list_kube_config_contexts(config_file=file)
            chosen = next((item for item in contexts if item["name"] == options.context), active)
            self._api = loader.new_client_from_config(
                config_file=file, context=options.context or None, client_configuration=settings
            )
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"no usable kubeconfig in {plain(file or kube_config.KUBE_CONFIG_DEFAULT_LOCATION, 300)}: "
                f"{plain(error, 300)}",
                "Set KUBECONFIG or give --kubeconfig FILE; without a cluster, fetch from s3://bucket/.../attempt-1/ .",
            ) from None
        self.namespace = options.namespace or (chosen or {}).get("context", {}).get("namespace") or "default"
        checked_name("namespace", self.namespace)

    def profile_run(self, name: str) -> dict[str, Any]:
        """The ProfileRun ``name``; :class:`CliError` says which right, name or address is wrong."""
        checked_name("ProfileRun", name)
        path = f"/apis/{names.GROUP}/{names.API_VERSION}/namespaces/{self.namespace}/{names.PLURAL}/{name}"
        status, body = self._get(path, f"ProfileRun {name!r}")
        if status == 404 and not (isinstance(body, dict) and body.get("details", {}).get("name")):
            raise CliError(
                f"this cluster knows no {names.PLURAL}.{names.GROUP}",
                "Is it the right cluster (kubectl config current-context)? The chart installs the kind.",
            )
        if status == 404:
            raise CliError(
                f"no ProfileRun {name!r} in namespace {self.namespace!r}",
                f"`kubectl get {names.SHORT_NAME} -A` lists all; -n NAMESPACE names another namespace. "
                "A deleted run's traces stay in the bucket: fetch s3://BUCKET/.../attempt-1/",
            )
        return self._checked(status, body, f"ProfileRun {name!r}", f"get {names.PLURAL}.{names.GROUP}")

    def credentials(self, secret: str) -> dict[str, str]:
        """The S3 credentials in a Secret, as environment variables. Never shown, never written."""
        checked_name("Secret", secret)
        status, body = self._get(f"/api/v1/namespaces/{self.namespace}/secrets/{secret}", f"Secret {secret!r}")
        if status == 404:
            raise CliError(
                f"no Secret {secret!r} in namespace {self.namespace!r}",
                f"`kubectl get secrets -n {self.namespace}` lists those there; give -n NAMESPACE for another.",
            )
        data = self._checked(status, body, f"Secret {secret!r}", "get secrets").get("data") or {}
        found = {key: base64.b64decode(data[key]).decode().strip() for key in CREDENTIAL_KEYS if data.get(key)}
        missing = [key for key in CREDENTIAL_KEYS[:2] if key not in found]
        if missing:
            raise CliError(f"the Secret {secret!r} in namespace {self.namespace!r} has no {' and no '.join(missing)}")
        return found

    def _get(self, path: str, what: str) -> tuple[int, Any]:
        import urllib3.exceptions  # noqa: PLC0415
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415

        try:
            request = self._api.param_serialize(
                method="GET",
                resource_path=path,
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
            )
            response = self._api.call_api(*request, _request_timeout=_TIMEOUT_SECONDS)
            return response.status, json.loads(response.read() or b"null")
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise UnreachableError(
                f"the API server {plain(self._api.configuration.host, 200)} did not answer for {what}: "
                f"{plain(error, 300)}",
                "Is the cluster up and the kubeconfig's address right?",
            ) from None
        except ValueError as error:
            raise CliError(f"the answer for {what} is no JSON: {plain(error, 200)}") from None

    def _checked(self, status: int, body: Any, what: str, right: str) -> dict[str, Any]:
        if status in (401, 403):
            raise CliError(
                f"the API server refuses to show {what} in namespace {self.namespace!r} ({status})",
                f"`kubectl auth can-i {right} -n {self.namespace}` tells; ask for that right.",
            )
        if status != 200 or not isinstance(body, Mapping):
            message = body.get("message") if isinstance(body, Mapping) else ""
            raise CliError(f"reading {what} in namespace {self.namespace!r} failed ({status}): {plain(message, 300)}")
        return dict(body)
