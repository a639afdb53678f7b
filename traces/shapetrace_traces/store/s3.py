"""A store in S3 or in a server that speaks S3."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from shapetrace_contract import names
from shapetrace_contract.settings import StoreSettings

from shapetrace_traces.store.base import (
    Body,
    CredentialsMissing,
    ObjectInfo,
    ObjectMissing,
    Patience,
    Stored,
    StoreMisconfigured,
    StoreUnreachable,
    measure,
)
from shapetrace_traces.store.s3_errors import Explain

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MAX_CONNECTIONS = 16
"""At least as many as uploads run at once: over TLS a dropped connection costs a handshake."""
_DEFAULT_REGION = "us-east-1"
"""What servers that know no regions sign with."""

T = TypeVar("T")


class S3Store:
    """Objects below one folder of a bucket."""

    def __init__(self, client: S3Client, settings: StoreSettings, folder: str, explain: Explain) -> None:
        self._client = client
        self._settings = settings
        self._folder = folder
        self._explain = explain

    @classmethod
    def connect(
        cls, settings: StoreSettings, folder: str, environment: Mapping[str, str], patience: Patience
    ) -> S3Store:
        """Build the client; :class:`StoreMisconfigured` for settings that no client can be built from,
        :class:`CredentialsMissing` for a profile that is not there or half a pair of keys."""
        _check(settings)
        variables = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        identity, secret, token = (environment.get(name) or None for name in variables)
        if bool(identity) != bool(secret):  # the SDK would sign with nothing, and the store speak of a wrong signature
            raise CredentialsMissing(f"no usable credentials: {variables[1] if identity else variables[0]} is not set")
        explain = Explain(settings.bucket, _where(settings), [text for text in (identity, secret, token) if text])
        try:
            session = boto3.session.Session(
                aws_access_key_id=identity, aws_secret_access_key=secret, aws_session_token=token
            )
            client = session.client(
                "s3",
                endpoint_url=settings.endpoint or None,
                region_name=settings.region or environment.get("AWS_REGION") or _DEFAULT_REGION,
                verify=settings.caBundle or None,
                config=_config(settings, patience),
            )
        except (BotoCoreError, ValueError) as error:
            fault = explain(error, "build a client")
            raise (fault if isinstance(fault, CredentialsMissing) else StoreMisconfigured(str(fault))) from None
        return cls(client, settings, folder, explain)

    @property
    def location(self) -> str:
        """``s3://bucket/folder/`` and the endpoint."""
        return f"{self.uri('')} at {_endpoint(self._settings)}"

    def uri(self, key: str) -> str:
        """``s3://bucket/folder/key``."""
        return f"s3://{self._settings.bucket}/{self._folder}{key}"

    def put(
        self,
        key: str,
        body: Body,
        *,
        metadata: Mapping[str, str] | None = None,
        sha256: str | None = None,
        content_type: str = "application/octet-stream",
    ) -> Stored:
        """Create the object by one PUT with ``If-None-Match: *`` and its SHA-256, which the server checks."""
        size, digest = (_size(body), sha256) if sha256 else measure(body)
        arguments: dict[str, Any] = {
            "Bucket": self._settings.bucket,
            "Key": self._folder + key,
            "IfNoneMatch": "*",
            "ChecksumSHA256": base64.b64encode(bytes.fromhex(digest)).decode(),
            "ContentLength": size,
            "ContentType": content_type,
            "Metadata": {**(metadata or {}), names.METADATA_SHA256: digest},
        }
        if self._settings.sse:
            arguments["ServerSideEncryption"] = self._settings.sse
        if self._settings.sseKmsKeyId:
            arguments["SSEKMSKeyId"] = self._settings.sseKmsKeyId

        def send() -> None:
            if isinstance(body, Path):
                with body.open("rb") as stream:
                    self._client.put_object(Body=stream, **arguments)
            else:
                self._client.put_object(Body=body, **arguments)

        self._do(f"write {key}", send)
        return Stored(key, size, digest)

    def get(self, key: str) -> bytes:
        """The whole object."""
        return self._do(f"read {key}", lambda: bytes(self._request(key)["Body"].read()))

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        """The object as a stream; an error while it is read is the SDK's own."""
        stream = self._do(f"read {key}", lambda: self._request(key)["Body"])
        try:
            yield cast(BinaryIO, stream)
        finally:
            stream.close()

    def head(self, key: str) -> ObjectInfo | None:
        """Size, hash and metadata. A server that hands no checksum back has it in our metadata."""
        try:
            answer = self._do(
                f"look at {key}",
                lambda: self._client.head_object(
                    Bucket=self._settings.bucket, Key=self._folder + key, ChecksumMode="ENABLED"
                ),
            )
        except ObjectMissing:
            return None
        metadata = {name.lower(): value for name, value in answer["Metadata"].items()}  # some servers change the case
        kept = metadata.pop(names.METADATA_SHA256, None)
        return ObjectInfo(key, answer["ContentLength"], _hexadecimal(answer.get("ChecksumSHA256")) or kept, metadata)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Key and size of each object, page by page."""
        arguments: dict[str, Any] = {"Bucket": self._settings.bucket, "Prefix": self._folder + prefix}
        while True:
            page = self._do(f"list {prefix or 'the folder'}", lambda: self._client.list_objects_v2(**arguments))
            for item in page.get("Contents", []):
                yield ObjectInfo(item["Key"].removeprefix(self._folder), item["Size"])
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if token in (None, arguments.get("ContinuationToken")):
                raise StoreUnreachable(f"could not list {prefix or 'the folder'} in {self.location}: it does not end")
            arguments["ContinuationToken"] = token

    def delete(self, key: str) -> None:
        """Remove the object."""
        self._do(
            f"delete {key}", lambda: self._client.delete_object(Bucket=self._settings.bucket, Key=self._folder + key)
        )

    def _request(self, key: str) -> Any:
        return self._client.get_object(Bucket=self._settings.bucket, Key=self._folder + key)

    def _do(self, action: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except (ClientError, BotoCoreError, ResponseParserError, RecursionError) as error:
            raise self._explain(error, action) from None  # the SDK's own error may quote what was signed


def _config(settings: StoreSettings, patience: Patience) -> Config:
    s3: dict[str, Any] = {"addressing_style": "path" if settings.pathStyle else "auto"}
    if not settings.endpoint.startswith("http://"):
        # TLS and the SHA-256 protect the body already; signing it too takes a second pass over every byte
        s3["payload_signing_enabled"] = False
    return Config(
        # SigV2 is still the default for presigned URLs of custom endpoints
        signature_version="s3v4",
        connect_timeout=patience.connect_timeout_seconds,
        read_timeout=patience.read_timeout_seconds,
        retries={"total_max_attempts": patience.attempts, "mode": "standard"},
        max_pool_connections=MAX_CONNECTIONS,
        # we send SHA-256 ourselves; the default adds a CRC trailer that S3-compatible servers may not know
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3=cast(Any, s3),
    )


def _check(settings: StoreSettings) -> None:
    if not settings.bucket:
        raise StoreMisconfigured("storage bucket is empty")
    if settings.endpoint:
        parts = urlsplit(settings.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise StoreMisconfigured("storage endpoint is no http:// or https:// address")
        if parts.username or parts.password:
            raise StoreMisconfigured("storage endpoint holds credentials: they belong into the Secret")
    if settings.caBundle and not Path(settings.caBundle).is_file():
        raise StoreMisconfigured(f"storage caBundle: there is no file {settings.caBundle}")


def _endpoint(settings: StoreSettings) -> str:
    return settings.endpoint or f"AWS S3 {settings.region or _DEFAULT_REGION}"


def _where(settings: StoreSettings) -> str:
    return f"bucket {settings.bucket!r} at {_endpoint(settings)}"


def _size(body: Body) -> int:
    return len(body) if isinstance(body, bytes) else body.stat().st_size


def _hexadecimal(checksum: str | None) -> str | None:
    """A checksum as S3 spells it (base64); None for that of a multipart object, which is not of the whole."""
    try:
        raw = base64.b64decode(checksum or "", validate=True)
    except binascii.Error:
        return None
    return raw.hex() if len(raw) == 32 else None
