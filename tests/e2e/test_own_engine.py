"""A server with an engine from outside: `examples/engine-deltas`."""

import os
import signal
import subprocess

import pytest
import server as servers
from pymongo import WriteConcern
from server import Server

PROGRAM = os.path.join(os.path.dirname(servers.binary()), "engine-deltas")


@pytest.fixture
def own(tmp_path, monkeypatch):
    if not os.path.exists(PROGRAM):
        pytest.skip("engine-deltas is not built")
    monkeypatch.setenv("TENOND", PROGRAM)
    with Server(tmp_path, "deltas") as made:
        yield made


def test_it_serves_and_keeps_what_it_was_told(own):
    client = own.client()
    assert client.admin.command("serverStatus")["storageEngine"]["name"] == "deltas"
    assert "deltas" in client.admin.command("buildInfo")["storageEngines"]
    orders = client.shop.get_collection("orders", write_concern=WriteConcern(j=True))
    orders.create_index("n", unique=True)
    orders.insert_many([{"_id": n, "n": n, "text": "x" * 100} for n in range(2000)])
    client.admin.command("fsync")
    # These are in the log only.
    orders.update_many({"_id": {"$lt": 100}}, {"$inc": {"n": 10_000}})
    orders.delete_many({"_id": {"$gte": 1500}})
    own.kill()
    own.start()
    orders = own.client().shop.orders
    assert orders.count_documents({}) == 1500
    assert orders.find_one({"n": 10_099})["_id"] == 99
    assert own.client().shop.command("validate", "orders", full=True)["valid"]
    assert own.stop() == 0
    # Without an engine named, the data's is taken.
    own.engine = None
    own.start()
    assert own.client().shop.orders.count_documents({}) == 1500


def test_what_it_says_of_itself(own):
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    assert "btree" in version and ", deltas" in version
    own.process.send_signal(signal.SIGTERM)
    assert own.process.wait(60) == 0
    own.process.stdout.close()
    own.process = None
    other = subprocess.run(
        [servers.binary(), "--dbpath", own.data, "--storageEngine", "nonesuch"], capture_output=True, text=True
    )
    assert "Unknown storage engine 'nonesuch'" in other.stdout + other.stderr
