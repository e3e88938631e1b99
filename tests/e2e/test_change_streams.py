"""Change streams and the log as `local.oplog.rs`, with real drivers."""

import json
import os
import random
import subprocess
import threading
import time
from pathlib import Path

import pytest
from bson import ObjectId, Timestamp
from pymongo import CursorType, MongoClient, WriteConcern
from pymongo.errors import OperationFailure, PyMongoError
from server import ENGINES, Server, engines_for

CLIENTS = Path(os.environ.get("TENON_CLIENTS", os.path.expanduser("~/.cache/tenon/clients")))
MEMBER = ["--replSet", "rs0", "--replSetInitiate"]


@pytest.fixture(scope="module", params=engines_for(__name__))
def member(request, new_folder):
    made = Server(new_folder("streams"), request.param, options=MEMBER)
    made.start()
    yield made
    assert made.process.poll() is None, made.tail()
    assert made.stop() == 0, made.tail()


def connect(server, **options):
    return server.client(replicaSet="rs0", **{"serverSelectionTimeoutMS": 30000, **options})


@pytest.fixture
def db(member, request):
    client = connect(member)
    name = ("s_" + request.node.name.split("[")[0])[:60]
    client.drop_database(name)
    yield client[name]
    client.drop_database(name)


def take(stream, count, timeout=60):
    """The next `count` events."""
    events, end = [], time.monotonic() + timeout
    while len(events) < count and time.monotonic() < end:
        event = stream.try_next()
        if event is not None:
            events.append(event)
    assert len(events) == count, events
    return events


def quiet(stream):
    assert stream.try_next() is None
    return True


def test_events_of_documents(db):
    with db.c.watch() as stream:
        db.c.insert_one({"_id": 1, "a": {"b": 1}, "l": [1, 2, 3]})
        db.c.update_one({"_id": 1}, {"$set": {"a.b": 2, "x": 5}, "$unset": {"a.c": 1}, "$push": {"l": 4}})
        db.c.update_one({"_id": 1}, {"$set": {"l": [1]}, "$unset": {"x": 1}})
        db.c.update_one({"_id": 1}, {"$set": {"l": list(range(20))}})
        db.c.update_one({"_id": 1}, [{"$set": {"l": {"$slice": ["$l", 10]}, "a.b": 3}}])
        db.c.replace_one({"_id": 1}, {"r": 1})
        db.other.insert_one({"_id": 1})
        db.c.delete_one({"_id": 1})
        insert, first, second, _, third, replace, delete = take(stream, 7)
        assert quiet(stream)
    ns = {"db": db.name, "coll": "c"}
    assert insert["operationType"] == "insert" and insert["fullDocument"] == {"_id": 1, "a": {"b": 1}, "l": [1, 2, 3]}
    assert first["updateDescription"]["updatedFields"] == {"a.b": 2, "x": 5, "l.3": 4}
    assert second["updateDescription"]["removedFields"] == ["x"]
    assert second["updateDescription"]["updatedFields"] == {"l": [1]}
    assert second["updateDescription"]["truncatedArrays"] == []
    assert third["updateDescription"]["truncatedArrays"] == [{"field": "l", "newSize": 10}]
    assert third["updateDescription"]["updatedFields"] == {"a": {"b": 3}}
    assert replace["operationType"] == "replace" and replace["fullDocument"] == {"_id": 1, "r": 1}
    assert delete["operationType"] == "delete" and "fullDocument" not in delete
    for event in (insert, first, second, replace, delete):
        assert event["ns"] == ns and event["documentKey"] == {"_id": 1}
        assert isinstance(event["clusterTime"], Timestamp) and "wallTime" in event
    times = [event["clusterTime"] for event in (insert, first, second, replace, delete)]
    assert times == sorted(set(times))


