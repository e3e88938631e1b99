"""What storage engines answer for: compressors, sizes, verification, compaction, the figures that tools read."""

import os
import time

import pytest
from pymongo.errors import OperationFailure
from server import Server


def config(engine, text):
    return {engine: {"configString": text}}


def test_collections_and_indexes_have_their_own_compressor(db, server):
    for name, engine, text in [("none", "wiredTiger", "none"), ("zlib", "btree", "zlib")]:
        db.create_collection(name, storageEngine=config(engine, f"block_compressor={text}"))
        db[name].insert_many([{"_id": i, "a": f"compressible {i} " * 20} for i in range(2000)])
    [listed] = db.list_collections(filter={"name": "none"})
    assert listed["options"] == {"storageEngine": config("wiredTiger", "block_compressor=none")}
    db.none.create_index("a", name="plain", storageEngine=config("wiredTiger", "block_compressor=none,prefix_compression=true"))
    db.none.create_index([("a", -1)], name="packed", storageEngine=config("btree", "block_compressor=zstd"))
    assert db.none.index_information()["plain"]["storageEngine"] == config("wiredTiger", "block_compressor=none,prefix_compression=true")
    db.client.admin.command("fsync")
    sizes = {name: db.command("collStats", name) for name in ["none", "zlib"]}
    if server.engine == "btree":
        assert sizes["none"]["storageSize"] > 3 * sizes["zlib"]["storageSize"] > 0, sizes
        indexes = sizes["none"]["indexSizes"]
        assert indexes["plain"] > indexes["packed"] > 0, indexes


@pytest.mark.parametrize(
    "options",
    [
        {"storageEngine": config("wiredTiger", "block_compressor=gzip")},
        {"storageEngine": config("wiredTiger", "prefix_compression=false")},
        {"storageEngine": config("btree", "allocation_size=4KB")},
        {"storageEngine": {"devnull": {}}},
        {"indexOptionDefaults": {"storageEngine": config("wiredTiger", "nonesuch=1")}},
    ],
)
def test_engine_options_that_cannot_be_honoured_are_refused(db, options):
    with pytest.raises(OperationFailure) as error:
        db.create_collection("c", **options)
    assert error.value.code == 72, error.value
    assert db.list_collection_names() == []


def test_index_option_defaults_reach_the_indexes(db, server):
    for name, compressor in [("plain", "none"), ("packed", "zlib")]:
        db.create_collection(name, indexOptionDefaults={"storageEngine": config("wiredTiger", f"block_compressor={compressor}")})
        db[name].insert_many([{"_id": i, "a": f"{i} compressible " * 20} for i in range(2000)])
        db[name].create_index("a")
    db.client.admin.command("fsync")
    if server.engine == "btree":
        sizes = [db.command("collStats", name)["indexSizes"]["a_1"] for name in ["plain", "packed"]]
        assert sizes[0] > 2 * sizes[1] > 0, sizes


def test_sizes_follow_the_data(db, server):
    db.c.create_index("a")
    db.c.insert_many([{"_id": i, "a": i, "pad": os.urandom(500)} for i in range(4000)])
    db.client.admin.command("fsync")
    stats = db.command("collStats", "c")
    if server.engine == "btree":
        assert stats["storageSize"] > 4000 * 500, stats
        assert set(stats["indexSizes"]) == {"_id_", "a_1"} and min(stats["indexSizes"].values()) > 0
        assert stats["totalIndexSize"] == sum(stats["indexSizes"].values())
        database = db.command("dbStats")
        assert database["storageSize"] == stats["storageSize"] and database["indexSize"] == stats["totalIndexSize"]
    db.c.delete_many({"_id": {"$gte": 100}})
    db.command("compact", "c")
    after = db.command("collStats", "c")
    assert after["count"] == 100
    if server.engine == "btree":
        assert after["storageSize"] < stats["storageSize"] / 4, (stats, after)


