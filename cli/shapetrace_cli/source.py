"""Opening an attempt's folder for reading, from what a person gave: a name, an address or a path."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shapetrace_contract import keys, names
from shapetrace_contract.settings import RunId, StoreSettings
from shapetrace_traces.store import (
    CredentialsMissing,
    ObjectMissing,
    Patience,
    Store,
    StoreDenied,
    StoreError,
    open_store,
)
from shapetrace_traces.store.folder import FolderStore

from shapetrace_cli.cluster import Cluster, ClusterOptions
from shapetrace_cli.errors import CliError, UsageError
from shapetrace_cli.listing import Listing, ManifestError, read_listing
from shapetrace_cli.location import S3Location, looks_like_folder, parse_folder, parse_s3
from shapetrace_cli.standing import causes, is_old, is_unseen, unseen
from shapetrace_cli.text import plain

_PATIENCE = Patience(connect_timeout_seconds=5.0, read_timeout_seconds=60.0, attempts=3)
"""A person's line may be slow; a store behind a proxy may think for a while before it sends a large object."""


@dataclass(frozen=True)
class S3Options:
    """How to reach a bucket where the run's own settings are not known, or are not right from here."""

    endpoint: str = ""
    region: str = ""
    ca_bundle: str = ""
    path_style: bool | None = None
    """None: as the run says; for an address without a run, on as soon as an endpoint is given."""


@dataclass(frozen=True)
class Source:
    """An attempt's folder. ``manifest_sha256`` is empty where nobody vouches for the manifest."""

    store: Store
    location: str
    manifest_sha256: str = ""


def open_source(
    text: str,
    *,
    s3: S3Options,
    cluster: ClusterOptions,
    attempt: int | None,
    secret: str | None,
    use_run_credentials: bool,
    environment: Mapping[str, str],
) -> Source:
    """The attempt that ``text`` names. ``secret`` is the name of a Secret whose credentials are used."""
    wants_secret = secret is not None or use_run_credentials
    if text.startswith("s3://"):
        if use_run_credentials:
            raise UsageError(
                "--use-run-credentials needs a ProfileRun's name", "Give --credentials-secret NAME to name the Secret."
            )
        if attempt is not None:
            raise UsageError("--attempt goes with a ProfileRun's name", "An address ends in /attempt-N/ itself.")
        settings = StoreSettings(pathStyle=bool(s3.endpoint), region=_region(environment))
        if secret is not None:
            environment = {**environment, **Cluster(cluster).credentials(secret)}
        return _s3_source(parse_s3(text), settings, s3, environment)
    if looks_like_folder(text):
        if wants_secret or attempt is not None:
            raise UsageError(f"{text!r} is a folder: --attempt and the credentials' options do not go with it")
        folder = parse_folder(text)
        return Source(FolderStore(folder.absolute()), str(folder))
    try:
        api = Cluster(cluster)
        run = api.profile_run(text)
    except CliError as error:
        if Path(text).is_dir():
            here = f"{text} is taken for a run's name; for the folder here write ./{text}"
            error.message = f"{here} ({error.message})"
        raise
    if use_run_credentials:
        secret = _run_secret(run)
    if secret is not None:
        environment = {**environment, **api.credentials(secret)}
    location, settings, sha256 = run_location(run, attempt, datetime.now(UTC))
    return replace(_s3_source(location, settings, s3, environment), manifest_sha256=sha256)


def _s3_source(location: S3Location, settings: StoreSettings, s3: S3Options, environment: Mapping[str, str]) -> Source:
    settings = replace(
        settings,
        bucket=location.bucket,
        prefix=location.prefix,
        endpoint=s3.endpoint or settings.endpoint,
        region=s3.region or settings.region,
        caBundle=s3.ca_bundle,
        pathStyle=settings.pathStyle if s3.path_style is None else s3.path_style,
    )
    try:
        store = open_store(settings, location.run, environment, _PATIENCE)
    except CredentialsMissing as error:
        raise store_fault(error, None) from None
    except StoreError as error:
        raise UsageError(plain(error, 500)) from None
    return Source(store, location.uri)