def test_definitions_end_a_stream(db):
    db.c.insert_one({"_id": 1})
    whole = db.watch()
    with db.c.watch() as stream:
        db.c.drop()
        drop, invalidate = take(stream, 2)
        assert (drop["operationType"], invalidate["operationType"]) == ("drop", "invalidate")
        with pytest.raises(StopIteration):
            stream.next()
        assert not stream.alive
    with pytest.raises(OperationFailure) as refused:
        db.c.watch(resume_after=invalidate["_id"])
    assert refused.value.code == 260
    db.c.insert_one({"_id": 2})
    with db.c.watch(start_after=invalidate["_id"]) as stream:
        assert take(stream, 1)[0]["documentKey"] == {"_id": 2}
        db.c.rename("d")
        rename, invalidate = take(stream, 2)
        assert rename["to"] == {"db": db.name, "coll": "d"} and invalidate["operationType"] == "invalidate"
    db.client.drop_database(db.name)
    kinds = [event["operationType"] for event in take(whole, 6)]
    assert kinds == ["drop", "insert", "rename", "drop", "dropDatabase", "invalidate"]


def test_expanded_events(db):
    with db.watch(show_expanded_events=True) as stream:
        db.create_collection("c", capped=False)
        db.c.create_index("n", name="by_n")
        db.command("collMod", "c", index={"name": "by_n", "hidden": True})
        db.command("collMod", "c", changeStreamPreAndPostImages={"enabled": True})
        db.c.drop_index("by_n")
        db.c.insert_one({"_id": 1, "0": 1})
        db.c.rename("d")
        events = take(stream, 7)
    kinds = [event["operationType"] for event in events]
    assert kinds == ["create", "createIndexes", "modify", "modify", "dropIndexes", "insert", "rename"]
    assert events[1]["operationDescription"]["indexes"][0]["name"] == "by_n"
    assert events[2]["operationDescription"] == {"index": {"name": "by_n", "hidden": True}}
    assert events[2]["stateBeforeChange"]["indexOptions"] == {"hidden": False}
    assert events[3]["stateBeforeChange"]["collectionOptions"] == {"uuid": events[0]["collectionUUID"]}
    assert events[4]["operationDescription"]["indexes"][0]["key"] == {"n": 1}
    assert len({event["collectionUUID"] for event in events}) == 1


def test_what_was_asked_of_a_collection_is_told(db):
    db.create_collection("c")
    db.c.create_index("t", name="by_t", expireAfterSeconds=100)
    same = {"index": {"name": "by_t", "expireAfterSeconds": 100}}
    asked = [same, {"validator": {"a": {"$gt": 1}}}, {"validationLevel": "off"}, {"changeStreamPreAndPostImages": {"enabled": False}}]
    with db.c.watch(show_expanded_events=True) as stream:
        for options in asked:
            db.command("collMod", "c", **options)
        events = take(stream, len(asked))
    assert [event["operationDescription"] for event in events] == asked
    assert events[0]["stateBeforeChange"]["indexOptions"] == {"expireAfterSeconds": 100}
    before = {"uuid": events[0]["collectionUUID"], "validator": {"a": {"$gt": 1}}, "validationLevel": "strict", "validationAction": "error"}
    assert events[2]["stateBeforeChange"] == {"collectionOptions": before}


def test_a_collections_stream_does_not_tell_of_a_view_of_its_name(db):
    db.create_collection("base")
    with db.c.watch(show_expanded_events=True) as stream:
        db.create_collection("c", viewOn="base", pipeline=[])
        db.command("collMod", "c", viewOn="base", pipeline=[{"$match": {"a": 1}}])
        db.c.drop()
        db.create_collection("c")
        db.c.insert_one({"_id": 1})
        events = take(stream, 2)
    assert [event["operationType"] for event in events] == ["create", "insert"]
    assert "viewOn" not in events[0]["operationDescription"]


def test_a_changed_view_has_no_state_before(db):
    db.create_collection("v", viewOn="c", pipeline=[])
    with db.watch(show_expanded_events=True) as stream:
        db.command("collMod", "v", viewOn="d", pipeline=[])
        (modify,) = take(stream, 1)
    assert modify["operationType"] == "modify" and modify["operationDescription"]["viewOn"] == "d"
    assert "stateBeforeChange" not in modify


