"""Logging: one line for each transition of a run, quiet otherwise."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

QUIET = ("kopf", "kopf.objects", "kopf.activities", "aiohttp.access", "aiohttp_retry", "kubernetes")
"""They tell of every event and every probe."""


class JsonLine(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(as_json: bool, level: str = "INFO") -> None:
    """Set up the process's logging."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonLine() if as_json else plain)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
