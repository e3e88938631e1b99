"""Temporary collections that a crash leaves of `$out` and `convertToCapped` are gone after the next start."""

import threading
import time

import pytest
from members import ReplicaSet, persist, wait
from pymongo import WriteConcern
from pymongo.errors import PyMongoError
from server import ENGINES, Server

SETS = {"alone": [], "set": ["--replSet", "rs0", "--replSetInitiate"]}


def fill(client):
    """Documents that keep a pipeline busy for long: each is looked up by a scan."""
    client.shop.orders.insert_many([{"_id": i, "text": "x" * 500} for i in range(6000)])


SLOW_OUT = [
    {"$lookup": {"from": "orders", "let": {"n": "$_id"}, "pipeline": [{"$match": {"$expr": {"$eq": ["$_id", {"$add": ["$$n", 0]}]}}}, {"$count": "n"}], "as": "found"}},
    {"$out": "results"},
]  # fmt: skip


def begin(client, work):
    """Runs `work` in a thread that may fail, and waits until a temporary collection of it is in the log on disk."""

    def run():
        try:
            work()
        except PyMongoError:
            pass

    thread = threading.Thread(target=run)
    thread.start()
    end = time.monotonic() + 60
    while not client.shop.list_collection_names(filter={"name": {"$regex": r"^tmp\.agg_out\.[0-9a-f]{32}$"}}):
        assert time.monotonic() < end and thread.is_alive(), "it was over before it was seen"
    client.shop.get_collection("other", write_concern=WriteConcern(w=1, j=True)).insert_one({})
    return thread


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_crash_leaves_nothing(tmp_path, engine, kind):
    server = Server(tmp_path, engine, options=SETS[kind])
    with server:
        client = server.client(directConnection=True)
        fill(client)
        client.shop.results.insert_one({"_id": "former"})
        # Of somebody who likes such names.
        client.shop["tmp.agg_out.mine"].insert_one({})
        other = server.client(directConnection=True, serverSelectionTimeoutMS=10000)
        thread = begin(client, lambda: other.shop.orders.aggregate(SLOW_OUT))
        server.kill()
        thread.join()
        server.start()
        client = server.client(directConnection=True)
        assert sorted(client.shop.list_collection_names()) == ["orders", "other", "results", "tmp.agg_out.mine"]
        assert [document["_id"] for document in client.shop.results.find()] == ["former"]
        assert client.shop.orders.count_documents({}) == 6000
        assert "Dropped a temporary collection" in server.log.read_text()


def test_the_next_primary_drops_what_the_last_one_left(tmp_path):
    with ReplicaSet(tmp_path) as rs:
        rs.initiate()
        client = rs.client()
        fill(client)
        primary = rs.primary
        other = primary.client(directConnection=True, serverSelectionTimeoutMS=10000)
        thread = begin(primary.direct, lambda: other.shop.orders.aggregate(SLOW_OUT))
        # On a majority, so that the next one has it.
        persist(client.shop.other, "after")
        primary.kill()
        thread.join()

        def names():
            return sorted(rs.primary.direct.shop.list_collection_names(filter={"name": {"$regex": "^tmp"}}))

        wait(lambda: names() == [], names)
        # It is told when it is done.
        told = lambda: any("Dropped a temporary collection" in each.log.read_text() for each in rs.members if each is not primary)
        wait(told, "the log to tell of it")
        primary.start()
        rs.wait_healthy()
        rs.check_equal()
        assert not primary.direct.shop.list_collection_names(filter={"name": {"$regex": "^tmp"}})
