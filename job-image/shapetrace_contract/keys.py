"""Object keys of an attempt. Made of validated tokens only, so that no key can leave its attempt's folder."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*")

MANIFEST = "manifest.json"
ENVIRONMENT = "environment.json"
CLAIMS = "claims/"
TRACES = "traces/"
REPLAYS = "replay/"
PARTS = "parts/"
LOGS = "logs/"

CAPTURE = "capture"
REPLAY = "replay"
_FOLDERS = {CAPTURE: TRACES, REPLAY: REPLAYS}
"""Stage -> where its traces lie."""

MAX_MANIFEST_BYTES = 256 * 1024 * 1024
"""About 300,000 traces; a longer manifest is not read into memory."""
MAX_RANK = 99_999
"""Five digits in keys and folder names."""


class KeyPartError(ValueError):
    """A text that may not become part of an object key."""


def _token(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise KeyPartError(f"{text!r} may not be part of an object key")
    return text


def rank_name(rank: int) -> str:
    """``rank-00003``: the same spelling in spool and bucket."""
    if not 0 <= rank <= MAX_RANK:
        raise KeyPartError(f"rank {rank} is outside 0..{MAX_RANK}")
    return f"rank-{rank:05d}"


def attempt_folder(prefix: str, namespace: str, name: str, uid: str, attempt: int) -> str:
    """``<prefix>/<namespace>/<name>/<uid>/attempt-<n>/`` with the trailing slash; the prefix may be empty."""
    if prefix and (not _PREFIX.fullmatch(prefix) or any(part in (".", "..") for part in prefix.split("/"))):
        raise KeyPartError(f"prefix {prefix!r} may not start or end with a slash or hold '..' or odd characters")
    head = f"{prefix}/" if prefix else ""
    return f"{head}{_token(namespace)}/{_token(name)}/{_token(uid)}/attempt-{int(attempt)}/"


def trace_key(rank: int, tag: str, stage: str = CAPTURE) -> str:
    """Key of a trace, relative to the attempt's folder. ``tag`` is a valid tag, so it holds no slash."""
    if "/" in tag or not tag:
        raise KeyPartError(f"{tag!r} is no tag")
    if stage not in _FOLDERS:
        raise KeyPartError(f"{stage!r} is no stage")
    return f"{_FOLDERS[stage]}{rank_name(rank)}/{tag}.json.gz"


def part_key(rank: int) -> str:
    """Key of one rank's index."""
    rank_name(rank)
    return f"{PARTS}{rank:05d}.json"


def claim_key(pod_index: int) -> str:
    """Key of a pod's claim on the attempt."""
    return f"{CLAIMS}{int(pod_index)}.json"


def log_key(pod_index: int) -> str:
    """Key of a pod's engine log."""
    return f"{LOGS}pod-{int(pod_index)}/engine.log.gz"