def test_messages_show_tokens_as_the_shell_does(db):
    token = {}
    with db.c.watch() as stream:
        db.c.insert_one({"_id": 1})
        token = take(stream, 1)[0]["_id"]
    shown = f'{{ _data: "{token["_data"]}" }}'
    db.c.update_one({"_id": 1}, {"$set": {"a": 1}})
    with pytest.raises(OperationFailure) as error, db.c.watch(start_after=token, full_document_before_change="required") as stream:
        take(stream, 1)
    assert error.value.code == 47 and 'event: { _id: { _data: "' in error.value.details["errmsg"]
    pipeline = [{"$set": {"_id": {"$literal": 1}}}]
    with pytest.raises(OperationFailure) as error, db.c.watch(pipeline, start_after=token) as stream:
        take(stream, 1)
    assert error.value.code == 280 and "but found: { _id: 1 }" in error.value.details["errmsg"]
    with pytest.raises(OperationFailure) as error, db.d.watch(start_after=token) as stream:
        take(stream, 1)
    assert error.value.code == 280 and error.value.details["errmsg"].endswith(shown)


def test_images(db):
    db.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    db.c.insert_one({"_id": 1, "n": 1})
    looked = db.c.watch(full_document="updateLookup")
    with db.c.watch(full_document="required", full_document_before_change="required") as stream:
        db.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        db.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        db.c.replace_one({"_id": 1}, {"n": 10})
        db.c.delete_one({"_id": 1})
        first, second, third, fourth = take(stream, 4)
    assert [event["fullDocumentBeforeChange"] for event in (first, second, third, fourth)] == [
        {"_id": 1, "n": 1},
        {"_id": 1, "n": 2},
        {"_id": 1, "n": 3},
        {"_id": 1, "n": 10},
    ]
    assert [event.get("fullDocument") for event in (first, second, third, fourth)] == [
        {"_id": 1, "n": 2},
        {"_id": 1, "n": 3},
        {"_id": 1, "n": 10},
        None,
    ]
    assert [event.get("fullDocument") for event in take(looked, 3)] == [None, None, {"_id": 1, "n": 10}]
    db.plain.insert_one({"_id": 1})
    with db.plain.watch(full_document_before_change="whenAvailable") as stream:
        with db.plain.watch(full_document="required") as strict:
            db.plain.update_one({"_id": 1}, {"$set": {"n": 1}})
            assert take(stream, 1)[0]["fullDocumentBeforeChange"] is None
            with pytest.raises(OperationFailure) as failed:
                take(strict, 1)
            assert failed.value.code == 47


def test_images_expire(db):
    """What is older than the cluster parameter says is not to be had; the log has it for longer."""

    def life(seconds):
        options = {"preAndPostImages": {"expireAfterSeconds": seconds}}
        db.client.admin.command("setClusterParameter", {"changeStreamOptions": options})

    db.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    db.c.insert_one({"_id": 1, "n": 1})
    with db.c.watch(full_document="whenAvailable", full_document_before_change="whenAvailable") as stream:
        start = stream.resume_token
    db.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
    time.sleep(1.5)

    def images(**options):
        options = {"full_document": "whenAvailable", "full_document_before_change": "whenAvailable", **options}
        with db.c.watch(start_after=start, **options) as stream:
            (event,) = take(stream, 1)
        return event["fullDocumentBeforeChange"], event["fullDocument"]

    life(1)
    assert images() == (None, None)
    with pytest.raises(OperationFailure) as refused:
        images(full_document_before_change="required")
    assert refused.value.code == 47
    life(3600)
    assert images() == ({"_id": 1, "n": 1}, {"_id": 1, "n": 2})
    life("off")
    assert images() == ({"_id": 1, "n": 1}, {"_id": 1, "n": 2})


def test_a_transaction_is_told_when_it_commits(db):
    db.c.insert_one({"_id": 0})
    with db.watch() as stream, db.client.start_session() as session:
        with session.start_transaction():
            for n in range(1, 40):
                db.c.insert_one({"_id": n}, session=session)
            db.d.update_one({"_id": 1}, {"$set": {"n": 1}}, upsert=True, session=session)
            db.outside.insert_one({"_id": 1})
            assert take(stream, 1)[0]["ns"]["coll"] == "outside"
        events = take(stream, 40)
    assert [event["documentKey"]["_id"] for event in events] == [*range(1, 40), 1]
    assert len({event["clusterTime"] for event in events}) == 1
    assert {event["txnNumber"] for event in events} == {1}
    # Resumed in the middle of it.
    with db.watch(resume_after=events[17]["_id"]) as stream:
        assert [event["documentKey"] for event in take(stream, 22)] == [event["documentKey"] for event in events[18:]]


