"""Where an attempt's folder is: a ProfileRun's name, an ``s3://`` address, or a folder of this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shapetrace_contract import keys
from shapetrace_contract.settings import RunId
from shapetrace_traces.regular import NOTHING, what_is

from shapetrace_cli.errors import UsageError

_ATTEMPT = re.compile(r"attempt-([1-9][0-9]{0,8})")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


@dataclass(frozen=True)
class S3Location:
    """An attempt's folder in a bucket."""

    bucket: str
    prefix: str
    run: RunId

    @property
    def uri(self) -> str:
        """``s3://bucket/prefix/namespace/name/uid/attempt-1/``."""
        run = self.run
        folder = keys.attempt_folder(self.prefix, run.namespace, run.name, run.uid, run.attempt)
        return f"s3://{self.bucket}/{folder}"


def parse_s3(uri: str) -> S3Location:
    """Read ``s3://bucket/[prefix/]namespace/name/uid/attempt-N[/][manifest.json]``; :class:`UsageError` otherwise."""
    parts = urlsplit(uri)
    path = unquote(parts.path).removesuffix(keys.MANIFEST).strip("/")
    pieces = path.split("/")
    match = _ATTEMPT.fullmatch(pieces[-1])
    if parts.scheme != "s3" or not _BUCKET.fullmatch(parts.netloc) or match is None or len(pieces) < 4:
        raise UsageError(
            f"{uri!r} is not the address of an attempt's folder",
            "It looks like s3://bucket/prefix/namespace/name/uid/attempt-1/ ; "
            "`kubectl get profilerun NAME -o jsonpath='{.status.manifest.uri}'` shows it.",
        )
    namespace, name, uid = pieces[-4:-1]
    location = S3Location(parts.netloc, "/".join(pieces[:-4]), RunId(namespace, name, uid, int(match[1])))
    try:
        location.uri  # noqa: B018 - the check of every piece is in the making of the key
    except keys.KeyPartError as error:
        raise UsageError(f"{uri!r} is not the address of an attempt's folder: {error}") from None
    return location


def parse_folder(text: str) -> Path:
    """A folder that holds a ``manifest.json``, or the manifest itself; :class:`UsageError` otherwise."""
    try:
        path = Path(text).expanduser()
        folder = path.parent if path.name == keys.MANIFEST else path
        if not folder.is_dir():
            raise UsageError(f"{text!r} is no folder")
    except (OSError, RuntimeError) as error:  # too long a name, or nobody's home
        raise UsageError(f"{text!r} is no folder: {error}") from None
    if kind := what_is(folder / keys.MANIFEST):
        if kind != NOTHING:
            raise UsageError(f"{keys.MANIFEST} in {folder} is {kind}")
        raise UsageError(
            f"{folder} holds no {keys.MANIFEST}",
            "Name the folder of one attempt, .../attempt-1. A run without a manifest was not finished. "
            f"Copies of relabel have no manifest: shapetrace index {folder}",
        )
    return folder


def looks_like_folder(text: str) -> bool:
    """True for what can only be meant as a path: a ProfileRun's name holds no slash and is never ``.``."""
    return "/" in text or text in {".", ".."} or text.startswith("~")