def run_location(run: Mapping[str, Any], attempt: int | None, now: datetime) -> tuple[S3Location, StoreSettings, str]:
    """Address, settings and the manifest's SHA-256 of a ProfileRun's attempt, the current one without ``attempt``.

    :class:`CliError` where there is nothing to fetch yet, saying where the run is. The hash is empty for an attempt
    that is not the status's.
    """
    metadata, status = run.get("metadata") or {}, run.get("status") or {}
    bucket = ((run.get("spec") or {}).get("storage") or {}).get("s3") or {}
    settings = StoreSettings(
        endpoint=str(bucket.get("endpoint") or ""),
        region=str(bucket.get("region") or ""),
        pathStyle=bucket.get("pathStyle") is True,
    )
    name, namespace, uid = (str(metadata.get(key) or "") for key in ("name", "namespace", "uid"))
    current = status.get("attempt")
    if attempt is not None and attempt != current:
        if isinstance(current, int) and attempt > current:
            raise CliError(f"{name} has no attempt {attempt} yet: it is at attempt {current}")
        run_id = RunId(namespace, name, uid, attempt)
        return S3Location(str(bucket.get("bucket") or ""), str(bucket.get("prefix") or ""), run_id), settings, ""
    manifest = status.get("manifest") or {}
    if not manifest.get("uri"):
        if is_unseen(status) and is_old(run, now):
            raise CliError(
                f"{name} has nothing to fetch: {unseen(namespace)}",
                f"`kubectl describe {names.SHORT_NAME} {name} -n {namespace}` shows whether that has changed.",
            )
        raise _no_manifest(name, namespace, status)
    location = parse_s3(str(manifest["uri"]))
    if location.run.uid != uid:
        raise CliError(f"{name}: the manifest's address {plain(manifest['uri'], 300)} is that of another run")
    return location, settings, str(manifest.get("sha256") or "")


def _no_manifest(name: str, namespace: str, status: Mapping[str, Any]) -> CliError:
    phase = plain(status.get("phase") or "not seen by the operator yet", 60)
    if phase in {"Succeeded", "Failed"}:
        failure = status.get("failure") or {}
        cause = plain(f"{failure.get('reason') or phase}: {failure.get('message') or 'no cause is noted'}", 600)
        return CliError(
            f"{name} ended without a manifest, so there is nothing to fetch ({cause})",
            f"`kubectl describe {names.SHORT_NAME} {name} -n {namespace}` shows all conditions.",
        )
    progress = plain((status.get("progress") or {}).get("summary") or "nothing stored yet", 60)
    cause = "".join(f" ({text})" for text in causes(status)[:1])
    return CliError(
        f"{name} is not finished: {phase}, {progress}{cause}",
        f"Wait: kubectl wait --for=condition=Finished {names.SHORT_NAME}/{name} -n {namespace} --timeout=1h",
    )


def _run_secret(run: Mapping[str, Any]) -> str:
    bucket = ((run.get("spec") or {}).get("storage") or {}).get("s3") or {}
    secret = (bucket.get("credentialsSecretRef") or {}).get("name")
    if not secret:
        raise UsageError(
            "this run names no Secret: it used its pod's own identity",
            "Leave --use-run-credentials out and use your own AWS credentials.",
        )
    return str(secret)


def _region(environment: Mapping[str, str]) -> str:
    return environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""


def read_manifest(source: Source, sha256: str = "") -> tuple[bytes, Listing]:
    """The manifest's bytes and what they list. ``sha256``, or else the one in status, must be theirs."""
    try:
        try:
            info = source.store.head(keys.MANIFEST)
        except StoreDenied:
            info = None  # an answer to HEAD has no body: the one to GET says what is wrong
        if info is not None and info.bytes > keys.MAX_MANIFEST_BYTES:
            raise ManifestError(f"the manifest in {source.location} has {info.bytes} bytes, too many to be one of ours")
        body = source.store.get(keys.MANIFEST)
    except ObjectMissing:
        raise CliError(
            f"there is no {keys.MANIFEST} in {plain(source.location, 300)}",
            "The attempt was not finished, or the address is wrong (it ends in /<uid>/attempt-<n>/).",
        ) from None
    except StoreError as error:
        raise store_fault(error, source.store) from None
    expected = sha256 or source.manifest_sha256
    actual = hashlib.sha256(body).hexdigest()
    if expected and actual != expected:
        says = "--sha256" if sha256 else "the run's status"
        raise ManifestError(
            f"the manifest in {plain(source.location, 300)} has the SHA-256 {actual}, {says} says "
            f"{plain(expected, 64)}",
            "Nothing was fetched. The run's own is .status.manifest.sha256 of the ProfileRun."
            if sha256
            else "Nothing was fetched: what is stored is not what the run's end vouches for.",
        )
    return body, read_listing(body)


def is_folder(store: Store | None) -> bool:
    """Whether the objects are files of this machine."""
    return isinstance(store, FolderStore)


def store_fault(error: StoreError, store: Store | None) -> CliError:
    """A store's refusal, with what a person can do about it from here; of a folder, the refusal says it."""
    if is_folder(store):
        return CliError(plain(error, 600))
    if isinstance(error, CredentialsMissing):
        return UsageError(
            "no usable S3 credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or take those of the run's Secret with --use-run-credentials (--credentials-secret NAME for an address)"
        )
    return CliError(
        plain(error, 600),
        "Credentials come from your own AWS environment or profile (AWS_PROFILE), or from the run's Secret "
        "(--use-run-credentials); --endpoint gives the store's address as seen from here.",
    )
