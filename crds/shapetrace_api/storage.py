"""``spec.storage``: where traces go. Credentials are named, never held."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from shapetrace_api.scalars import KeyReference, LocalReference
from shapetrace_api.schema import ApiModel, Rule, rules

Bucket = Annotated[
    str,
    StringConstraints(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$"),
    Rule("!self.contains('..')", "storage.s3.bucket holds two dots in a row, which no bucket's name does"),
]
Prefix = Annotated[
    str,
    StringConstraints(max_length=256, pattern=r"^([A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*)?$"),
    Rule("!self.split('/').exists(part, part in ['.', '..'])", "storage.s3.prefix may not hold a part '.' or '..'"),
]
Endpoint = Annotated[
    str,
    StringConstraints(min_length=1, max_length=512),
    Rule(
        "isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != ''",
        "storage.s3.endpoint is not a URL: write it as https://host or https://host:port",
    ),
    Rule(
        "!self.contains('@') && !self.contains('?')",
        "storage.s3.endpoint may hold neither user and password nor a query: use credentialsSecretRef",
    ),
]
Region = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9-]+$")]


class CaBundle(ApiModel):
    """A PEM file with certificates to trust."""

    model_config = rules(
        Rule(
            "has(self.configMapKeyRef) != has(self.secretKeyRef)",
            "caBundle has exactly one source: set configMapKeyRef or secretKeyRef",
        ),
    )
    config_map_key_ref: KeyReference | None = Field(
        default=None, description="Key of a ConfigMap that holds the PEM file."
    )
    secret_key_ref: KeyReference | None = Field(default=None, description="Key of a Secret that holds the PEM file.")


class SseAlgorithm(StrEnum):
    """How the store encrypts objects."""

    AES256 = "AES256"
    KMS = "aws:kms"


class ServerSideEncryption(ApiModel):
    """Encryption by the store, asked for with each object."""

    model_config = rules(
        Rule("self.algorithm == 'aws:kms' || !has(self.kmsKeyId)", "sse.kmsKeyId goes with algorithm: aws:kms only"),
    )
    algorithm: SseAlgorithm = Field(description="AES256 (keys of the store) or aws:kms (keys of a key service).")
    kms_key_id: Annotated[str, StringConstraints(min_length=1, max_length=2048)] | None = Field(
        default=None, description="Key for aws:kms; the bucket's default key where absent."
    )


class S3(ApiModel):
    """A bucket of an S3-compatible store. It has to honour conditional writes (If-None-Match)."""

    bucket: Bucket = Field(description="Name of the bucket. It must exist.")
    prefix: Prefix = Field(
        default="",
        description="Folder within the bucket, without slashes at its ends; namespace, name, uid and attempt "
        "follow below.",
    )
    endpoint: Endpoint | None = Field(
        default=None, description="URL of the store; Amazon's own for the region where absent."
    )
    region: Region | None = Field(
        default=None, description="Region of the bucket; us-east-1 where absent, which most other stores accept."
    )
    path_style: bool = Field(
        default=False,
        description="Address the bucket in the path (https://host/bucket) instead of the host's name. Most stores "
        "other than Amazon's need it.",
    )
    ca_bundle: CaBundle | None = Field(
        default=None, description="Certificates to trust for the endpoint, instead of the image's."
    )
    credentials_secret_ref: LocalReference | None = Field(
        default=None,
        description="Secret with the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. The pod's own identity "
        "(pod.serviceAccountName) where absent. The engine's container never gets them.",
    )
    sse: ServerSideEncryption | None = Field(
        default=None, description="Encryption by the store; the bucket's default where absent."
    )


class Storage(ApiModel):
    """Where traces go."""

    s3: S3 = Field(description="A bucket of an S3-compatible store.")