def test_compaction_gives_space_back(tmp_path):
    with Server(tmp_path, "btree") as server:
        db = server.client().t
        db.c.insert_many([{"_id": i, "pad": os.urandom(1000)} for i in range(20_000)])
        db.client.admin.command("fsync")

        def size():
            return sum(path.stat().st_blocks * 512 for path in (server.data / "btree").rglob("*") if path.is_file())

        before = size()
        assert before > 20_000_000
        db.c.delete_many({"_id": {"$gte": 1000}})
        db.command("compact", "c")
        assert size() < before / 2, (before, size())
        assert db.command("validate", "c", full=True)["valid"]
        assert db.c.count_documents({}) == 1000


def test_validate_finds_damaged_blocks(tmp_path):
    server = Server(tmp_path, "btree")
    with server:
        server.client().t.c.insert_many([{"_id": i, "pad": os.urandom(1000)} for i in range(10_000)])
    largest = max((path for path in (server.data / "btree").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    with open(largest, "r+b") as file:
        # Places among random bytes: some of them in a leaf, wherever free space lies.
        for part in range(2, 8):
            file.seek(largest.stat().st_size * part // 10)
            file.write(b"\xa5" * 4096)
    with server:
        report = server.client().t.command("validate", "c", full=True)
        assert not report["valid"] and report["errors"], report


def test_cache_and_checkpoint_figures_are_there_for_tools(tmp_path):
    with Server(tmp_path, "btree", options=["--wiredTigerCacheSizeGB", "0.25"]) as server:
        client = server.client()
        client.t.c.insert_many([{"_id": i, "pad": os.urandom(1000)} for i in range(5000)])
        dirty = client.admin.command("serverStatus")["wiredTiger"]["cache"]
        assert dirty["bytes currently in the cache"] >= 5_000_000 and dirty["tracked dirty bytes in the cache"] > 0
        client.admin.command("fsync")
        status = client.admin.command("serverStatus")
        section = status["wiredTiger"]
        cache = section["cache"]
        assert cache["maximum bytes configured"] == 1 << 28
        assert cache["pages written from cache"] > 0 and section["block-manager"]["bytes written"] >= 5_000_000
        assert cache["modified pages evicted"] == 0 and cache["unmodified pages evicted"] >= 0
        transaction = section["transaction"]
        assert transaction["transaction checkpoints"] >= 1 and transaction["transaction checkpoint currently running"] == 0
        assert transaction["transaction checkpoint total time (msecs)"] >= transaction["transaction checkpoint most recent time (msecs)"]
        assert status["tenon"]["engine"]["checkpoint"]["count"] >= 1
        checkpoint = section["checkpoint"]
        assert checkpoint["total succeed number of checkpoints"] == transaction["transaction checkpoints"]
        assert checkpoint["min time (msecs)"] <= checkpoint["most recent time (msecs)"] <= checkpoint["max time (msecs)"]
        assert checkpoint["total failed number of checkpoints"] == 0 and checkpoint["progress state"] == 0
        # What was dirty is written; the checkpoint itself leaves next to nothing.
        assert cache["tracked dirty bytes in the cache"] < dirty["tracked dirty bytes in the cache"] / 10
        assert dirty["tracked dirty pages in the cache"] >= 5_000_000 // 16384
        leaf, inner = (cache[f"tracked bytes belonging to {kind} pages in the cache"] for kind in ("leaf", "internal"))
        maps = status["tenon"]["engine"]["cache"]["mapBytes"]  # of space in the files
        assert leaf > 5_000_000 and inner > 0 and leaf + inner + maps == cache["bytes currently in the cache"]
        assert section["log"]["log bytes of payload data"] >= 5_000_000 and section["log"]["log sync operations"] > 0
        # Nobody reads or writes now; a driver's monitor, which waits in hello, is no reader.
        for tickets in (section["concurrentTransactions"], status["queues"]["execution"]):
            for side in ("read", "write"):
                assert tickets[side]["out"] == 0 and tickets[side]["available"] == tickets[side]["totalTickets"] > 0
        assert status["globalLock"]["activeClients"] == {"total": 0, "readers": 0, "writers": 0}
        stats = client.t.command("collStats", "c")
        assert stats["wiredTiger"]["cache"]["bytes currently in the cache"] >= 5_000_000
        assert stats["wiredTiger"]["block-manager"]["file size in bytes"] == stats["storageSize"] >= 5_000_000
        assert stats["indexDetails"]["_id_"]["block-manager"]["file size in bytes"] == stats["indexSizes"]["_id_"] > 0


@pytest.mark.parametrize("options", [[], ["--btreeDirectIO"]], ids=["cached", "direct"])
def test_data_larger_than_the_cache(tmp_path, options):
    """A cache of some 10 MB and four times as much data: everything is there, before and after a restart."""
    server = Server(tmp_path, "btree", options=["--wiredTigerCacheSizeGB", "0.01", *options])
    with server:
        c = server.client().t.c
        c.create_index("a")
        for first in range(0, 40_000, 10_000):
            c.insert_many([{"_id": i, "a": (i * 7919) % 40_000, "pad": os.urandom(1000)} for i in range(first, first + 10_000)])
        # What the last writes took beyond that is given back beside them.
        end = time.monotonic() + 60
        while True:
            cache = server.client().admin.command("serverStatus")["wiredTiger"]["cache"]
            if cache["bytes currently in the cache"] <= cache["maximum bytes configured"] * 1.1:
                break
            assert time.monotonic() < end, cache
            time.sleep(0.05)
        assert [d["_id"] for d in c.find({"a": {"$lt": 5}}, {"_id": 1}).sort("a")] == [pow(7919, -1, 40_000) * a % 40_000 for a in range(5)]
    with server:
        c = server.client().t.c
        assert len(list(c.find({}, {"_id": 1}))) == 40_000
        assert [c.find_one({"_id": i})["_id"] for i in range(0, 40_000, 97)] == list(range(0, 40_000, 97))
        assert server.client().t.command("validate", "c", full=True)["valid"]
        status = server.client().admin.command("serverStatus")
        assert status["wiredTiger"]["cache"]["pages read into cache"] > 0
        check_direct(server, status["tenon"]["engine"]["files"]["readDirectly"], bool(options))


def check_direct(server, files, is_wanted):
    """Files are read past the system's cache when that is wanted; where the disk cannot, the start says so."""
    warnings = server.client().admin.command("getLog", "startupWarnings")["log"]
    refused = any("past the system's cache" in line for line in warnings)
    assert (files > 0) == (is_wanted and not refused), (files, warnings)


def test_direct_reads_of_betree(tmp_path):
    server = Server(tmp_path, "betree", options=["--PerconaFTEngineCacheSize", str(4 << 20), "--PerconaFTEngineDirectio"])
    with server:
        server.client().t.c.insert_many([{"_id": i, "pad": os.urandom(1000)} for i in range(20_000)])
    with server:
        c = server.client().t.c
        assert [c.find_one({"_id": i})["_id"] for i in range(0, 20_000, 97)] == list(range(0, 20_000, 97))
        assert len(list(c.find({}, {"_id": 1}))) == 20_000
        engine = server.client().admin.command("serverStatus")["tenon"]["engine"]
        check_direct(server, engine["blocks"]["files_read_directly"], True)


def test_opening_reads_nothing_of_collections_that_nobody_uses(tmp_path):
    names = [f"c{n}" for n in range(300)]
    server = Server(tmp_path, "btree")
    with server:
        t = server.client().t
        for name in names:
            t[name].insert_one({"_id": 1})
    with server:
        client = server.client()
        t = client.t

        def pages_read():
            return client.admin.command("serverStatus")["wiredTiger"]["cache"]["pages read into cache"]

        # What there is, and how much of it, is in a few pages for all of them.
        assert [t[name].estimated_document_count() for name in names] == [1] * 300
        assert pages_read() < 100
        for name in names:
            t[name].insert_one({"_id": 2})
        assert pages_read() >= 300
        assert all([d["_id"] for d in t[name].find().sort("$natural", 1)] == [1, 2] for name in names)
