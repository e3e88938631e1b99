"""Writes under a transaction number that are sent again while a majority has not got what the first attempt wrote."""

import signal
import threading
from contextlib import contextmanager
from datetime import datetime
from uuid import uuid4

import pytest
from bson import Binary, Int64, Timestamp
from members import ReplicaSet, database, hold, wait
from pymongo.errors import WriteError
from pymongo.write_concern import WriteConcern
from server import send


@pytest.fixture(scope="module")
def rs(new_folder):
    # Long enough for the primary to lead on while nobody hears of it.
    with ReplicaSet(new_folder("set"), election_ms=20_000) as made:
        yield made.initiate()


@pytest.fixture
def db(rs, request):
    with database(rs, request.node.name[:60]) as made:
        yield made


@contextmanager
def others_held(rs, then):
    """The secondaries stand still meanwhile, and answer nobody; they go on while `then(primary)` runs."""
    primary, others = rs.primary, rs.secondaries
    go_on = lambda: [each.process.send_signal(signal.SIGCONT) for each in others]  # noqa: E731
    hold(others)
    try:
        yield primary
        later = threading.Timer(1, go_on)
        later.start()
        then(primary)
        later.join()
    finally:
        go_on()
    rs.wait_healthy()


def given_up(reply):
    """The operation's time was over, or the set has another primary since."""
    assert reply["ok"] == 0 and reply["code"] in (50, 189, 10107, 11602), reply


def again(rs, name, command, primary=None):
    reply = send(primary or rs.primary, name, command)
    if reply["ok"] == 0:
        # Another leads since.
        given_up(reply)
        rs.wait_healthy()
        reply = send(rs.primary, name, command)
    assert reply["ok"] == 1 and "writeErrors" not in reply, reply
    return reply


@pytest.mark.parametrize("statement", ["update", "insert", "findAndModify"])
def test_it_is_done_once(rs, db, statement):
    db.c.insert_one({"_id": 0, "n": 0})
    rs.wait_applied()
    command = {
        "update": {"update": "c", "updates": [{"q": {"_id": 0}, "u": {"$inc": {"n": 1}}}]},
        "insert": {"insert": "c", "documents": [{"_id": 1}]},
        "findAndModify": {"findAndModify": "c", "query": {"_id": 0}, "update": {"$inc": {"n": 1}}, "new": True},
    }[statement]
    command |= {"lsid": {"id": Binary(uuid4().bytes, 4)}, "txnNumber": Int64(1), "writeConcern": {"w": 1}}
    with others_held(rs, lambda primary: again(rs, db.name, command, primary)) as primary:
        given_up(send(primary, db.name, {**command, "maxTimeMS": 300}))
    documents = {"insert": [{"_id": 0, "n": 0}, {"_id": 1}]}.get(statement, [{"_id": 0, "n": 1}])
    assert list(db.c.find(sort=[("_id", 1)])) == documents
    # And what it came to is known for good.
    reply = again(rs, db.name, command)
    assert reply.get("retriedStmtIds", [reply.get("retriedStmtId")]) == [0]
    assert list(db.c.find(sort=[("_id", 1)])) == documents
    rs.check_equal()


def test_a_large_document_is_found_and_modified(rs, db):
    """The server keeps it. With its `_id` beside it, it was too long for a row, and ended all members, at each start again."""
    written = db.c.with_options(write_concern=WriteConcern(w=3))
    with pytest.raises(WriteError, match="too large"):  # The log's history has the `_id` besides.
        written.insert_one({"_id": "i" * 8_000_000, "p": "x" * 8_500_000})
    written.insert_one({"_id": "i" * 5_000_000, "p": "x" * 6_700_000, "n": 0})
    lsid = {"id": Binary(uuid4().bytes, 4)}
    increment = {"update": {"$inc": {"n": 1}}}
    for number, fields, n in [(1, increment, 0), (2, {**increment, "new": True}, 2), (3, {"remove": True}, 2)]:
        command = {"findAndModify": "c", "query": {}, "fields": {"n": 1, "_id": 0}, **fields}
        command |= {"lsid": lsid, "txnNumber": Int64(number), "writeConcern": {"w": 3}}
        for _ in range(2):
            assert again(rs, db.name, command)["value"]["n"] == n
    for each in rs.members:
        each.restart()
    rs.wait_healthy()
    assert again(rs, db.name, command)["value"]["n"] == 2
    assert db.c.count_documents({}) == 0
    rs.check_equal()


