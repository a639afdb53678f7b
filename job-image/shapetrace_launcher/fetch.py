"""``python3 -m shapetrace_launcher.fetch ANSWER REQUEST``: fetch models from a hub, in the engine's own Python.

A process of its own, so that the engine never has the access token, and the launcher none of the hub's library. The
token comes by the variable that the library reads. REQUEST is a JSON list of ``{name, revision, weights}``; ANSWER is
a file that gets a JSON list of folders. The last line of output says what failed; the exit code is the reason's.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shapetrace_contract.reasons import Reason, exit_code

NEVER_NEEDED = ("original/*", "*.onnx", "*.msgpack", "*.h5", "*.tflite", "*.ot", "coreml/*", "onnx/*", "openvino/*")
"""Copies of the weights for other frameworks."""
OTHER_COPIES = ("*.bin", "*.pt", "*.pth")
"""Weights again, where there are ``*.safetensors``, which engines prefer."""
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
SAY_SECONDS = 10.0
"""How often the log hears how far it is."""
TRIES = 2
PAUSE_SECONDS = 5.0
"""Between tries, for a network that is away for longer than the half minute for which the library itself tries."""
_GIB = 1024**3
_BAD_REQUEST = {
    "GatedRepoError": "access to it is gated: accept its terms on the hub, and name a token of that account in "
    "models[].tokenSecretRef",
    "RevisionNotFoundError": "it has no such revision; correct models[].revision",
    "RepositoryNotFoundError": "there is no such model on the hub, or it is private and the token (or the lack of one) "
    "does not open it; correct models[].name, or set models[].tokenSecretRef",
    "HFValidationError": "this is no name of a model; correct models[].name",
    "DisabledRepoError": "the hub has disabled it; name another",
}
"""What only the person who made the run can mend, by the class of the library's error."""
_ABSENCE = frozenset(
    ("TransportError", "ConnectionError", "Timeout", "TimeoutError", "LocalEntryNotFoundError", "OfflineModeIsEnabled")
)
"""What the library raises without a hub: httpx's or requests' errors, or its own where its cache has nothing either."""
TOO_MANY_REQUESTS = 429
SERVER_ERRORS = 500


class FetchError(Exception):
    """A model that is not there; ``code`` is the exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def explain(name: str, error: BaseException, environment: Mapping[str, str]) -> FetchError:
    """What happened and what to do, without the access token, whatever the library put into its message."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    text = " ".join(str(error).split())
    for variable in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if token := environment.get(variable, "").strip():
            text = text.replace(token, "***")
    text = re.sub(r"://[^/\s@]+@", "://***@", text)  # HF_ENDPOINT may hold a name and a password
    said = f"({type(error).__name__}: {text[:300]})"
    for kind in kinds:
        if kind in _BAD_REQUEST:
            return FetchError(f"models: {name}: {_BAD_REQUEST[kind]} {said}", exit_code(Reason.BAD_CONFIGURATION))
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        advice = "the hub refuses the access token; renew it in the Secret of models[].tokenSecretRef"
        return FetchError(f"models: {name}: {advice} {said}", exit_code(Reason.BAD_CONFIGURATION))
    if isinstance(error, ImportError):
        advice = "the engine's image has no huggingface_hub to fetch it with; give the model as path or pvc"
        return FetchError(f"models: {name}: {advice} {said}", exit_code(Reason.BAD_CONFIGURATION))
    if "LocalEntryNotFoundError" in kinds or "OfflineModeIsEnabled" in kinds:
        advice = "the hub cannot be reached and the cache has no copy; open the way to it, or give the model as pvc"
    elif isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        advice = f"its files cannot be written to {os.environ.get('HF_HOME', 'the cache')}; is engine.cache full?"
    else:
        advice = "it cannot be fetched; try again, or give the model as pvc"
    return FetchError(f"models: {name}: {advice} {said}", exit_code(Reason.ENGINE_FAILED))


def unwanted(files: Sequence[str] | None, weights: bool) -> list[str]:
    """Patterns of files that are left on the hub.

    ``files`` None: the hub cannot be asked, so the cache has to hold what an earlier fetch wanted. What that left out
    is not to be missed, and what it holds is used whatever the patterns say.
    """
    if not weights:
        return [*NEVER_NEEDED, *WEIGHTS]
    twice = files is None or any("/" not in name and name.endswith(".safetensors") for name in files)
    return [*NEVER_NEEDED, *OTHER_COPIES] if twice else list(NEVER_NEEDED)


def fetch(hub: Any, request: Mapping[str, Any]) -> str:
    """The folder of one model."""
    name, revision = str(request["name"]), request.get("revision") or None
    try:
        files = hub.HfApi().list_repo_files(name, revision=revision)
    except Exception as error:
        if not _is_absence(error):
            raise
        files = None  # no hub: the cache may have it
    wanted = unwanted(files, bool(request.get("weights", True)))
    return str(hub.snapshot_download(name, revision=revision, ignore_patterns=wanted))


def _is_absence(error: BaseException) -> bool:
    """Whether the hub could not be asked, or not now, in contrast to one that said no."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int):
        return status == TOO_MANY_REQUESTS or status >= SERVER_ERRORS
    return not _ABSENCE.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def persistently(action: Callable[[], str], sleep: Callable[[float], None] = time.sleep) -> str:
    """``action``, tried again while the hub cannot be asked."""
    for left in reversed(range(TRIES)):
        try:
            return action()
        except Exception as error:  # noqa: PERF203 - a handful of tries
            if not left or isinstance(error, ImportError) or not _is_absence(error):
                raise
            print(f"the hub does not answer ({type(error).__name__}), trying again", flush=True)
            sleep(PAUSE_SECONDS)
    raise AssertionError("unreachable")


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


class Progress:
    """Says how much of a model is there while it is fetched."""

    def __init__(self, name: str, folder: Path, say_seconds: float = SAY_SECONDS) -> None:
        self._name, self._folder, self._say_seconds = name, folder, say_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._say, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _say(self) -> None:
        started = time.monotonic()
        while not self._over.wait(self._say_seconds):
            try:
                there = _bytes_below(self._folder) / _GIB
            except OSError:  # a file that was renamed meanwhile
                continue
            print(f"fetching {self._name}: {there:.1f} GiB after {time.monotonic() - started:.0f} s", flush=True)


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit code; see the module."""
    answer, requests = Path(arguments[0]), json.loads(arguments[1])
    folders = []
    for request in requests:
        name = str(request["name"])
        try:
            hub = importlib.import_module("huggingface_hub")

            # a module of its own, which the package does not import by itself
            cache = (
                Path(importlib.import_module("huggingface_hub.constants").HF_HUB_CACHE)
                / f"models--{name.replace('/', '--')}"
            )
            print(f"fetching {name}, revision {request.get('revision') or 'as the hub has it'}", flush=True)
            with Progress(name, cache):
                folder = persistently(functools.partial(fetch, hub, request))
        except Exception as error:
            failure = explain(name, error, environment)
            print(failure, flush=True)
            return failure.code
        print(f"{name} is in {folder}", flush=True)
        folders.append(folder)
    answer.write_text(json.dumps(folders))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
