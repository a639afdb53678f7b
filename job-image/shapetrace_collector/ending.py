"""The end of a pod's part of the run: parts, the engine's log, ``drained``."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Mapping
from typing import Any

from shapetrace_contract import keys, names, spool
from shapetrace_contract.reading import open_regular, read_object
from shapetrace_traces.store import ObjectExists, Store, StoreError

from shapetrace_collector import part
from shapetrace_collector.configuration import Configuration
from shapetrace_collector.deliver import CONTENT_TYPE, object_metadata
from shapetrace_collector.ledger import Ledger
from shapetrace_collector.pack import pack

LOG = logging.getLogger("shapetrace.collector")

MAX_LOG_BYTES = 64 * 1024 * 1024
"""Of the engine's log, the tail is kept."""
MAX_PROCESSES = 512
"""Process records in a part: a pod has a few per rank."""
MAX_PROCESS_BYTES = 64 * 1024
"""Of one process record; every part of the pod holds them all."""


class Ending:
    """Writes what ends a pod's part of the run. Every step may be repeated."""

    def __init__(self, configuration: Configuration, store: Store) -> None:
        self._configuration = configuration
        self._store = store
        self._written: dict[str, int] = {}
        """Key of a part -> records that it says are missing."""
        self._log_written = False

    def write_part(self, ledger: Ledger, stopped: Mapping[str, Any] | None) -> bool:
        """Store the rank's part; False where the store cannot take it now."""
        key = keys.part_key(ledger.rank)
        if key in self._written:
            return True
        value = part.build(
            ledger.rank,
            record=ledger.record,
            processes=self._processes(),
            plan=ledger.plan,
            done=ledger.done,
            stopped=stopped,
            records=ledger.records,
            stored=ledger.stored,
            refusals=ledger.refusals,
            orphans=ledger.orphans(),
            missing=ledger.missing,
        )
        body = part.to_bytes(value)
        metadata = object_metadata(self._configuration.run, {names.METADATA_RANK: str(ledger.rank)})
        try:
            self._written[key] = self._put_part(key, body, metadata, value["missing"])
        except StoreError as error:
            LOG.warning("%s is not written yet: %s", key, error)
            return False
        LOG.info("stored %s: %d traces, %d lost", key, len(value["traces"]), len(value["lost"]))
        return True

    def _put_part(self, key: str, body: bytes, metadata: Mapping[str, str], missing: int) -> int:
        try:
            self._store.put(key, body, metadata=metadata, content_type="application/json")
            return missing
        except ObjectExists:
            there = self._store.get(key)
        if hashlib.sha256(there).digest() == hashlib.sha256(body).digest():
            return missing
        LOG.warning("%s was written before and differs: it stays, what came after it is late", key)
        try:
            return int(json.loads(there)["missing"])
        except (ValueError, KeyError, TypeError):
            return missing

    def _processes(self) -> list[dict[str, Any]]:
        found = []
        files = (path for path in self._configuration.spool.glob("process-*.json") if path.stem[8:].isdecimal())
        for path in sorted(files, key=lambda path: int(path.stem[8:]))[:MAX_PROCESSES]:
            try:
                value = read_object(path, MAX_PROCESS_BYTES)
            except (OSError, ValueError) as error:
                LOG.warning("%s cannot be read: %s", path.name, error)
                continue
            if value is not None:
                found.append(value)
        return found

    def write_log(self) -> bool:
        """Store the tail of the engine's log; True also where there is none. Never stands in the way of the end."""
        if self._log_written:
            return True
        key = keys.log_key(self._configuration.pod_index)
        try:
            with open_regular(self._configuration.spool / spool.ENGINE_LOG) as stream:
                size = stream.seek(0, io.SEEK_END)
                stream.seek(max(0, size - MAX_LOG_BYTES))
                if size > MAX_LOG_BYTES:
                    stream.readline()  # the rest of a cut line
                with pack(stream) as packed:
                    metadata = object_metadata(self._configuration.run)
                    body, sha256 = packed.body, packed.sha256
                    self._store.put(key, body, metadata=metadata, sha256=sha256, content_type=CONTENT_TYPE)
                    LOG.info("stored %s %d bytes", key, packed.bytes)
        except FileNotFoundError:
            LOG.info("the engine left no log")
        except ObjectExists:
            LOG.info("%s is stored already", key)
        except StoreError as error:
            LOG.warning("%s is not stored: %s", key, error)
            return False
        except OSError as error:
            LOG.warning("%s is not stored: the log cannot be read: %s", key, error)
        self._log_written = True
        return True

    def write_drained(self, ledgers: Mapping[int, Ledger]) -> bool:
        """Tell the launcher; whether everything that was recorded is stored and listed."""
        missing = sum(ledger.missing for ledger in ledgers.values())
        missing = max(missing, sum(self._written.values()))
        ok = missing == 0 and len(self._written) == len(ledgers)
        value = {"ok": ok, "missing": missing, "parts": sorted(self._written)}
        try:
            spool.write_json(self._configuration.spool / spool.DRAINED, value)
        except OSError as error:  # the launcher waits in vain, yet what is stored stays stored
            LOG.error("%s cannot be written: %s", spool.DRAINED, error)
        LOG.info("drained: ok %s, %d missing, %d parts of %d", ok, missing, len(self._written), len(ledgers))
        return ok