def test_statements_of_one_command_wait_together(rs, db):
    """Inserts and updates in turn, and the operations of `applyOps`, waited for the majority one by one."""
    lsid = {"id": Binary(uuid4().bytes, 4)}
    db.c.insert_many([{"_id": n, "n": 0} for n in range(4)])
    rs.wait_applied()
    ops = []
    for n in range(20):
        ops += [{"insert": 0, "document": {"_id": 100 + n, "n": 0}}]
        ops += [{"update": 0, "filter": {"_id": n % 4}, "updateMods": {"$inc": {"n": 1}}}]
    names = {"ns": f"{db.name}.c"}
    bulk = {"bulkWrite": 1, "ops": ops, "nsInfo": [names], "lsid": lsid, "txnNumber": Int64(1)}
    entries = [{"op": "i", **names, "o": {"_id": 200 + n, "n": 0}} for n in range(20)]
    entries += [{"op": "d", **names, "o": {"_id": n}} for n in range(4)]
    written = lambda primary, what: primary.direct.admin.command("serverStatus")["metrics"]["document"][what]  # noqa: E731
    with others_held(rs, lambda primary: None) as primary:
        for command, what, count in [(bulk, "inserted", 20), ({"applyOps": entries}, "deleted", 4)]:
            before = written(primary, what)
            given_up(send(primary, "admin", {**command, "maxTimeMS": 1000}))
            assert written(primary, what) == before + count
    # What it had put into the log goes its way.
    wait(lambda: db.c.count_documents({"n": 0, "_id": {"$gte": 100}}) == 40 and db.c.count_documents({}) == 40)
    rs.check_equal()


def test_a_statement_that_meets_what_its_command_has_inserted_waits_for_it(rs, db):
    """Whatever is between them: a document has its `_id` by then, and its timestamp is filled in."""
    ops = [
        {"insert": 0, "document": {"a": 1, "t": Timestamp(0, 0)}},
        {"update": 0, "filter": {"_id": {"$type": "objectId"}, "t": {"$gt": Timestamp(1, 0)}}, "updateMods": {"$inc": {"a": 1}}},
        {"insert": 0, "document": {"_id": 1, "a": 5}},
        {"delete": 0, "filter": {"a": 5}},
        {"insert": 0, "document": {"_id": 1, "a": 6}},
        {"update": 0, "filter": {"a": 2}, "updateMods": {"$inc": {"a": 1}}},
    ]
    for _ in range(20):
        reply = send(rs.primary, "admin", {"bulkWrite": 1, "ops": ops, "nsInfo": [{"ns": f"{db.name}.c"}]})
        counts = [reply[name] for name in ("nErrors", "nInserted", "nModified", "nDeleted")]
        assert counts == [0, 3, 2, 1], reply
        assert sorted(each["a"] for each in db.c.find()) == [3, 6]
        db.c.delete_many({})
    rs.check_equal()


def test_a_delete_of_measurements_waits_for_the_one_before(rs, db):
    """It looked again and again meanwhile, and had a processor for that."""
    db.create_collection("t", timeseries={"timeField": "t", "metaField": "m"})
    db.t.insert_many([{"t": datetime(2024, 1, 1, 0, 0, second), "m": 1, "x": second} for second in range(5)])
    rs.wait_applied()
    met = lambda primary: primary.direct.admin.command("serverStatus")["metrics"]["operation"]["writeConflicts"]  # noqa: E731
    with others_held(rs, lambda primary: None) as primary:
        given_up(send(primary, db.name, {"delete": "t", "deletes": [{"q": {"m": 1}, "limit": 0}], "maxTimeMS": 300}))
        before = met(primary)
        statement = {"q": {"m": 1, "x": 3}, "limit": 1}
        given_up(send(primary, db.name, {"delete": "t", "deletes": [statement], "maxTimeMS": 1000}))
        assert met(primary) - before < 50
    wait(lambda: db.t.count_documents({}) == 0)


def test_the_next_write_finds_what_the_one_before_came_to(rs, db):
    db.c.insert_many([{"_id": i, "n": 0} for i in range(5)])
    rs.wait_applied()
    lsid = {"id": Binary(uuid4().bytes, 4)}

    def update(number, count):
        updates = [{"q": {"_id": i}, "u": {"$inc": {"n": 1}}} for i in range(count)]
        return {"update": "c", "updates": updates, "lsid": lsid, "txnNumber": Int64(number), "writeConcern": {"w": 1}}

    with others_held(rs, lambda primary: again(rs, db.name, update(2, 1), primary)) as primary:
        given_up(send(primary, db.name, {**update(1, 5), "maxTimeMS": 300}))
    # Of number 2 one statement is done, and four are new.
    assert again(rs, db.name, update(2, 5))["retriedStmtIds"] == [0]
    before = db.c.find_one({"_id": 4})["n"]
    assert before in (1, 2) and db.c.find_one({"_id": 0})["n"] in (1, 2)
    again(rs, db.name, update(2, 5))
    assert db.c.find_one({"_id": 4})["n"] == before
    rs.check_equal()
