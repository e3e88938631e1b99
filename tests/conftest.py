import random
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from server import Server, engines_for  # noqa: E402


# The files that take longest, in the order in which they are begun; the others follow.
LONGEST_FIRST = [
    "test_bench.py",
    "test_crash.py",
    "test_stress.py",
    "test_change_streams.py",
    "test_members.py",
    "test_encryption.py",
    "test_replica_set.py",
    "test_report_page.py",
    "test_point_in_time.py",
    "test_backup.py",
    "test_set_changes.py",
    "test_packages.py",
    "test_migrate.py",
    "test_javascript.py",
]


def pytest_collection_modifyitems(items):
    """The tests of one file run in one process, which takes the next file when it is through."""
    rank = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.fixture(scope="module")
def new_folder(request, tmp_path_factory):
    """Makes folders for what the tests of a module share. They go with it, unless one of them failed: those of a whole
    run take many gigabytes."""
    made, failed = [], request.session.testsfailed

    def make(name):
        made.append(tmp_path_factory.mktemp(name))
        return made[-1]

    yield make
    if request.session.testsfailed == failed:
        for folder in made:
            shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def no_server_is_left(request):
    """A server that a test leaves running in its own folder ends with the test."""
    yield
    folder = request.node.funcargs.get("tmp_path")
    for server in list(Server.STARTED):
        if folder and server.directory.is_relative_to(folder):
            Server.STARTED.discard(server)
            if server.process is not None:
                # While it can answer: a client that ends its sessions waits a minute for a server that has gone.
                server.close_clients()
                server.kill()


def pytest_generate_tests(metafunc):
    """A module's tests may choose engines of their own."""
    is_chosen = any(mark.args[0] == "server" for mark in metafunc.definition.iter_markers("parametrize"))
    if "server" in metafunc.fixturenames and not is_chosen:
        metafunc.parametrize("server", engines_for(metafunc.module.__name__), indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(request, new_folder):
    """One server per test module and engine, with the module's SERVER_OPTIONS; it must end cleanly."""
    options = getattr(request.module, "SERVER_OPTIONS", ["--setParameter", "ttlMonitorSleepSecs=1"])
    made = Server(new_folder("tenond"), request.param, options=options)
    made.start()
    yield made
    assert made.process.poll() is None, f"the server died:\n{made.tail()}"
    assert made.stop() == 0, made.tail()


@pytest.fixture
def seed():
    """Where a test's randomness comes from; it is printed."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return seed


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
