from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


def load(path: Path) -> ModuleType:
    """Tests are no packages, so what they share is loaded by its path."""
    spec = importlib.util.spec_from_file_location(f"shapetrace_tests_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


seaweed = load(HERE / "seaweed.py")
proxies = load(HERE / "proxy.py")
_collector = load(HERE.parent / "unit" / "collector" / "conftest.py")
spool_writer = _collector.spool_writer
seed, until, start_process = _collector.seed, _collector.until, _collector.start_process


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A real S3 server; each test takes a prefix of its own."""
    process = seaweed.Seaweed(tmp_path_factory.mktemp("seaweed") / "server")
    try:
        process.wait()
        yield process
    finally:
        process.close()


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def writer() -> ModuleType:
    """The fake engine."""
    return spool_writer


@pytest.fixture
def identities() -> dict[str, dict[str, str]]:
    """Credentials by name of the identity."""
    return {
        "writer": seaweed.credentials(seaweed.WRITER),
        "reader": seaweed.credentials(seaweed.READER),
        "wrong secret": {**seaweed.credentials(seaweed.WRITER), "AWS_SECRET_ACCESS_KEY": "not-the-secret-0123"},
        "unknown key": {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nobodys-secret-4567"},
    }


@pytest.fixture
def proxy(server) -> Iterator[object]:
    """A proxy before the server."""
    between = proxies.Proxy(server.ports["s3"])
    yield between
    between.close()


class Pod:
    """A pod's folders, with the real server as its store."""

    def __init__(self, folder: Path, server, prefix: str, credentials: dict[str, str], **options) -> None:
        limits = options.pop("limits", {})
        self.spool = folder / "spool"
        self.spool.mkdir(parents=True)
        settings = server.settings(prefix=prefix, **options)
        self.environment = {**spool_writer.environment(self.spool, settings, **limits), **credentials}
        self.ranks = [spool_writer.FakeRank(self.spool, rank) for rank in (0, 1)]
        self.folder = f"{prefix}/team/run/u-1/attempt-1/"
        self._client = server.client()

    def stop(self, reason: str = "Done", message: str = "") -> None:
        spool_writer.stop(self.spool, reason, message)

    def drained(self):
        return spool_writer.read_drained(self.spool)

    def objects(self) -> dict[str, bytes]:
        """What is in the bucket, read behind the product's back."""
        listed = self._client.list_objects_v2(Bucket=seaweed.BUCKET, Prefix=self.folder).get("Contents", [])
        keys = [item["Key"] for item in listed]
        return {
            key.removeprefix(self.folder): self._client.get_object(Bucket=seaweed.BUCKET, Key=key)["Body"].read()
            for key in keys
        }


@pytest.fixture
def make_pod(tmp_path, server, prefix, identities):
    numbers = iter(range(100))

    def make(**options) -> Pod:
        number = next(numbers)
        credentials = identities[options.pop("identity", "writer")]
        return Pod(tmp_path / f"pod-{number}", server, f"{prefix}-{number}", credentials, **options)

    return make


@pytest.fixture
def pod(make_pod) -> Pod:
    return make_pod()
