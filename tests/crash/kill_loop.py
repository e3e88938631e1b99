"""kill -9 during concurrent inserts, updates, deletes, index builds and drops; nothing acknowledged may be lost.

Each round starts the server on the data the last one left, checks it against what was acknowledged, works on it from
several threads, and kills it at a random moment. Every write is `j: true`. A write whose reply never came may be there
or not; everything acknowledged must be, and `validate` must be clean.

    python tests/crash/kill_loop.py --rounds 100 --engine btree [--seed N]
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pymongo import WriteConcern  # noqa: E402
from pymongo.errors import OperationFailure, PyMongoError  # noqa: E402
from server import Server  # noqa: E402

WRITERS = 4
KEYS = 40


class Expected:
    """What one writer knows of its own keys: the acknowledged state, and what a lost reply may have made of it."""

    def __init__(self):
        self.known = {}
        self.pending = None

    def possible(self, key):
        states = [self.known.get(key)]
        if self.pending and self.pending[0] == key:
            states.append(self.pending[1])
        return states

    def settle(self, key, found):
        self.known[key] = found
        if found is None:
            del self.known[key]


def write(collection, writer, expected, rng, stop):
    """Random inserts, updates and deletes on this writer's own keys."""
    try:
        while not stop.is_set():
            key = f"{writer}:{rng.randrange(KEYS)}"
            value = rng.randrange(1 << 30)
            now = expected.known.get(key)
            if now is None:
                expected.pending = (key, value)
                collection.insert_one({"_id": key, "v": value, "w": writer, "list": [value % 7, value % 5], "pad": "x" * (value % 2000)})
                expected.settle(key, value)
            elif rng.random() < 0.3:
                expected.pending = (key, None)
                assert collection.delete_one({"_id": key}).deleted_count == 1
                expected.settle(key, None)
            else:
                expected.pending = (key, value)
                assert collection.update_one({"_id": key}, {"$set": {"v": value, "list": [value % 7, value % 5]}}).matched_count == 1
                expected.settle(key, value)
            expected.pending = None
    except PyMongoError:
        pass


def define(database, rng, stop):
    """Index builds and drops on the collection under work, and collections that come and go."""
    try:
        number = 0
        while not stop.is_set():
            number += 1
            field = rng.choice(["v", "w", "list", "pad"])
            try:
                if rng.random() < 0.6:
                    database.work.create_index([(field, rng.choice([1, -1]))])
                else:
                    database.work.drop_index(f"{field}_1")
            except OperationFailure as error:
                if error.code not in (27, 276, 85):
                    raise
            extra = database[f"extra{number % 3}"]
            if rng.random() < 0.5:
                extra.insert_many([{"n": i} for i in range(50)])
            else:
                extra.drop()
    except PyMongoError:
        pass


def wait_for_builds(database, name, timeout=600):
    """Index builds that the kill interrupted go on after the start, beside clients; until they end nobody may hint those indexes."""
    end = time.monotonic() + timeout
    while database.command("collStats", name)["indexBuilds"]:
        assert time.monotonic() < end, f"an index build on {name} does not end"
        time.sleep(0.02)


def check(database, writers):
    """Every acknowledged state is there; the collection agrees with its indexes."""
    found = {d["_id"]: d for d in database.work.find()}
    for expected in writers:
        keys = set(expected.known) | ({expected.pending[0]} if expected.pending else set())
        for key in keys:
            value = found.get(key, {}).get("v")
            possible = expected.possible(key)
            assert value in possible, f"{key}: found {value}, acknowledged {possible}"
            expected.known[key] = value
            if value is None:
                del expected.known[key]
        expected.pending = None
    all_known = {key for expected in writers for key in expected.known}
    assert set(found) == all_known, set(found) ^ all_known
    for document in found.values():
        assert document["list"] == [document["v"] % 7, document["v"] % 5], document
    names = database.list_collection_names()
    for name in names:
        report = database.command("validate", name, full=True)
        assert report["valid"], report
        assert report["nrecords"] == database[name].estimated_document_count() == len(list(database[name].find({}, {"_id": 1})))
    if "work" in names:
        wait_for_builds(database, "work")
        for index in database.work.index_information():
            assert len(list(database.work.find({}, {"_id": 1}).hint(index))) == len(found), index


def run(engine, rounds, seed, directory, options=()):
    rng = random.Random(seed)
    writers = [Expected() for _ in range(WRITERS)]
    server = Server(directory, engine, options=options)
    for number in range(rounds):
        server.start()
        client = server.client()
        try:
            check(client.t, writers)
        except AssertionError as error:
            raise AssertionError(f"round {number}, seed {seed}: {error}\n{server.tail()}") from error
        # A client that gives up soon: it is to notice the kill, not to wait for the next start.
        client = server.client(serverSelectionTimeoutMS=200, retryReads=False, retryWrites=False)
        collection = client.t.get_collection("work", write_concern=WriteConcern(j=True))
        stop = threading.Event()
        threads = [
            threading.Thread(target=write, args=(collection, writer, expected, random.Random(rng.random()), stop))
            for writer, expected in enumerate(writers)
        ]
        threads.append(threading.Thread(target=define, args=(client.t, random.Random(rng.random()), stop)))
        for thread in threads:
            thread.start()
        stop.wait(rng.uniform(0.02, 0.5))
        server.process.kill()
        stop.set()
        for thread in threads:
            thread.join()
        server.kill()
    server.start()
    check(server.client().t, writers)
    acknowledged = sum(len(expected.known) for expected in writers)
    assert server.stop() == 0, server.tail()
    return acknowledged


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--engine", default="btree")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--tenond", help="the program, when not the built one")
    arguments = parser.parse_args()
    if arguments.tenond:
        import os

        os.environ["TENOND"] = arguments.tenond
    print(f"engine {arguments.engine}, seed {arguments.seed}")
    with tempfile.TemporaryDirectory() as directory:
        left = run(arguments.engine, arguments.rounds, arguments.seed, directory)
    print(f"{arguments.rounds} kills survived, {left} documents at the end")


if __name__ == "__main__":
    main()
