"""The one seam for object storage: S3 or a folder, scoped to one attempt's folder.

Keys are relative to the attempt (``traces/rank-00003/<tag>.json.gz``). Nothing is ever overwritten: every ``put`` is
create-only. Each object carries its SHA-256, which the store checks where it can (S3) and hands back on ``head``.
"""

from __future__ import annotations

from collections.abc import Mapping

from shapetrace_contract import keys
from shapetrace_contract.settings import RunId, StoreSettings

from shapetrace_traces.store.base import (
    Body,
    CredentialsMissing,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    Patience,
    Store,
    Stored,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnreachable,
)

__all__ = [
    "Body",
    "CredentialsMissing",
    "ObjectExists",
    "ObjectInfo",
    "ObjectMissing",
    "Patience",
    "Store",
    "StoreDenied",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnreachable",
    "Stored",
    "open_store",
]


def open_store(
    settings: StoreSettings, run: RunId, environment: Mapping[str, str], patience: Patience | None = None
) -> Store:
    """The store of one attempt. No request is made here.

    ``environment`` supplies the credentials (``AWS_ACCESS_KEY_ID`` and so on); without them the usual chain of the
    SDK is asked, which finds the pod's own identity. :class:`StoreMisconfigured` names a setting that cannot be used.
    """
    try:
        folder = keys.attempt_folder(settings.prefix, run.namespace, run.name, run.uid, run.attempt)
    except keys.KeyPartError as error:
        raise StoreMisconfigured(f"storage prefix or run name: {error}") from None
    if settings.kind == "folder":
        from shapetrace_traces.store.folder import FolderStore  # noqa: PLC0415

        return FolderStore.below(settings, folder)
    if settings.kind == "s3":
        from shapetrace_traces.store.s3 import S3Store  # noqa: PLC0415 - boto3 takes a second to import

        return S3Store.connect(settings, folder, environment, patience or Patience())
    raise StoreMisconfigured(f"storage kind {settings.kind!r} is unknown, s3 and folder are known")
