"""Indexes that become unique: `prepareUnique`, then `unique`, by `collMod`."""

import threading

import pymongo
import pytest
from bson import Decimal128
from bson.codec_options import CodecOptions
from members import ReplicaSet
from pymongo import ReadPreference
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure, PyMongoError
from server import ENGINES, Server


def refused(call, code):
    with pytest.raises(OperationFailure) as failure:
        call()
    assert failure.value.code == code, failure.value
    return failure.value


def change(db, name="a_1", dry_run=None, **options):
    command = {"collMod": "c", "index": {"name": name} | options}
    if dry_run is not None:
        command["dryRun"] = dry_run
    return db.command(command)


def spec(db, name="a_1"):
    return next(i for i in db.c.list_indexes() if i["name"] == name)


def test_new_duplicates_are_refused_and_old_ones_stay(db):
    db.c.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 1, "b": 1}, {"_id": 3, "a": 2}, {"_id": 4, "a": [5, 6, 5]}, {"_id": 5}])
    db.c.create_index("a")
    assert change(db, prepareUnique=True)["prepareUnique_new"] is True
    assert spec(db)["prepareUnique"] is True and "unique" not in spec(db)
    for call in (
        lambda: db.c.insert_one({"a": 1}),
        lambda: db.c.insert_one({"a": 2.0}),
        lambda: db.c.insert_one({"a": [7, Decimal128("2")]}),
        lambda: db.c.insert_one({"a": None}),
        lambda: db.c.update_one({"_id": 3}, {"$set": {"a": 1}}),
        lambda: db.c.update_one({"_id": 3}, {"$set": {"a": 6}}),
        lambda: db.c.replace_one({"_id": 100}, {"a": 5}, upsert=True),
        lambda: db.c.find_one_and_update({"_id": 3}, {"$push": {"b": 1}, "$unset": {"a": 1}}),
    ):
        failure = refused(call, 11000)
    assert failure.details["keyPattern"] == {"a": 1} and failure.details["keyValue"] == {"a": None}
    # What shares a key already may change in other fields, go, and come back alone.
    db.c.update_one({"_id": 1}, {"$set": {"b": 5}})
    db.c.update_one({"_id": 2}, {"$set": {"a": 9}})
    refused(lambda: db.c.update_one({"_id": 2}, {"$set": {"a": 1}}), 11000)
    db.c.delete_one({"_id": 1})
    db.c.update_one({"_id": 2}, {"$set": {"a": 1}})
    with pytest.raises(BulkWriteError) as failure:
        db.c.insert_many([{"_id": 20, "a": 20}, {"_id": 21, "a": 21}, {"_id": 22, "a": 20}], ordered=True)
    assert [error["index"] for error in failure.value.details["writeErrors"]] == [2]
    assert change(db, prepareUnique=False)["prepareUnique_old"] is True
    assert "prepareUnique" not in spec(db)
    db.c.insert_one({"a": 1})
    assert db.command("validate", "c", full=True)["valid"]


