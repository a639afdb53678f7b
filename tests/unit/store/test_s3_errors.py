"""What an S3 server's answers mean; the answers themselves come from real servers in tests/s3."""

from __future__ import annotations

import pytest
from botocore import exceptions as sdk
from shapetrace_contract.settings import RunId, StoreSettings
from shapetrace_traces.store import (
    CredentialsMissing,
    ObjectExists,
    ObjectMissing,
    StoreDenied,
    StoreMisconfigured,
    StoreUnreachable,
    open_store,
)
from shapetrace_traces.store.s3_errors import Explain

SECRET = "wJalrXUtnFEMI-secret"


def answer(status: int, code: str, message: str = "", operation: str = "PutObject") -> sdk.ClientError:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return sdk.ClientError(response, operation)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (answer(412, "PreconditionFailed"), ObjectExists),
        (answer(409, "ConditionalRequestConflict"), StoreUnreachable),
        (answer(500, "InternalError"), StoreUnreachable),
        (answer(503, "SlowDown"), StoreUnreachable),
        (answer(429, ""), StoreUnreachable),
        (answer(404, "NoSuchKey"), ObjectMissing),
        (answer(404, "404", operation="HeadObject"), ObjectMissing),
        (answer(404, "404"), StoreUnreachable),
        (answer(404, "NoSuchBucket"), StoreDenied),
        (answer(403, "AccessDenied"), StoreDenied),
        (answer(403, "403"), StoreDenied),
        (answer(403, "InvalidAccessKeyId"), StoreDenied),
        (answer(403, "SignatureDoesNotMatch"), StoreDenied),
        (answer(403, "RequestTimeTooSkewed"), StoreDenied),
        (answer(400, "ExpiredToken"), StoreDenied),
        (answer(400, "AuthorizationHeaderMalformed"), StoreMisconfigured),
        (answer(301, "PermanentRedirect"), StoreMisconfigured),
        (answer(501, "NotImplemented"), StoreMisconfigured),
        (answer(400, "InvalidArgument"), StoreMisconfigured),
        (sdk.EndpointConnectionError(endpoint_url="http://s3"), StoreUnreachable),
        (sdk.ConnectTimeoutError(endpoint_url="http://s3"), StoreUnreachable),
        (sdk.ReadTimeoutError(endpoint_url="http://s3"), StoreUnreachable),
        (sdk.ConnectionClosedError(endpoint_url="http://s3"), StoreUnreachable),
        (sdk.SSLError(endpoint_url="https://s3", error="self-signed"), StoreUnreachable),
        (sdk.NoCredentialsError(), CredentialsMissing),
        (sdk.PartialCredentialsError(provider="env", cred_var="x"), CredentialsMissing),
        (sdk.ProfileNotFound(profile="nobody"), CredentialsMissing),
        (sdk.ParamValidationError(report="Invalid bucket name"), StoreMisconfigured),
    ],
    ids=str,
)
def test_each_error_becomes_ours_and_names_what_and_where(error: Exception, kind: type[Exception]) -> None:
    ours = Explain("traces", "bucket 'traces' at http://s3")(error, "write parts/00000.json")
    assert type(ours) is kind
    assert "write parts/00000.json in bucket 'traces' at http://s3" in str(ours)


@pytest.mark.parametrize("error", [answer(404, "NoSuchBucket"), answer(403, "AccessDenied")])
def test_a_refusal_names_missing_bucket_and_missing_right(error: Exception) -> None:
    text = str(Explain("traces", "there")(error, "write x"))
    assert "'traces' does not exist" in text
    assert "lack the right" in text


@pytest.mark.parametrize(
    ("action", "right"),
    [
        ("write x", "put objects"),
        ("read x", "get objects and list the bucket"),
        ("look at x", "get objects and list the bucket"),
        ("list x", "list the bucket"),
    ],
)
def test_a_refusal_names_the_right_that_was_used_and_the_code_once(action: str, right: str) -> None:
    text = str(Explain("traces", "there")(answer(403, "403", "Forbidden", "HeadObject"), action))
    assert f"lack the right to {right}: servers" in text
    assert text.endswith("(HTTP 403: Forbidden)")


def test_no_secret_is_repeated() -> None:
    echo = answer(403, "SignatureDoesNotMatch", f"you signed {SECRET} with {SECRET}")
    text = str(Explain("traces", "there", [SECRET])(echo, "write x"))
    assert SECRET not in text
    assert "***" in text


def test_a_long_answer_is_cut() -> None:
    text = str(Explain("traces", "there")(answer(500, "InternalError", "x" * 10_000), "write x"))
    assert len(text) < 512


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"bucket": ""}, "bucket"),
        ({"bucket": "b", "endpoint": "s3.example.com"}, "endpoint"),
        ({"bucket": "b", "endpoint": f"https://me:{SECRET}@s3.example.com"}, "Secret"),
        ({"bucket": "b", "endpoint": "https://s3.example.com", "caBundle": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"bucket": "b", "region": "no region !"}, "region"),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings: dict[str, str], named: str) -> None:
    with pytest.raises(StoreMisconfigured, match=named) as fault:
        open_store(StoreSettings(**settings), RunId(namespace="team", name="run", uid="u"), {})
    assert SECRET not in str(fault.value)
