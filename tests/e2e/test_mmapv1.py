"""What the mmapv1 engine shows and heeds of its own: files, extents, quota, collection locks."""

import pytest
from members import refused_code
from pymongo.errors import OperationFailure
from server import Server

MB = 1 << 20
MAX_TIME_MS_EXPIRED = 50
WRITE_CONFLICT = 112


def small(tmp_path, *options):
    return Server(tmp_path / "data", engine="mmapv1", options=["--smallfiles", "--nssize", "1", *options])


def files_of(server, database):
    return {path.name: path.stat().st_size for path in server.data.rglob(f"{database}.*")}


def test_files_double_and_stats_show_them(tmp_path):
    with small(tmp_path, "--directoryperdb") as server:
        db = server.client().shop
        db.c.insert_many([{"_id": i, "pad": "x" * 10_000} for i in range(1500)])
        db.client.admin.command("fsync")
        assert files_of(server, "shop") == {"shop.ns": MB, "shop.0": 16 * MB, "shop.1": 32 * MB}
        assert [path.name for path in server.data.rglob("shop.ns")][0] and any(path.is_dir() for path in server.data.rglob("shop"))
        stats = db.command("dbStats", scale=MB)
        assert (stats["fileSize"], stats["nsSizeMB"]) == (48, 1), stats
        assert stats["dataFileVersion"] == {"major": 1, "minor": 0}
        assert set(stats["extentFreeList"]) == {"num", "totalSize"}
        stats = db.command("collStats", "c")
        assert stats["numExtents"] > 3 and stats["paddingFactor"] == 1.0 and stats["lastExtentSize"] > MB, stats
        # A document that outgrows its room moves; one that does not, stays.
        db.c.update_one({"_id": 7}, {"$set": {"pad": "y" * 10_001}})
        assert db.command("collStats", "c")["recordsMoved"] == 0
        db.c.update_one({"_id": 7}, {"$set": {"pad": "z" * 40_000}})
        assert db.command("collStats", "c")["recordsMoved"] == 1
        assert db.c.find_one({"_id": 7})["pad"] == "z" * 40_000
        assert db.command("validate", "c", full=True)["valid"]
        db.client.drop_database("shop")
        db.client.admin.command("fsync")
        db.client.admin.command("fsync")
        assert files_of(server, "shop") == {}


def test_everything_is_there_after_a_kill(tmp_path):
    server = small(tmp_path, "--noprealloc")
    server.start()
    try:
        db = server.client().shop
        db.c.create_index("n")
        for i in range(300):
            db.c.insert_one({"_id": i, "n": i % 7, "pad": "x" * (i * 20)})
            if i == 150:
                db.client.admin.command("fsync")
        db.c.update_many({"n": 3}, {"$set": {"pad": "y" * 9000}})
        db.c.delete_many({"n": 5})
        db.c.with_options(write_concern=__import__("pymongo").WriteConcern(j=True)).insert_one({"_id": "last"})
        before = list(db.c.find().sort("_id", 1))
        server.kill()
        server.start()
        db = server.client().shop
        assert list(db.c.find().sort("_id", 1)) == before
        assert db.c.count_documents({"n": 3}, hint="n_1") == len([1 for document in before if document.get("n") == 3])
        assert db.command("validate", "c", full=True)["valid"]
    finally:
        server.stop()


def test_a_quota_refuses_inserts_and_lets_other_databases_grow(tmp_path):
    with small(tmp_path, "--quota", "--quotaFiles", "1") as server:
        db = server.client().full
        with pytest.raises(OperationFailure) as error:
            for i in range(4000):
                db.c.insert_one({"_id": i, "pad": "x" * 10_000})
        assert "quota exceeded" in str(error.value), error.value
        assert db.c.count_documents({}) > 300
        server.client().other.c.insert_one({"_id": 1})
        db.c.delete_many({})
        # What was deleted is free once a checkpoint no longer has it.
        server.client().admin.command("fsync")
        db.c.insert_one({"_id": "again"})


def test_a_namespace_file_that_is_full_refuses_collections(tmp_path):
    with small(tmp_path) as server:
        db = server.client().many
        with pytest.raises(OperationFailure) as error:
            for i in range(3000):
                db.create_collection(f"c{i}")
        assert "nsSize" in str(error.value), error.value
        count = len(db.list_collection_names())
        assert 500 < count < 2048
        db.drop_collection("c0")
        db.create_collection("again")
        assert len(db.list_collection_names()) == count


def test_writers_lock_collections_whole(tmp_path):
    with small(tmp_path) as server:
        db = server.client().shop
        db.command("profile", 2)
        db.c.insert_one({"_id": 1})
        list(db.c.find())
        inserted = db["system.profile"].find_one({"op": "insert", "ns": "shop.c"})
        found = db["system.profile"].find_one({"op": "query", "ns": "shop.c"})
        assert inserted["locks"]["Collection"]["acquireCount"] == {"W": 1}, inserted["locks"]
        assert found["locks"]["Collection"]["acquireCount"] == {"R": 1}, found["locks"]


def test_members_lock_rows(tmp_path):
    with small(tmp_path, "--replSet", "rs0", "--replSetInitiate") as server:
        client = server.client()
        c = client.shop.c
        c.insert_many([{"_id": i, "n": 0} for i in range(4)])
        add = {"$inc": {"n": 1}}
        with client.start_session() as first, client.start_session() as second:
            with first.start_transaction(), second.start_transaction():
                # Reads first: a lock of the whole collection would keep its own writes out, and the others'.
                for session, places in ((first, (0, 1)), (second, (2, 3))):
                    assert c.find_one({"_id": places[0]}, session=session)["n"] == 0
                    for place in places:
                        assert c.update_one({"_id": place}, add, session=session).modified_count == 1
                assert refused_code(lambda: c.update_one({"_id": 0}, add, session=second))[0] == WRITE_CONFLICT
                second.abort_transaction()
                # Who has no transaction waits for rows alone.
                def plain(place):
                    update = {"update": "c", "updates": [{"q": {"_id": place}, "u": add}], "maxTimeMS": 300}
                    return client.shop.command(update)["nModified"]

                assert plain(2) == 1 and c.count_documents({}) == 4
                assert refused_code(plain, 0)[0] == MAX_TIME_MS_EXPIRED
        assert [row["n"] for row in c.find().sort("_id", 1)] == [1, 1, 1, 0]


@pytest.mark.parametrize("options", [[], ["--directoryperdb"]])
def test_databases_called_like_the_engines_own_files(tmp_path, options):
    names = ["root", "journal", "other"]
    with small(tmp_path, *options) as server:
        for name in names:
            server.client()[name].c.insert_many([{"_id": i} for i in range(100)])
        server.client().admin.command("fsync")
        server.client()["root"].c.insert_one({"_id": "behind a checkpoint"})
    with small(tmp_path, *options) as server:
        client = server.client()
        assert [client[name].c.count_documents({}) for name in names] == [101, 100, 100]
        client.drop_database("root")
        client.drop_database("journal")
        client.admin.command("fsync")
    with small(tmp_path, *options) as server:
        client = server.client()
        assert [client[name].c.count_documents({}) for name in names] == [0, 0, 100]
