"""The finish of one attempt: gather, judge, write once, report from what is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from shapetrace_contract import keys, names
from shapetrace_contract.settings import CaptureSettings, EngineSettings, ImageSettings, RunId
from shapetrace_traces.judge import judge
from shapetrace_traces.judge.markers import table_name
from shapetrace_traces.manifest import Manifest
from shapetrace_traces.store import ObjectExists, ObjectMissing, Store

from shapetrace_finish.compose import asked_ranks, compose_environment, compose_manifest
from shapetrace_finish.gather import Found, gather
from shapetrace_finish.patience import Patience
from shapetrace_finish.report import report

JSON = "application/json"


class NothingToFinishError(Exception):
    """No claim exists: the attempt never passed its preflight."""


class BrokenManifestError(Exception):
    """There is a ``manifest.json`` that cannot be read."""


@dataclass(frozen=True)
class Finish:
    """What a finish needs to know and to speak to."""

    store: Store
    run: RunId
    engine: EngineSettings
    capture: CaptureSettings
    patience: Patience
    say: Callable[[str], None]
    image: ImageSettings | None = None

    def __call__(self) -> str:
        """Commit the attempt; the termination message.

        Idempotent: where a manifest exists nothing is judged. Raises the store's errors,
        :class:`NothingToFinishError` and :class:`BrokenManifestError`.
        """
        stored = self._stored()
        if stored is None:
            stored = self._commit()
        else:
            self.say("a manifest exists: reporting from it")
        try:
            manifest = Manifest.from_bytes(stored)
        except ValueError as error:
            where = self.store.uri(keys.MANIFEST)
            raise BrokenManifestError(f"{where} exists and cannot be read: {error}") from None
        counts = f"{manifest.uploaded}/{'?' if manifest.expected is None else manifest.expected}"
        self.say(f"{manifest.verdict}, {counts} traces, {len(manifest.ranks)} ranks: {self.store.uri(keys.MANIFEST)}")
        for reason in manifest.reasons:
            self.say(reason)
        return report(manifest, self.store.uri(keys.MANIFEST), hashlib.sha256(stored).hexdigest())

    def _stored(self) -> bytes | None:
        try:
            return self.patience(lambda: self.store.get(keys.MANIFEST))
        except ObjectMissing:
            return None

    def _commit(self) -> bytes:
        found = gather(self.store, self.run.uid, self.patience)
        if not found.claims:
            raise NothingToFinishError(
                f"{self.store.location} holds no claim: the attempt never passed its preflight, nothing was stored"
            )
        for note in found.notes:
            self.say(note)
        body = self._compose(found)
        environment = compose_environment(self.run, self.engine, found.parts)
        self._put_once(keys.ENVIRONMENT, environment)
        # last of all: from here on the attempt is committed
        return body if self._put_once(keys.MANIFEST, body) else self.patience(lambda: self.store.get(keys.MANIFEST))

    def _compose(self, found: Found) -> bytes:
        table = table_name(self.engine.name, self.engine.args)
        verdicts = judge(found.parts, engine=table, ranks=asked_ranks(self.capture, self.engine))
        manifest = compose_manifest(
            self.run, self.engine, found.parts, verdicts, strict=self.capture.strict, image=self.image
        )
        return manifest.to_bytes()

    def _put_once(self, key: str, body: bytes) -> bool:
        """False if the object exists already: an earlier finish wrote it, or this one, in a request without answer."""
        metadata = {names.METADATA_RUN: self.run.uid, names.METADATA_ATTEMPT: str(self.run.attempt)}
        try:
            self.patience(lambda: self.store.put(key, body, metadata=metadata, content_type=JSON))
        except ObjectExists:
            return False
        return True
