"""Writes under a transaction number that are sent again while a majority has not got what the first attempt wrote."""

import signal
import threading
from contextlib import contextmanager
from uuid import uuid4

import pytest
from bson import Binary, Int64
from members import ReplicaSet, database
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
    for each in others:
        each.process.send_signal(signal.SIGSTOP)
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
