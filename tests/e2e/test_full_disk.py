"""A disk that is nearly full: the log gives back what nobody needs, and what was acknowledged stays."""

import random

import pytest
from disks import file_system_of
from pymongo.errors import OperationFailure
from server import Server

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 300 MiB, where this user may mount one."""
    with file_system_of(tmp_path / "disk", "300m") as disk:
        yield disk


def server_on(disk, engine, options=()):
    server = Server(disk, engine, options=["--syncdelay", "60", *options])
    server.log = disk.parent / "tenond.log"
    return server


class Rewritten:
    """Five documents of a megabyte that are written over and over, without waiting for the disk."""

    def __init__(self, server):
        self.collection = server.client(directConnection=True).shop.a
        self.random, self.last = random.Random(1), {number: 0 for number in range(5)}
        self.collection.insert_many({"_id": number, "n": 0} for number in self.last)

    def update(self, n):
        text = self.random.randbytes(MIB)
        self.collection.update_one({"_id": n % 5}, {"$set": {"text": text, "n": n}})
        self.last[n % 5] = n


def found(server):
    return {each["_id"]: each["n"] for each in server.client(directConnection=True).shop.a.find({}, {"n": 1})}


SETS = {"alone": [], "set": ["--replSet", "rs0", "--replSetInitiate"]}


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("engine", ["btree", "betree"])
def test_a_log_that_fills_the_disk_is_freed(small_disk, engine, kind):
    with server_on(small_disk, engine, SETS[kind]) as server:
        rewritten = Rewritten(server)
        for n in range(1, 501):
            rewritten.update(n)
        assert found(server) == rewritten.last
        assert server.stop() == 0
        server.start()
        assert found(server) == rewritten.last


@pytest.mark.parametrize("engine", ["btree", "betree"])
def test_what_is_taken_on_a_full_disk_outlasts_an_orderly_end(small_disk, engine):
    with server_on(small_disk, engine) as server:
        rewritten, ballast, n = Rewritten(server), small_disk / "ballast", 1
        server.client().admin.command("fsync")
        with open(ballast, "wb") as file, pytest.raises(OSError):
            while True:
                file.write(bytes(MIB))
                file.flush()
        with pytest.raises(OperationFailure) as error:
            while n < 200:
                rewritten.update(n)
                n += 1
        assert error.value.code == 14031 and "spare" not in str(error.value), error.value
        assert found(server) == rewritten.last
        server.stop()
        ballast.unlink()
        server.start()
        assert found(server) == rewritten.last
        server.client().shop.a.insert_one({"_id": "room again"})