def test_it_becomes_unique(db):
    db.c.insert_many([{"_id": n, "a": n // 2, "b": 1} for n in range(6)] + [{"_id": "x", "a": [0, 7]}, {"_id": 8, "a": 8}])
    db.c.create_index("a")
    refused(lambda: change(db, unique=True), 72)
    change(db, prepareUnique=True)
    failure = refused(lambda: change(db, unique=True), 359)
    assert failure.details["codeName"] == "CannotConvertIndexToUnique"
    assert failure.details["violations"] == [{"ids": [0, 1, "x"]}, {"ids": [2, 3]}, {"ids": [4, 5]}]
    assert refused(lambda: change(db, unique=True, dry_run=True), 359).details["violations"] == failure.details["violations"]
    db.c.delete_many({"_id": {"$in": [1, 3, 5, "x"]}})
    change(db, unique=True, dry_run=True)
    assert "unique" not in spec(db)
    assert change(db, unique=True)["unique_new"] is True
    assert spec(db)["unique"] is True and "prepareUnique" not in spec(db)
    refused(lambda: db.c.insert_one({"a": 8.0}), 11000)
    refused(lambda: db.c.update_one({"_id": 0}, {"$set": {"a": 8}}), 11000)
    db.c.update_one({"_id": 0}, {"$set": {"a": 3}})
    db.c.insert_one({"_id": 9, "a": 0})
    # Both are nothing to do.
    assert "unique_new" not in change(db, unique=True)
    assert "prepareUnique_new" not in change(db, prepareUnique=True)
    db.c.create_index("a", unique=True)
    assert [d["_id"] for d in db.c.find({"a": {"$gte": 0}}).sort("a", 1)] == [9, 2, 4, 0, 8]
    assert [d["_id"] for d in db.c.find({"a": {"$gte": 0}}).sort("a", -1)] == [8, 0, 4, 2, 9]
    assert db.c.find_one({"a": 3})["_id"] == 0 and db.c.count_documents({"a": {"$lte": 2}}) == 3
    assert db.command("validate", "c", full=True)["valid"]


def test_what_is_refused(db):
    db.c.insert_one({"a": 1})
    db.c.create_index("a")
    db.c.create_index([("h", "hashed")])
    db.c.create_index([("$**", 1)])
    refused(lambda: change(db, unique=False), 2)
    refused(lambda: change(db, unique="yes"), 14)
    refused(lambda: change(db, name="b_1", prepareUnique=True), 27)
    refused(lambda: change(db, name="h_hashed", prepareUnique=True), 16764)
    refused(lambda: change(db, name="$**_1", prepareUnique=True), 67)
    refused(lambda: change(db, prepareUnique=True, hidden=True), 72)
    refused(lambda: db.command("collMod", "c", index={"name": "a_1", "prepareUnique": True}, validationLevel="off"), 72)
    change(db, prepareUnique=True)
    refused(lambda: change(db, hidden=True, dry_run=True), 72)
    refused(lambda: change(db, hidden=True, unique=True, dry_run=True), 72)
    refused(lambda: db.command("collMod", "c", validationLevel="off", dryRun=True), 72)
    refused(lambda: db.command("collMod", "c", index={"name": "a_1", "unique": True}, validationLevel="off", dryRun=True), 72)
    refused(lambda: db.command("collMod", "none", index={"name": "a_1", "unique": True}), 26)
    assert "prepareUnique_new" not in change(db, name="_id_", prepareUnique=True)


@pytest.mark.parametrize("made_so", [True, False])
def test_it_takes_duplicates_again(db, made_so):
    db.c.insert_many([{"_id": n, "a": n, "b": [n, -1 - n]} for n in range(300)])
    db.c.create_index("b")
    db.c.create_index("a", unique=made_so)
    db.c.create_index("x")
    if not made_so:
        change(db, prepareUnique=True)
        change(db, unique=True)
    names = [i["name"] for i in db.c.list_indexes()]
    refused(lambda: db.c.insert_one({"a": 7}), 11000)
    refused(lambda: change(db, forceNonUnique=False), 2)
    refused(lambda: change(db, name="_id_", forceNonUnique=True), 2)
    refused(lambda: change(db, forceNonUnique=True, hidden=True), 72)
    assert change(db, forceNonUnique=True)["forceNonUnique_new"] is True
    assert [i["name"] for i in db.c.list_indexes()] == names and "unique" not in spec(db)
    db.c.insert_many([{"_id": "x", "a": 7}, {"_id": "y", "a": 7}])
    assert {d["_id"] for d in db.c.find({"a": 7}).hint("a_1")} == {7, "x", "y"}
    assert [d["a"] for d in db.c.find({"a": {"$gte": 0}}).sort("a", 1).hint("a_1")] == sorted([*range(300), 7, 7])
    # There is nothing to do.
    assert "forceNonUnique_new" not in change(db, forceNonUnique=True)
    assert "forceNonUnique_new" not in change(db, name="x_1", forceNonUnique=True)
    change(db, prepareUnique=True)
    assert refused(lambda: change(db, unique=True), 359).details["violations"] == [{"ids": [7, "x", "y"]}]
    assert db.command("validate", "c", full=True)["valid"]
    # Of an empty collection.
    db.e.create_index("a", unique=True)
    assert db.command("collMod", "e", index={"keyPattern": {"a": 1}, "forceNonUnique": True})["forceNonUnique_new"] is True
    db.e.insert_many([{"a": 1}, {"a": 1}])
    assert db.command("validate", "e", full=True)["valid"]


def test_writes_go_on_while_it_begins_to_take_duplicates(db):
    db.c.insert_many([{"_id": n, "a": n} for n in range(20_000)])
    db.c.create_index("a", unique=True)
    stop, failures = threading.Event(), []

    def write():
        n = 0
        while not stop.is_set():
            n += 1
            try:
                db.c.insert_one({"_id": f"new {n}", "a": -n})
                db.c.update_one({"_id": n}, {"$set": {"a": 100_000 + n}})
                db.c.delete_one({"_id": 10_000 + n})
            except PyMongoError as error:
                failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    change(db, forceNonUnique=True)
    stop.set()
    writer.join()
    assert failures == [] and "unique" not in spec(db)
    db.c.insert_one({"a": 19_999})
    assert db.c.count_documents({"a": 19_999}) == 2
    assert db.command("validate", "c", full=True)["valid"]


def test_of_every_kind(db):
    """Compound, partial, sparse and collated indexes, and those of clustered collections."""
    db.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    for name in ("c", "clustered"):
        c = db[name]
        c.create_index([("a", 1), ("b", -1)], name="i", partialFilterExpression={"p": True})
        c.create_index("s", sparse=True, name="s", collation={"locale": "en", "strength": 2})
        c.insert_many([{"_id": f"id {n}", "a": n, "b": "x" * n, "p": n < 3, "s": chr(97 + n)} for n in range(5)])
        c.insert_many([{"a": 4, "b": "xxxx"}, {"a": 0, "b": ""}])
        for index in ("i", "s"):
            db.command("collMod", name, index={"name": index, "prepareUnique": True})
            db.command("collMod", name, index={"name": index, "unique": True})
        c.insert_many([{"a": 3, "b": "xxx"}, {"a": 0, "b": "", "p": False}, {"_id": "other", "a": 0, "b": "x", "p": True}])
        refused(lambda: c.insert_one({"a": 0.0, "b": "", "p": True}), 11000)
        refused(lambda: c.update_one({"_id": "other"}, {"$set": {"a": 1}}), 11000)
        failure = refused(lambda: c.insert_one({"s": "B"}), 11000)
        assert failure.details["collation"]["strength"] == 2
        assert c.find_one({"a": 1, "b": "x", "p": True})["_id"] == "id 1"
        assert [d["a"] for d in c.find({"p": True}).sort([("a", 1), ("b", -1)]).hint("i")] == [0, 0, 1, 2]
        assert db.command("validate", name, full=True)["valid"]


def test_created_so(db):
    db.c.insert_many([{"a": 1}, {"a": 1}])
    db.c.create_indexes([pymongo.IndexModel("a", prepareUnique=True)])
    assert spec(db)["prepareUnique"] is True
    refused(lambda: db.c.insert_one({"a": 1}), 11000)
    refused(lambda: change(db, unique=True), 359)


def test_what_takes_a_collection_over(db):
    """`$out` and `convertToCapped` make the indexes anew."""
    db.c.insert_many([{"_id": n, "a": n} for n in range(20)])
    db.c.create_index("a")
    change(db, prepareUnique=True)
    change(db, unique=True)
    db.other.insert_many([{"_id": n, "a": -n} for n in range(20)])
    db.other.aggregate([{"$out": "c"}])
    assert spec(db)["unique"] is True
    refused(lambda: db.c.insert_one({"a": -7}), 11000)
    assert db.c.find_one({"a": -7})["_id"] == 7
    db.other.insert_one({"a": -3})
    refused(lambda: db.other.aggregate([{"$out": "c"}]), 11000)
    db.c.aggregate([{"$project": {"b": "$_id", "a": 1, "_id": 0}}, {"$merge": {"into": "c", "on": "a"}}])
    assert db.c.count_documents({}) == 20 and db.c.find_one({"a": -7})["b"] == 7
    db.command("convertToCapped", "c", size=1 << 20)
    db.create_collection("series", timeseries={"timeField": "t"})
    refused(lambda: db.series.create_indexes([pymongo.IndexModel("x", prepareUnique=True)]), 72)
    assert db.command("validate", "c", full=True)["valid"]


def test_too_many_violations(db):
    ids = ["x" * (1 << 20) + str(n) for n in range(9)]
    for id in ids:
        db.c.insert_one({"_id": id, "a": 1})
    db.c.create_index("a")
    change(db, prepareUnique=True)
    failure = refused(lambda: change(db, unique=True), 359)
    assert "Too many" in str(failure) and failure.details["violations"] == [{"ids": ids[:7]}]


def insert_the_same(db):
    """Four threads insert the same hundred values; who gets one in."""
    inserted = []

    def insert(n):
        for a in range(100):
            try:
                db.c.insert_one({"_id": f"{n} {a}", "a": a})
                inserted.append(a)
            except DuplicateKeyError:
                pass

    threads = [threading.Thread(target=insert, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(inserted)


def test_one_of_many_that_insert_the_same(db):
    db.c.create_index("a")
    change(db, prepareUnique=True)
    assert insert_the_same(db) == list(range(100))
    change(db, unique=True)
    db.c.drop()
    db.c.create_index("a")
    change(db, prepareUnique=True)
    change(db, unique=True)
    assert insert_the_same(db) == list(range(100))


@pytest.mark.parametrize("engine", ENGINES)
def test_it_survives(engine, tmp_path):
    server = Server(tmp_path / "data", engine)
    server.start()
    db = server.client().t
    db.c.insert_many([{"_id": n, "a": n // 2} for n in range(200)])
    db.c.create_index("a")
    change(db, prepareUnique=True)
    for unique in (False, True):
        if unique:
            db.c.delete_many({"_id": {"$mod": [2, 1]}})
            change(db, unique=True)
        db.command({"insert": "c", "documents": [{"a": f"n {unique}"}], "writeConcern": {"j": True}})
        server.close_clients()
        server.kill()
        server.start()
        db = server.client().t
        assert spec(db).get("unique", False) is unique and spec(db).get("prepareUnique", False) is not unique
        refused(lambda: db.c.insert_one({"a": f"n {unique}"}), 11000)
        refused(lambda: db.c.insert_one({"a": 7}), 11000)
        assert [d["_id"] for d in db.c.find({"a": 7})] == ([14] if unique else [14, 15])
        assert db.command("validate", "c", full=True)["valid"]
    assert server.stop() == 0, server.tail()


def test_transactions(tmp_path):
    with ReplicaSet(tmp_path, engines=["btree"]) as rs:
        rs.initiate()
        client = rs.client()
        db = client.t
        db.c.create_index("a")
        db.c.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 2}])
        change(db, prepareUnique=True)
        for _ in range(2):
            with client.start_session() as one, client.start_session() as two:
                one.start_transaction()
                refused(lambda: db.c.insert_one({"a": 1}, session=one), 11000)
                one.abort_transaction()
                one.start_transaction()
                db.c.delete_one({"_id": 1}, session=one)
                db.c.insert_one({"_id": 3, "a": 1}, session=one)
                refused(lambda: db.c.insert_one({"_id": 4, "a": 1}, session=one), 11000)
                one.abort_transaction()
                one.start_transaction()
                db.c.insert_one({"_id": 3, "a": 3}, session=one)
                two.start_transaction()
                refused(lambda: db.c.insert_one({"_id": 4, "a": 3}, session=two), 112)
                one.commit_transaction()
            refused(lambda: db.c.insert_one({"_id": 4, "a": 3}), 11000)
            db.c.delete_one({"_id": 3})
            change(db, unique=True)
        assert insert_the_same(db) == [0, *range(3, 100)]


def test_a_transaction_from_before_adds_no_duplicate(tmp_path):
    """Its snapshot does not show what was written before the index refused duplicates, and no lock tells of it."""
    with ReplicaSet(tmp_path, engines=["btree"]) as rs:
        rs.initiate()
        client = rs.client()
        db = client.t
        db.c.create_index("a")
        db.c.insert_one({"_id": 1, "a": 1})
        db.other.insert_one({"_id": 1})
        for makes_unique in (False, True):
            with client.start_session() as session:
                session.start_transaction()
                db.other.find_one({}, session=session)
                db.c.insert_one({"_id": f"{makes_unique}", "a": 9})
                change(db, prepareUnique=True)
                if makes_unique:
                    change(db, unique=True)
                assert db.c.find_one({"a": 1}, session=session), "it may read"
                refused(lambda: db.c.insert_one({"_id": "late", "a": 9}, session=session), 246)
            if not makes_unique:
                change(db, prepareUnique=False)
                db.c.delete_one({"_id": "False"})
        assert [document["_id"] for document in db.c.find({"a": 9})] == ["True"]


def test_ids_too_long_to_be_told_are_duplicates_all_the_same(db):
    db.c.create_index("a")
    db.c.insert_many([{"_id": "x" * (9 << 20), "a": 1}, {"_id": 2, "a": 1}])
    change(db, prepareUnique=True)
    for dry_run in (True, False):
        refused(lambda dry_run=dry_run: change(db, unique=True, dry_run=dry_run), 359)
    assert "unique" not in spec(db)


def test_a_set_of_three(new_folder):
    with ReplicaSet(new_folder("set")) as rs:
        rs.initiate()
        db = rs.client(retryWrites=True).t
        db.c.insert_many([{"_id": n, "a": n} for n in range(50)] + [{"_id": 100, "a": 7}])
        db.c.create_index("a")
        change(db, prepareUnique=True)
        refused(lambda: db.c.insert_one({"a": 3}), 11000)
        assert refused(lambda: change(db, unique=True), 359).details["violations"] == [{"ids": [7, 100]}]
        db.c.delete_one({"_id": 100})
        change(db, unique=True)
        told = [e for e in db.client.local.oplog.rs.find({"op": "c", "o.collMod": "c"})]
        assert [e["o"]["index"] for e in told] == [{"name": "a_1", "prepareUnique": True}, {"name": "a_1", "unique": True}]
        assert [e["o2"]["indexOptions_old"] for e in told] == [{"prepareUnique": False}, {"unique": False}]
        # A member that has nothing copies all, and another one leads.
        wiped = rs.secondaries[0]
        wiped.stop()
        wiped.wipe()
        wiped.start()
        rs.wait_healthy()
        primary = rs.primary
        primary.kill()
        refused(lambda: db.c.insert_one({"_id": 200, "a": 9}), 11000)
        db.c.insert_one({"_id": 200, "a": 200})
        primary.start()
        rs.wait_healthy()
        rs.wait_applied()
        rs.check_equal()
        for member in rs.members:
            own = member.direct.get_database("t", CodecOptions(), ReadPreference.SECONDARY_PREFERRED)
            assert [d["_id"] for d in own.c.find({"a": {"$gte": 48}}).hint("a_1")] == [48, 49, 200]
            assert own.command("validate", "c", full=True)["valid"]
            assert spec(own)["unique"] is True
        db.u.insert_many([{"_id": n, "a": n} for n in range(500)])
        db.u.create_index("a", unique=True)
        for name in ("c", "u"):
            db.command("collMod", name, index={"name": "a_1", "forceNonUnique": True})
            db[name].insert_one({"_id": "twice", "a": 7})
            told = list(db.client.local.oplog.rs.find({"op": "c", "o.collMod": name}))[-1]
            assert told["o"]["index"] == {"name": "a_1", "forceNonUnique": True}
            assert told["o2"]["indexOptions_old"] == {"unique": True}
        rs.wait_applied()
        rs.check_equal()
        for member in rs.members:
            own = member.direct.get_database("t", CodecOptions(), ReadPreference.SECONDARY_PREFERRED)
            for name in ("c", "u"):
                assert {d["_id"] for d in own[name].find({"a": 7}).hint("a_1")} == {7, "twice"}
                assert own.command("validate", name, full=True)["valid"]