def test_a_large_transaction(tmp_path):
    """A chain of log entries: whole after a kill, one event a document, a chain of documents in the log."""
    text = "x" * (1 << 20)
    for engine in engines_for(__name__):
        server = Server(tmp_path / engine, engine, options=MEMBER)
        server.start()
        client = connect(server)
        db = client.t
        db.c.insert_one({"_id": -1})
        stream = db.c.watch([{"$project": {"fullDocument": 0}}])
        start = client.admin.command("ping")["operationTime"]
        with client.start_session() as session:
            with session.start_transaction():
                for n in range(0, 100, 10):
                    db.c.insert_many([{"_id": n + part, "text": text} for part in range(10)], session=session)
            with pytest.raises(OperationFailure) as refused, session.start_transaction():
                for n in range(0, 200, 10):
                    db.c.insert_many([{"_id": 1000 + n + part, "text": text} for part in range(10)], session=session)
            codes = [each["code"] for each in refused.value.details.get("writeErrors", [refused.value.details])]
            assert codes == [257], refused.value
        events = take(stream, 100)
        assert [event["documentKey"]["_id"] for event in events] == list(range(100))
        stream.close()
        server.kill()
        server.start()
        client.close()
        client = connect(server)
        assert client.t.c.count_documents({}) == 101
        with client.t.c.watch([{"$project": {"fullDocument": 0}}], resume_after=events[69]["_id"]) as stream:
            assert [event["documentKey"]["_id"] for event in take(stream, 30)] == list(range(70, 100))
        chain = list(client.local["oplog.rs"].find({"ts": {"$gt": start}, "o.applyOps": {"$exists": True}}))
        assert sum(len(entry["o"]["applyOps"]) for entry in chain) == 100 and len(chain) > 5
        assert [entry["o"].get("partialTxn", False) for entry in chain] == [True] * (len(chain) - 1) + [False]
        assert chain[-1]["o"]["count"] == 100 and chain[-1]["ts"] == events[0]["clusterTime"]
        assert [entry["prevOpTime"]["ts"] for entry in chain[1:]] == [entry["ts"] for entry in chain[:-1]]
        backward = client.local["oplog.rs"].find({"ts": {"$gt": start}, "o.applyOps": {"$exists": True}}, {"ts": 1})
        assert [entry["ts"] for entry in backward.sort("$natural", -1)] == [entry["ts"] for entry in reversed(chain)]
        client.close()
        assert server.stop() == 0


def test_pipelines(db):
    stages = [
        {"$match": {"operationType": {"$in": ["insert", "update"]}, "documentKey._id": {"$gt": 1}}},
        {"$addFields": {"twice": {"$multiply": ["$documentKey._id", 2]}}},
        {"$project": {"wallTime": 0}},
    ]
    with db.c.watch(stages) as stream:
        db.c.insert_many([{"_id": n} for n in range(5)])
        db.c.delete_many({})
        db.c.insert_one({"_id": 9})
        assert [event["twice"] for event in take(stream, 4)] == [4, 6, 8, 18]
    for stages, code in [
        ([{"$sort": {"a": 1}}], 20),
        ([{"$limit": 1}], 20),
        ([{"$group": {"_id": 1}}], 20),
    ]:
        with pytest.raises(OperationFailure) as refused:
            db.c.watch(stages)
        assert refused.value.code == code
    stream = db.c.watch([{"$project": {"_id": 0}}])
    db.c.insert_one({"_id": 10})
    with pytest.raises((OperationFailure, PyMongoError)):
        take(stream, 1)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"fullDocument": "x"}, 2),
        ({"junk": 1}, 40415),
        ({"resumeAfter": {"_data": "zz"}}, 9),
        ({"resumeAfter": {}}, 40647),
        ({"startAtOperationTime": 1}, 14),
        ({"allChangesForCluster": True}, 72),
        ({"startAtOperationTime": Timestamp(9, 1), "resumeAfter": {"_data": "82" + "00" * 18}}, 40674),
    ],
)
def test_bad_options(db, options, code):
    with pytest.raises(OperationFailure) as refused:
        db.command("aggregate", "c", pipeline=[{"$changeStream": options}], cursor={})
    assert refused.value.code == code, refused.value


