"""What an S3 server's or the SDK's error means for us, in words for a person and without any secret."""

from __future__ import annotations

from collections.abc import Iterable

from botocore import exceptions as sdk
from shapetrace_contract.message import shorten

from shapetrace_traces.store.base import (
    CredentialsMissing,
    ObjectExists,
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnreachable,
)

_BUSY = frozenset(
    {"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "TooManyRequests", "InternalError"}
)
# 409 on a conditional PUT: another write of the same key is under way, AWS asks for a retry
_CONFLICT = frozenset({"ConditionalRequestConflict", "OperationAborted"})
# the body did not arrive as it was sent
_TORN = frozenset({"BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"})
# Request Timeout, Misdirected Request, Too Early: answers of what stands before a store
_PASSING = frozenset({408, 421, 425})
_REGION = frozenset({"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"})
_KEY_IDENTITY = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"})


_NO_CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.CredentialRetrievalError,
    sdk.ProfileNotFound,
)
_RIGHTS = {"write": "put objects", "list": "list the bucket", "delete": "delete objects"}
"""By an action's first word."""
_RIGHTS_TO_READ = "get objects and list the bucket"
"""HEAD is a get; who may not list is told 403 of an object that is not there (S3, GetObject)."""


class Explain:
    """Turns errors into ours. ``where`` names bucket and endpoint; ``secrets`` are struck out of any server's text."""

    def __init__(self, bucket: str, where: str, secrets: Iterable[str] = ()) -> None:
        self._bucket = bucket
        self._where = where
        self._secrets = [secret for secret in secrets if secret]

    def __call__(self, error: Exception, action: str) -> StoreError:
        """``action`` says what was tried, such as ``write claims/0.json``."""
        if isinstance(error, sdk.ClientError):
            return self._answer(error, action)
        if isinstance(error, sdk.SSLError):
            return self._error(
                StoreUnreachable, action, error, "the certificate of the endpoint is not trusted: set storage caBundle"
            )
        if isinstance(error, _NO_CREDENTIALS):
            return self._error(
                CredentialsMissing,
                action,
                error,
                "no usable credentials: the Secret needs the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or the pod needs an identity of its own",
            )
        if isinstance(error, RecursionError):
            # the SDK follows an unknown redirect by asking the region, which is redirected as well, and so on
            return self._error(StoreMisconfigured, action, None, "the endpoint redirects to somewhere else: check it")
        if isinstance(error, sdk.ParamValidationError):
            return self._error(StoreMisconfigured, action, error, "check bucket and prefix")
        if isinstance(error, sdk.HTTPClientError | sdk.ConnectionError | sdk.BotoCoreError | OSError):
            return self._error(
                StoreUnreachable, action, error, "check the endpoint, name resolution and network policies"
            )
        return self._error(StoreUnreachable, action, error, "unexpected answer")

    def _answer(self, error: sdk.ClientError, action: str) -> StoreError:
        body = error.response.get("Error", {})
        code = str(body.get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if status == 412 or code == "PreconditionFailed":
            return self._error(ObjectExists, action, None, "the object exists already")
        if code in _CONFLICT:
            return self._error(StoreUnreachable, action, error, "another write of the same key is under way")
        if code in _REGION or status == 301:
            return self._error(StoreMisconfigured, action, error, "check the region and the endpoint")
        if status == 501:
            return self._error(
                StoreMisconfigured, action, error, "the store lacks a feature: conditional writes or SHA-256 checksums"
            )
        if code in _TORN:
            return self._error(StoreUnreachable, action, error, "it did not arrive as it was sent")
        if status in _PASSING or (status == 404 and code in ("", "404") and error.operation_name != "HeadObject"):
            # a store names what is missing, but for HEAD, whose answer has no body
            return self._error(StoreUnreachable, action, error, "something else than the store answered")
        if status >= 500 or status == 429 or code in _BUSY:
            return self._error(StoreUnreachable, action, error, "the store is down or overloaded")
        if code == "NoSuchKey":
            return self._error(ObjectMissing, action, None, "there is no such object")
        if code == "RequestTimeTooSkewed":
            return self._error(StoreDenied, action, error, "this node's clock is wrong")
        if code in _KEY_IDENTITY:
            return self._error(StoreDenied, action, error, "the store does not accept the credentials")
        if code == "NoSuchBucket" or status in (401, 403):
            return self._error(
                StoreDenied,
                action,
                error,
                f"the bucket {self._bucket!r} does not exist, or the credentials lack the right to {_right(action)}: "
                "servers answer both alike",
            )
        if status == 404:  # an answer to HEAD has no body, so no code
            return self._error(ObjectMissing, action, None, "there is no such object")
        return self._error(StoreMisconfigured, action, error, "the store does not take the request")

    def _error(self, kind: type[StoreError], action: str, error: Exception | None, advice: str) -> StoreError:
        said = f" ({self._clean(_said(error))})" if error is not None else ""
        return kind(f"could not {action} in {self._where}: {advice}{said}")

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return shorten(text, 200)


def _right(action: str) -> str:
    return _RIGHTS.get(action.split(" ", maxsplit=1)[0], _RIGHTS_TO_READ)


def _said(error: Exception) -> str:
    """The server's or the SDK's own words, without what surrounds them."""
    if isinstance(error, sdk.ClientError):
        body = error.response.get("Error", {})
        status = str(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        code = str(body.get("Code", ""))
        words = ["HTTP", status, code if code != status else ""]  # an answer to HEAD has no other code
        return f"{' '.join(word for word in words if word)}: {body.get('Message', '')}".strip(" :")
    return f"{type(error).__name__}: {error}"
