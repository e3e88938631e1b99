"""Cursors: batches, time-outs, capped collections and tailing."""

import threading

import pytest
from bson import Int64
from pymongo import CursorType
from pymongo.errors import OperationFailure


def test_batches_resume_while_others_write(db):
    db.c.insert_many([{"_id": i} for i in range(5_000)])
    cursor = db.c.find({}, batch_size=10)
    seen = [next(cursor)["_id"] for _ in range(25)]
    db.c.delete_many({"_id": {"$gte": 4_000}})
    db.c.insert_many([{"_id": -i - 1} for i in range(100)])
    seen += [d["_id"] for d in cursor]
    untouched = set(range(4_000))
    assert len(seen) == len(set(seen))
    assert untouched <= set(seen)


def test_killed_and_unknown_cursors(db):
    db.c.insert_many([{} for _ in range(500)])
    first = db.command("find", "c", batchSize=2)
    cursor = first["cursor"]["id"]
    assert cursor > 0
    killed = db.command("killCursors", "c", cursors=[cursor, Int64(12345)])
    assert killed["cursorsKilled"] == [cursor] and killed["cursorsNotFound"] == [12345]
    with pytest.raises(OperationFailure) as error:
        db.command("getMore", cursor, collection="c")
    assert error.value.code == 43
    assert db.command("find", "c", batchSize=0)["cursor"]["firstBatch"] == []
    assert db.command("find", "c", limit=3)["cursor"]["id"] == 0
    assert db.command("find", "c", singleBatch=True, batchSize=3)["cursor"]["id"] == 0


def test_cursors_of_no_collection_are_killed(db):
    for name in "abc":
        db.create_collection(name)
    for command, target in [
        ({"listCollections": 1, "cursor": {"batchSize": 1}}, "$cmd.listCollections"),
        ({"aggregate": 1, "pipeline": [{"$documents": [{}, {}, {}]}], "cursor": {"batchSize": 1}}, "$cmd.aggregate"),
    ]:
        cursor = db.command(command)["cursor"]["id"]
        assert cursor > 0
        assert db.command("killCursors", target, cursors=[cursor])["cursorsKilled"] == [cursor]


def test_dropped_collection_ends_its_cursors(db):
    db.c.insert_many([{} for _ in range(500)])
    cursor = db.c.find({}, batch_size=10)
    next(cursor)
    db.c.drop()
    with pytest.raises(OperationFailure) as error:
        list(cursor)
    assert error.value.code == 175


def test_capped_by_count_and_by_size(db):
    db.create_collection("few", capped=True, size=100_000, max=10)
    db.few.insert_many([{"_id": i} for i in range(25)])
    assert [d["_id"] for d in db.few.find()] == list(range(15, 25))
    assert [d["_id"] for d in db.few.find().sort("$natural", -1)] == list(range(24, 14, -1))
    db.create_collection("small", capped=True, size=4096)
    for i in range(200):
        db.small.insert_one({"_id": i, "pad": "x" * 100})
    kept = [d["_id"] for d in db.small.find()]
    assert kept == list(range(kept[0], 200)) and 20 < len(kept) < 40
    assert db.few.options() == {"capped": True, "size": 100_000, "max": 10}
    assert db.command("collStats", "few")["capped"] is True


def test_tailing(db):
    db.create_collection("log", capped=True, size=100_000)
    db.log.insert_many([{"_id": i} for i in range(3)])
    cursor = db.log.find({}, cursor_type=CursorType.TAILABLE_AWAIT)
    assert [next(cursor)["_id"] for _ in range(3)] == [0, 1, 2]

    def later():
        for i in range(3, 50):
            db.log.insert_one({"_id": i})

    writer = threading.Thread(target=later)
    writer.start()
    seen = []
    while len(seen) < 47 and cursor.alive:
        try:
            seen.append(cursor.next()["_id"])
        except StopIteration:
            pass
    writer.join()
    assert seen == list(range(3, 50))
    assert cursor.alive
    with pytest.raises(OperationFailure):
        db.plain.insert_one({})
        list(db.plain.find({}, cursor_type=CursorType.TAILABLE))


def test_max_time(db):
    db.c.insert_many([{"a": "x" * 1000, "b": i} for i in range(50_000)])
    with pytest.raises(OperationFailure) as error:
        list(db.c.find({"$expr": {"$eq": [{"$strLenCP": "$a"}, {"$add": ["$b", 1_000_000]}]}}, max_time_ms=1))
    assert error.value.code == 50


def test_kill_op(db, server):
    db.c.insert_many([{"a": "x" * 1000, "b": i} for i in range(20_000)])
    failed = []
    # Each document is compared with each: that would take minutes.
    inner = [{"$match": {"$expr": {"$eq": ["$a", "$$b"]}}}]

    def slow():
        try:
            list(db.c.aggregate([{"$lookup": {"from": "c", "let": {"b": "$b"}, "pipeline": inner, "as": "j"}}], batchSize=20_000))
        except OperationFailure as error:
            failed.append(error.code)

    admin = server.client().admin
    runner = threading.Thread(target=slow)
    runner.start()
    while runner.is_alive():
        running = [op for op in admin.command("currentOp")["inprog"] if op.get("ns") == db.name + ".c" and "aggregate" in op["command"]]
        for op in running:
            admin.command("killOp", op=op["opid"])
    runner.join()
    assert failed == [11601]