def test_where_no_stream_may_be(db, member):
    db.command("create", "v", viewOn="c", pipeline=[])
    db.command("create", "w", viewOn="c", pipeline=[{"$match": {"a": 1}}])
    admin = db.client.admin
    for database, target, code in [(db, "v", 166), (db, "w", 166), (admin, "x", 73), (db, "system.views", 73), (db.client.local, "x", 73)]:
        with pytest.raises(OperationFailure) as refused:
            database.command("aggregate", target, pipeline=[{"$changeStream": {}}], cursor={})
        assert refused.value.code == code, refused.value
    with db.client.watch() as stream:
        db.c.insert_one({"_id": 1})
        # Everybody's changes, and nobody's internal ones.
        while (event := take(stream, 1)[0])["ns"]["db"] != db.name:
            pass
        assert event["documentKey"] == {"_id": 1}


def test_a_standalone_has_no_history(tmp_path):
    server = Server(tmp_path, "inMemory")
    server.start()
    client = server.client()
    with pytest.raises(OperationFailure) as refused:
        client.t.c.watch()
    assert refused.value.code == 40573
    assert client.local["oplog.rs"].find_one() is None
    client.close()
    server.stop()


def test_large_events_are_split(db):
    db.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    db.c.insert_one({"_id": 1, "text": "x" * (9 << 20)})
    options = {"full_document": "required", "full_document_before_change": "required"}
    split = [{"$changeStreamSplitLargeEvent": {}}]
    with db.c.watch(split, **options) as stream, db.c.watch(**options) as whole:
        db.c.update_one({"_id": 1}, {"$set": {"n": 1}})
        db.c.insert_one({"_id": 2})
        with pytest.raises(OperationFailure) as refused:
            take(whole, 1)
        assert refused.value.code == 10334
        fragments = take(stream, 2)
        assert [event["splitEvent"] for event in fragments] == [{"fragment": 1, "of": 2}, {"fragment": 2, "of": 2}]
        together = {name: value for event in fragments for name, value in event.items() if name not in ("_id", "splitEvent")}
        assert len(together["fullDocument"]["text"]) == len(together["fullDocumentBeforeChange"]["text"]) == 9 << 20
        assert together["operationType"] == "update"
        assert take(stream, 1)[0]["documentKey"] == {"_id": 2}
    with db.c.watch(split, resume_after=fragments[0]["_id"], **options) as stream:
        events = take(stream, 2)
        assert events[0]["splitEvent"] == {"fragment": 2, "of": 2} and events[1]["documentKey"] == {"_id": 2}
    # What an operator did is told as that, also where the new document would be shorter.
    with db.c.watch() as stream:
        db.c.update_one({"_id": 1}, {"$set": {"text": "y" * (9 << 20)}})
        event = take(stream, 1)[0]
        assert event["operationType"] == "update" and event["updateDescription"]["updatedFields"] == {"text": "y" * (9 << 20)}


