"""Limits, at the edge and one past it; hostile bytes; the server stays up."""

import os
import random
import socket
import struct

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from members import code_of
from pymongo import InsertOne
from pymongo.errors import ClientBulkWriteException, DocumentTooLarge, OperationFailure, WriteError

MAX = 16 * 1024 * 1024


def document_of(size):
    empty = len(bson.encode({"_id": 1, "pad": ""}))
    return {"_id": 1, "pad": "x" * (size - empty)}


def test_largest_document(db):
    db.c.insert_one(document_of(MAX))
    assert len(db.c.find_one()["pad"]) > MAX - 100
    with pytest.raises((DocumentTooLarge, WriteError, OperationFailure)):
        db.d.insert_one(document_of(MAX + 1))
    with pytest.raises(WriteError) as error:
        db.c.update_one({"_id": 1}, {"$set": {"more": "y" * 100}})
    assert error.value.code in (10334, 17419, 17420, 2)
    assert "more" not in db.c.find_one({}, {"pad": 0})


def test_definitions_have_a_bound(db):
    """Longer than a row of the catalog may be they ended the server."""
    for name in "abc":
        filter = {"partialFilterExpression": {"a": {"$eq": "x" * 6_000_000}}}
        command = {"createIndexes": "c", "indexes": [{"key": {name: 1}, "name": name, **filter}]}
        if name == "c":
            assert code_of(db.command, command) == 10334
        else:
            db.command(command)
    long = {"a": "x" * (MAX - 40)}
    assert code_of(db.command, {"create": "d", "validator": long}) == 10334
    assert code_of(db.command, {"collMod": "c", "validator": {"a": "x" * 5_000_000}}) == 10334
    assert code_of(db.command, {"create": "v", "viewOn": "c", "pipeline": [{"$match": long}]}) == 10334
    assert sorted(db.c.index_information()) == ["_id_", "a", "b"]
    assert db.list_collection_names() == ["c"]


def nested(levels):
    document = {}
    for _ in range(levels - 1):
        document = {"a": document}
    return document


def forks(levels):
    """Each "0" is the position of an element and the name of a field in it."""
    value = [1]
    for _ in range(levels):
        value = [{"0": value}]
    return value


def test_paths_of_numbers_through_nested_arrays_end(db):
    """Each level doubled the ways to go: one such document held a thread, and the collection, for ever."""
    long, short = "a" + ".0" * 150, "a" + ".0" * 46
    db.c.insert_one({"_id": 1, "a": forks(45)})
    assert db.c.distinct(long) == []
    assert 1 in db.c.distinct(short)
    assert db.c.count_documents({long: 1}) == 0
    assert db.c.count_documents({short: 1}) == 1
    db.c.create_index("z", name="long", partialFilterExpression={f"{long}.x": 5})
    db.c.create_index([("z", -1)], name="short", partialFilterExpression={short: 1})
    db.c.insert_one({"_id": 2, "a": forks(45), "z": 1})
    assert [found["_id"] for found in db.c.find({"z": 1, short: 1}).hint("short")] == [2]
    assert list(db.c.find({"z": 1, f"{long}.x": 5}).hint("long")) == []
    db.drop_collection("c")
    db.create_collection("c", validator={"$nor": [{long: {"$exists": False}}, {f"{short}": 1}]})
    assert code_of(db.c.insert_one, {"a": forks(45)}) == 121
    assert db.list_collection_names(filter={"name": "c"}) == ["c"]


def test_sorts_by_an_array_beside_a_long_string(db):
    """The key of each element had the string in it: 100 GB."""
    for id in range(3):
        db.c.insert_one({"_id": id, "a": list(range(50_000, -id, -1)), "s": str(id) + "x" * 2_000_000})
    for sort in [{"a": 1, "s": 1}, {"a": 1, "_id": 1}, {"s": -1, "a": -1}]:
        expected = [2, 1, 0]
        assert [found["_id"] for found in db.c.find({}, {"_id": 1}).sort(list(sort.items()))] == expected, sort
        stages = [{"$sort": sort}, {"$project": {"_id": 1}}]
        assert [found["_id"] for found in db.c.aggregate(stages)] == expected, sort
    top = {"$group": {"_id": None, "top": {"$top": {"sortBy": {"a": 1, "s": 1}, "output": "$_id"}}}}
    assert [found["top"] for found in db.c.aggregate([top])] == [2]


def test_nesting(db):
    db.c.insert_one(nested(180))
    with pytest.raises((WriteError, OperationFailure)) as error:
        db.c.insert_one(nested(181))
    assert error.value.code == 15


def test_batches_of_100_000(db):
    documents = [RawBSONDocument(bson.encode({"_id": i})) for i in range(100_000)]
    result = db.command("insert", "c", documents=documents)
    assert result["n"] == 100_000
    with pytest.raises(OperationFailure) as error:
        db.command("delete", "c", deletes=[{"q": {"_id": 1}, "limit": 1}] * 100_001)
    assert error.value.code == 16
    assert db.c.estimated_document_count() == 100_000


