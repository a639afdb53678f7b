"""``python3 -m shapetrace_collector``: the sidecar of a capture pod, or the collector of a local run."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from shapetrace_contract import message, names
from shapetrace_contract.message import Termination
from shapetrace_contract.reasons import Reason, exit_code
from shapetrace_contract.settings import SettingError


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run until drained and told to end; the exit code."""
    parser = argparse.ArgumentParser(prog="shapetrace_collector", description=__doc__)
    parser.add_argument("--host", default="", help="address of /progress; all addresses by default")
    parser.add_argument("--port", type=int, default=names.PROGRESS_PORT, help="port of /progress; 0 picks one")
    parser.add_argument("--exit-when-drained", action="store_true", help="end as soon as everything is stored")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # botocore tells every connection; what matters of it is in our own errors
    logging.getLogger("botocore").setLevel(logging.ERROR)
    logging.getLogger("urllib3").setLevel(logging.ERROR)

    from shapetrace_traces.store import StoreError, open_store

    from shapetrace_collector.collector import Collector
    from shapetrace_collector.configuration import Configuration
    from shapetrace_collector.indexing import Indexer
    from shapetrace_collector.serve import serve

    try:
        configuration = Configuration.from_environment(environment)
        store = open_store(configuration.store, configuration.run, environment)
    except (SettingError, StoreError) as error:
        return _end(Termination(Reason.BAD_CONFIGURATION.value, str(error)), Reason.BAD_CONFIGURATION, environment)
    indexer = Indexer(environment)
    collector = Collector(configuration, store, indexer.start, hurry=indexer.hurry)
    signal.signal(signal.SIGTERM, lambda *_: collector.terminate())
    signal.signal(signal.SIGINT, lambda *_: collector.terminate())
    try:
        server = serve(options.host, options.port, collector.progress)
    except OSError as error:
        text = f"cannot listen on port {options.port}: {error.strerror}; choose another with --port"
        return _end(Termination(Reason.BAD_CONFIGURATION.value, text), Reason.BAD_CONFIGURATION, environment)
    logging.getLogger("shapetrace.collector").info("progress on port %d, objects to %s", server.port, store.location)
    drained = collector.run(options.exit_when_drained)
    indexer.close()
    if drained:
        return _end(Termination(Reason.DONE.value, "everything recorded is stored", drained=True), None, environment)
    text = "not everything that was recorded could be stored"
    return _end(Termination(Reason.UPLOAD_TIMEOUT.value, text), Reason.UPLOAD_TIMEOUT, environment)


def _end(termination: Termination, reason: Reason | None, environment: Mapping[str, str]) -> int:
    if reason is not None:
        print(f"{termination.reason}: {termination.message}", file=sys.stderr, flush=True)
    message.leave(termination.to_json(), environment)
    return 0 if reason is None else exit_code(reason)


if __name__ == "__main__":
    code = main(sys.argv[1:], os.environ)
    sys.stderr.flush()
    # threads that wait for a dead store end with the process
    os._exit(code)