def test_no_event_is_lost_or_doubled(db):
    """Writers of several kinds, followers that stop and go on; the log itself is the truth."""
    stop = threading.Event()
    failures = []

    def write(worker):
        client, generator = connect_again(), random.Random(worker)
        collection = client[db.name][f"w{worker % 3}"]
        n = 0
        while not stop.is_set():
            n += 1
            key = f"{worker} {n}"
            kind = generator.randrange(5)
            if kind == 0:
                with client.start_session() as session:
                    with session.start_transaction():
                        for part in range(generator.randrange(1, 20)):
                            collection.insert_one({"_id": f"{key} {part}"}, session=session)
            elif kind == 1:
                collection.insert_many([{"_id": f"{key} {part}"} for part in range(generator.randrange(1, 60))])
            else:
                collection.insert_one({"_id": key})
                collection.update_one({"_id": key}, {"$set": {"n": n}})
                if kind == 2:
                    collection.delete_one({"_id": key})
        client.close()

    host, port = db.client.address

    def connect_again():
        return MongoClient(host, port, replicaSet="rs0", serverSelectionTimeoutMS=10000)

    start = db.client.admin.command("ping")["operationTime"]

    def follow(seen, seed):
        generator = random.Random(seed)
        token = None
        client = connect_again()
        try:
            while True:
                options = {"resume_after": token} if token else {"start_at_operation_time": start}
                with client[db.name].watch(batch_size=generator.choice([1, 7, 1000]), **options) as stream:
                    for _ in range(generator.randrange(1, 200)):
                        event = stream.try_next()
                        if event is not None:
                            if event["ns"]["coll"] == "end":
                                return
                            seen.append((event["operationType"], event["ns"]["coll"], event["documentKey"]["_id"]))
                    token = stream.resume_token
        except Exception as error:
            failures.append(error)
        finally:
            client.close()

    writers = [threading.Thread(target=write, args=(worker,)) for worker in range(6)]
    seen = [[] for _ in range(4)]
    followers = [threading.Thread(target=follow, args=(each, seed)) for seed, each in enumerate(seen)]
    for thread in writers + followers:
        thread.start()
    time.sleep(4)
    stop.set()
    for thread in writers:
        thread.join()
    db.end.insert_one({})
    for thread in followers:
        thread.join(timeout=180)
        assert not thread.is_alive()
    assert not failures, failures
    truth = []
    names = {"i": "insert", "u": "update", "d": "delete"}
    for entry in db.client.local["oplog.rs"].find({"ts": {"$gte": start}}):
        operations = entry["o"]["applyOps"] if "applyOps" in entry["o"] else [entry]
        for operation in operations:
            if operation["op"] in names and operation["ns"].startswith(db.name + ".w"):
                key = operation.get("o2", operation["o"])["_id"]
                truth.append((names[operation["op"]], operation["ns"].split(".")[1], key))
    assert len(truth) > 100
    for each in seen:
        assert each == truth


def test_a_stream_goes_on_over_kills(tmp_path):
    for engine in ENGINES:
        server = Server(tmp_path / engine, engine, options=MEMBER)
        server.start()
        token, seen, written = None, [], []
        for turn in range(4):
            client = connect(server)
            db = client.t
            with db.c.watch(**({"resume_after": token} if token else {})) as stream:
                token = stream.resume_token
                for n in range(30):
                    key = f"{turn} {n}"
                    db.c.insert_one({"_id": key})
                    written.append(key)
                for event in take(stream, min(20, len(written) - len(seen))):
                    seen.append(event["documentKey"]["_id"])
                token = stream.resume_token
            server.kill()
            server.start()
            client.close()
        client = connect(server)
        with client.t.c.watch(resume_after=token) as stream:
            seen += [event["documentKey"]["_id"] for event in take(stream, len(written) - len(seen))]
            assert quiet(stream)
        assert seen == written
        client.close()
        assert server.stop() == 0


def test_the_log_is_a_collection_to_tools(db):
    oplog = db.client.local["oplog.rs"]
    last = oplog.find_one(sort=[("$natural", -1)])
    db.c.insert_one({"_id": 1, "n": 1})
    db.c.update_one({"_id": 1}, {"$set": {"n": 2}})
    db.c.replace_one({"_id": 1}, {"n": 3})
    db.c.delete_one({"_id": 1})
    entries = list(oplog.find({"ts": {"$gt": last["ts"]}, "ns": {"$regex": "^" + db.name}}))
    assert [entry["op"] for entry in entries] == ["c", "i", "u", "u", "d"]
    create, insert, update, replace, delete = entries
    assert create["ns"] == db.name + ".$cmd" and create["o"]["create"] == "c"
    assert insert["o"] == {"_id": 1, "n": 1} and insert["o2"] == {"_id": 1}
    assert update["o"] == {"$v": 2, "diff": {"u": {"n": 2}}} and update["o2"] == {"_id": 1}
    assert replace["o"] == {"_id": 1, "n": 3} and delete["o"] == {"_id": 1}
    assert all(entry["v"] == 2 and entry["t"] >= 1 and entry["ui"] == insert["ui"] for entry in entries)
    assert insert["txnNumber"] >= 1 and "id" in insert["lsid"] and insert["stmtId"] == 0
    backward = list(oplog.find({"ts": {"$gt": last["ts"]}}).sort("$natural", -1))
    assert backward == list(reversed(list(oplog.find({"ts": {"$gt": last["ts"]}}))))
    assert oplog.count_documents({"ts": {"$gt": last["ts"]}, "op": "u", "ns": db.name + ".c"}) == 2
    assert list(oplog.aggregate([{"$match": {"ts": insert["ts"]}}, {"$project": {"op": 1}}]))[0]["op"] == "i"
    assert set(oplog.distinct("op")) >= {"c", "i", "u", "d", "n"}
    stats = db.client.local.command("collStats", "oplog.rs")
    assert stats["capped"] and stats["maxSize"] > 0 and stats["count"] > 0
    names = {each["name"]: each for each in db.client.local.list_collections()}
    assert names["oplog.rs"]["options"]["capped"]
    with pytest.raises(OperationFailure) as refused:
        oplog.insert_one({"a": 1})
    assert refused.value.code == 73
    cursor = oplog.find({"ts": {"$gte": delete["ts"]}}, cursor_type=CursorType.TAILABLE_AWAIT)
    assert next(cursor)["op"] == "d"
    db.c.insert_one({"_id": 7})
    end = time.monotonic() + 60
    entry = None
    while entry is None and time.monotonic() < end and cursor.alive:
        entry = next((each for each in cursor if each["op"] == "i" and each["ns"] == db.name + ".c"), None)
    assert entry["o"] == {"_id": 7}


