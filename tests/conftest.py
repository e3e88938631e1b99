import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from server import ENGINES, Server  # noqa: E402


@pytest.fixture(scope="module", params=ENGINES)
def server(request, tmp_path_factory):
    """One server per test module and engine; it must end cleanly."""
    made = Server(tmp_path_factory.mktemp("tenond"), request.param, options=["--setParameter", "ttlMonitorSleepSecs=1"])
    made.start()
    yield made
    assert made.process.poll() is None, f"the server died:\n{made.tail()}"
    assert made.stop() == 0, made.tail()


@pytest.fixture
def client(server):
    made = server.client()
    yield made
    made.close()


@pytest.fixture
def db(client, request):
    """An empty database named after the test; validated and dropped afterwards."""
    name = ("t_" + request.node.name.split("[")[0])[:60]
    client.drop_database(name)
    yield client[name]
    for collection in client[name].list_collection_names(filter={"type": "collection"}):
        report = client[name].command("validate", collection, full=True)
        assert report["valid"], report
    client.drop_database(name)