def test_each_of_100_000_operations_may_fail(db, client):
    """Of a bulk that all collided the last fifth was not tried."""
    db.c.insert_one({"_id": 1})
    duplicates = [InsertOne({"_id": 1}, namespace=f"{db.name}.c") for _ in range(100_000)]
    with pytest.raises(ClientBulkWriteException) as failed:
        client.bulk_write(duplicates, ordered=False)
    assert len(failed.value.write_errors) == 100_000
    assert {error["code"] for error in failed.value.write_errors} == {11000}


def test_bad_ids_and_names(db, client):
    for bad in ([1], bson.Regex("x")):
        with pytest.raises(WriteError) as error:
            db.c.insert_one({"_id": bad})
        assert error.value.code == 53
    for name in ["system.nonesuch", "a" * 300]:
        with pytest.raises(OperationFailure) as error:
            db.command("create", name)
        assert error.value.code == 73
    assert db.list_collection_names() == []


def message(body, opcode=2013, flags=0):
    payload = struct.pack("<I", flags) + b"\0" + body
    return struct.pack("<iiii", 16 + len(payload), 1, 0, opcode) + payload


def exchange(server, data):
    """Sends bytes and answers what comes back until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        received = b""
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                received += chunk
        except OSError:
            pass
        return received


def test_hostile_messages(server, client):
    ping = bson.encode({"ping": 1, "$db": "admin"})
    good = message(ping)
    assert b"ok" in exchange(server, good)
    for bad in [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<iiii", 15, 1, 0, 2013),
        struct.pack("<iiii", 48_000_001, 1, 0, 2013) + b"\0" * 100,
        struct.pack("<iiii", -1, 1, 0, 2013),
        struct.pack("<iiii", 2**31 - 1, 1, 0, 2013),
        struct.pack("<iiii", 16, 1, 0, 2013),
        struct.pack("<iiii", 16, 1, 0, 9999),
        message(ping, flags=4),
        message(ping[:-1]),
        message(b"\xff\xff\xff\x7f" + ping[4:]),
        message(bson.encode({"insert": "c", "$db": "t", "documents": [{"a": "x"}]}).replace(b"x\0", b"\xff\0", 1)),
        struct.pack("<iiiiiiB", 16 + 9 + 4, 1, 0, 2012, 2013, 2**31 - 1, 2) + b"abcd",
        struct.pack("<iiiiiiB", 16 + 9 + 4, 1, 0, 2012, 2013, 10, 1) + b"\xff\xff\xff\xff",
    ]:
        exchange(server, bad)
        assert client.admin.command("ping")["ok"] == 1
    seed = int(os.environ.get("TENON_SEED", random.randrange(1 << 32)))
    print("seed", seed)
    rng = random.Random(seed)
    insert = message(bson.encode({"insert": "c", "$db": "t_hostile", "documents": [{"a": [1, {"b": "text"}], "d": 1.5}]}))
    for _ in range(300):
        bytes_ = bytearray(insert)
        for _ in range(rng.randrange(1, 6)):
            bytes_[rng.randrange(len(bytes_))] = rng.randrange(256)
        exchange(server, bytes(bytes_[: rng.randrange(1, len(bytes_) + 1)]))
    assert client.admin.command("ping")["ok"] == 1
    client.drop_database("t_hostile")


def test_invalid_utf8_is_refused_and_nothing_stored(server, client):
    body = bson.encode({"insert": "c", "$db": "t_utf8", "documents": [{"_id": 1, "a": "AB"}]}).replace(b"AB\0", b"\xc3\x28\0")
    reply = exchange(server, message(body))
    assert b"errmsg" in reply or reply == b""
    assert client.t_utf8.c.find_one() is None


def test_deep_documents_from_the_network_are_refused(server, client):
    body = bson.encode(nested(400))
    document = {"insert": "c", "$db": "t_deep", "documents": [RawBSONDocument(body)]}
    reply = exchange(server, message(bson.encode(document)))
    assert b"errmsg" in reply or reply == b""
    assert client.admin.command("ping")["ok"] == 1
    assert client.t_deep.c.find_one() is None


def test_legacy_op_query_handshake(server):
    body = bson.encode({"isMaster": 1, "helloOk": True})
    payload = struct.pack("<i", 4) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1) + body
    reply = exchange(server, struct.pack("<iiii", 16 + len(payload), 7, 0, 2004) + payload)
    length, _, response_to, opcode = struct.unpack("<iiii", reply[:16])
    assert (length, response_to, opcode) == (len(reply), 7, 1)
    answered = bson.decode(reply[36:])
    assert answered["helloOk"] is True and answered["ismaster"] is True