def test_mongosh_shows_the_log(member):
    shell = CLIENTS / "node" / "node_modules" / ".bin" / "mongosh"
    script = "print(JSON.stringify(db.getReplicationInfo())); rs.printReplicationInfo()"
    uri = f"mongodb://127.0.0.1:{member.port}/test?replicaSet=rs0"
    done = subprocess.run([str(shell), uri, "--quiet", "--eval", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "oplog first event time" in done.stdout, done.stdout + done.stderr


def test_history_that_is_gone_is_said_so(tmp_path):
    server = Server(tmp_path, "btree", options=[*MEMBER, "--oplogSize", "1"])
    server.start()
    client = connect(server)
    db = client.t
    db.c.insert_one({"_id": 0})
    with db.c.watch() as stream:
        db.c.insert_one({"_id": 1})
        token = take(stream, 1)[0]["_id"]
    fill = os.urandom(1 << 20)
    for n in range(200):
        db.fill.insert_one({"_id": n, "data": fill})
    client.admin.command("fsync")
    for n in range(100):
        db.fill.insert_one({"_id": 1000 + n, "data": fill})
    client.admin.command("fsync")
    with pytest.raises(OperationFailure) as lost:
        db.c.watch(resume_after=token)
    assert lost.value.code == 286 and lost.value.has_error_label("NonResumableChangeStreamError"), lost.value
    with pytest.raises(OperationFailure) as unknown:
        now = client.admin.command("ping")["operationTime"]
        db.c.watch(resume_after={"_data": "82" + f"{now.time:08X}{now.inc:08X}" + "01" + "00000063" + "00" * 5})
    assert unknown.value.code == 280, unknown.value
    client.close()
    server.stop()


def test_the_size_of_the_log_is_kept(tmp_path):
    """Each start chose it anew, by the disk that was free then, and what was set was gone."""
    server = Server(tmp_path, "btree", options=MEMBER)

    def size(change=None):
        server.start()
        client = connect(server)
        if change:
            client.admin.command("replSetResizeOplog", 1, **change)
        megabytes = client.local.command("collStats", "oplog.rs")["maxSize"] >> 20
        client.close()
        assert server.stop() == 0, server.tail()
        return megabytes

    assert size({"size": 2000.0, "minRetentionHours": 1.5}) == 2000
    assert size() == 2000
    server.options = [*MEMBER, "--oplogSize", "1200"]
    assert size() == 1200, "an option that is new counts"
    assert size({"size": 3000.0}) == 3000
    assert size() == 3000


def test_a_large_transaction_at_the_beginning_of_the_log(tmp_path):
    """The log begins in the middle of it: what is left was told as if it were all."""
    server = Server(tmp_path, "btree", options=[*MEMBER, "--oplogSize", "1"])
    server.start()
    client = connect(server)
    client.t.create_collection("c")
    fill = os.urandom(1 << 20)
    with client.t.c.watch() as stream, client.start_session() as session:
        with session.start_transaction():
            for n in range(140):
                client.t.c.insert_one({"_id": n, "data": fill}, session=session)
        events = take(stream, 140)
    for n in range(3):
        client.t.c.update_one({"_id": 0}, {"$set": {"n": n}})
        client.admin.command("fsync")
    for options in (
        {"resume_after": events[3]["_id"]},
        {"resume_after": events[130]["_id"]},
        {"start_at_operation_time": events[0]["clusterTime"]},
    ):
        with pytest.raises(OperationFailure) as lost:
            client.t.c.watch(**options)
        assert lost.value.code == 286, lost.value
    log = client.local["oplog.rs"]
    assert [entry["op"] for entry in log.find({"ns": "t.c"})] == ["u"] * 3
    forward = list(log.find())
    backward = list(log.find({"ts": {"$lte": forward[-1]["ts"]}}).sort("$natural", -1))
    assert backward[::-1] == forward
    client.close()
    server.stop()


def test_node_driver_goes_on_by_itself(tmp_path):
    """Its stream survives the server's death: the driver resumes it."""
    server = Server(tmp_path, "btree", options=MEMBER)
    server.start()
    script = """
        const { MongoClient } = require("mongodb");
        (async () => {
            const client = new MongoClient(process.env.TENON_URI);
            const c = client.db("t_node").collection("c");
            await c.insertOne({ _id: "first" });
            const stream = c.watch([{ $match: { operationType: "insert" } }], { fullDocument: "updateLookup" });
            const seen = [];
            await stream.tryNext();
            console.log("ready");
            for await (const event of stream) {
                seen.push(event.documentKey._id);
                console.log("an event");
                if (event.documentKey._id === "last") break;
            }
            console.log(JSON.stringify(seen));
            await client.close();
        })();
    """
    environment = {
        **os.environ,
        "NODE_PATH": str(CLIENTS / "node" / "node_modules"),
        "TENON_URI": f"mongodb://localhost:{server.port}/?replicaSet=rs0",
    }
    node = subprocess.Popen(["node", "-e", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert node.stdout.readline() == "ready\n", node.stderr.read()
    expected, heard = [], 0
    for turn in range(3):
        client = connect(server)
        for n in range(20):
            client.t_node.c.insert_one({"_id": f"{turn} {n}"})
            expected.append(f"{turn} {n}")
            if n == 0:
                # It is there again: what fails while it resumes is for the application, and not resumed once more.
                while len(expected) > heard:
                    assert node.stdout.readline() == "an event\n", node.stderr.read()
                    heard += 1
        server.kill()
        server.start()
        client.close()
    client = connect(server)
    client.t_node.c.insert_one({"_id": "last"})
    out, err = node.communicate(timeout=60)
    assert node.returncode == 0, err
    assert json.loads(out.splitlines()[-1]) == [*expected, "last"], err
    client.close()
    assert server.stop() == 0


def test_who_may_watch(tmp_path):
    server = Server(tmp_path, "inMemory", options=MEMBER)
    server.start()
    client = connect(server)
    for user, roles in [
        ("reader", [{"role": "read", "db": "t"}]),
        ("everything", [{"role": "readAnyDatabase", "db": "admin"}]),
        ("writer", []),
        ("admin", ["root"]),
    ]:
        client.admin.command("createUser", user, pwd="p", roles=roles)
    client.t.c.insert_one({"_id": 1})
    client.close()
    assert server.stop() == 0
    server.options = [*MEMBER, "--auth"]
    server.start()

    def watch(user, target):
        client = connect(server, username=user, password="p")
        try:
            with target(client).watch():
                return True
        except OperationFailure as error:
            assert error.code == 13, error
            return False
        finally:
            client.close()

    targets = [lambda c: c.t.c, lambda c: c.t, lambda c: c.other, lambda c: c]
    assert [watch("reader", target) for target in targets] == [True, True, False, False]
    assert [watch("everything", target) for target in targets] == [True, True, True, True]
    assert [watch("writer", target) for target in targets] == [False, False, False, False]
    reader = connect(server, username="reader", password="p")
    with pytest.raises(OperationFailure) as refused:
        reader.local["oplog.rs"].find_one()
    assert refused.value.code == 13
    reader.close()
    assert server.stop() == 0
