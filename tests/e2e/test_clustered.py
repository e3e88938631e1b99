"""Clustered collections: documents are kept in the order of `_id`, without an index on it."""

import datetime
import random
import subprocess
import threading
import time

import pymongo
import pytest
from bson import MaxKey, MinKey
from bson.codec_options import CodecOptions
from members import ReplicaSet
from plans import stages, winning
from pymongo import ReadPreference
from pymongo.errors import DuplicateKeyError, OperationFailure
from server import ENGINES, Server, binary

CLUSTERED = {"key": {"_id": 1}, "unique": True}


def refused(call, code):
    with pytest.raises(OperationFailure) as failure:
        call()
    assert failure.value.code == code, failure.value


def create(db, name="c", **options):
    index = {**CLUSTERED, **options.pop("index", {})}
    return db.create_collection(name, clusteredIndex=index, **options)


def test_the_options_of_create(db):
    def attempt(index, **more):
        return lambda: db.command("create", "c", clusteredIndex=index, **more)

    refused(attempt({"key": {"_id": 1}}), 40414)
    refused(attempt({"unique": True}), 40414)
    refused(attempt({"key": {"_id": 1}, "unique": False}), 5979700)
    refused(attempt({**CLUSTERED, "key": {"a": 1}}), 197)
    refused(attempt({**CLUSTERED, "key": {"_id": -1}}), 197)
    refused(attempt({**CLUSTERED, "key": {"_id": 1, "a": 1}}), 197)
    refused(attempt({**CLUSTERED, "other": 1}), 40415)
    refused(attempt({**CLUSTERED, "v": 1}), 5979704)
    refused(attempt(True), 5979703)
    refused(attempt(CLUSTERED, viewOn="d", pipeline=[]), 6026500)
    refused(attempt(CLUSTERED, autoIndexId=False), 6026501)
    refused(attempt(CLUSTERED, size=4096), 6049200)
    refused(attempt(CLUSTERED, max=10), 6049204)
    refused(attempt(CLUSTERED, capped=True), 6049201)
    refused(attempt(CLUSTERED, capped=True, expireAfterSeconds=10), 6127800)
    refused(attempt(CLUSTERED, expireAfterSeconds=-10), 72)
    refused(attempt(False, expireAfterSeconds=10), 72)
    refused(attempt(CLUSTERED, timeseries={"timeField": "t"}), 72)
    assert db.list_collection_names() == []
    db.command("create", "ordinary", clusteredIndex=False)
    assert "clusteredIndex" not in db.ordinary.options()

    collection = create(db)
    shown = {"v": 2, "key": {"_id": 1}, "name": "_id_", "unique": True}
    (listed,) = db.list_collections(filter={"name": "c"})
    assert listed["options"] == {"clusteredIndex": shown} and "idIndex" not in listed
    assert list(collection.list_indexes()) == [{**shown, "clustered": True}]
    db.command("create", "c", clusteredIndex=CLUSTERED)  # as it is already
    refused(lambda: db.command("create", "c"), 48)
    named = create(db, "named", index={"name": "by id"}, expireAfterSeconds=1000)
    assert named.options() == {"clusteredIndex": {**shown, "name": "by id"}, "expireAfterSeconds": 1000}
    assert [index["name"] for index in named.list_indexes()] == ["by id"]
    assert db.command("serverStatus")["catalogStats"]["clustered"] >= 2


def test_the_clustered_index_among_others(db):
    collection = create(db, index={"name": "by id"})
    collection.insert_many([{"_id": n, "a": -n} for n in range(20)])
    for key, options in [([("_id", 1)], {}), ([("_id", 1)], {"clustered": True, "unique": True})]:
        collection.create_index(key, **options)
    refused(lambda: collection.create_index("a", clustered=True, unique=True), 6243700)
    refused(lambda: collection.create_index("a", name="by id"), 86)
    refused(lambda: db.other.create_index("_id", clustered=True, unique=True), 6100900)
    db.other.insert_one({})
    refused(lambda: db.other.create_index("_id", clustered=True, unique=True), 6243700)
    refused(lambda: db.other.create_index("a", clustered=False), 6492800)
    for target in ("by id", {"_id": 1}, ["by id"]):
        refused(lambda: db.command("dropIndexes", "c", index=target), 5979800)
    made = db.command("createIndexes", "c", indexes=[{"key": {"a": 1}, "name": "a_1"}])
    assert (made["numIndexesBefore"], made["numIndexesAfter"]) == (0, 1)
    collection.create_index([("_id", "hashed")])
    collection.create_index([("_id", 1), ("a", 1)])
    assert db.command("dropIndexes", "c", index="*")["nIndexesWas"] == 4
    assert [index["name"] for index in collection.list_indexes()] == ["by id"]
    stats = db.command("collStats", "c")
    assert stats["nindexes"] == 1 and stats["indexSizes"] == {} and stats["indexDetails"]["by id"]["clustered"]
    assert list(collection.aggregate([{"$indexStats": {}}])) == []
    report = db.command("validate", "c", full=True)
    assert (report["valid"], report["nrecords"], report["nIndexes"], report["keysPerIndex"]) == (True, 20, 0, {})
    refused(lambda: db.command("convertToCapped", "c", size=4096), 115)
    refused(lambda: db.command("cloneCollectionAsCapped", "c", toCollection="d", size=4096), 115)
    collection.rename("moved")
    assert [d["_id"] for d in db.moved.find()] == list(range(20))
    assert db.moved.options()["clusteredIndex"]["name"] == "by id"


def test_documents(db, seed):
    collection = create(db)
    order = list(range(500))
    random.Random(seed).shuffle(order)
    collection.insert_many([{"_id": n, "n": n % 10} for n in order])
    assert [d["_id"] for d in collection.find()] == list(range(500)), "natural order is that of _id"
    assert [d["_id"] for d in collection.find().sort("$natural", -1)] == list(range(499, -1, -1))
    with pytest.raises(DuplicateKeyError) as failure:
        collection.insert_one({"_id": 7})
    details = failure.value.details
    assert (details["code"], details["keyPattern"], details["keyValue"]) == (11000, {"_id": 1}, {"_id": 7})
    assert f"{db.name}.c index: _id_ dup key: {{ _id: 7 }}" in details["errmsg"]
    with pytest.raises(DuplicateKeyError):
        collection.insert_one({"_id": 7.0})
    assert collection.find_one({"_id": 7}) == {"_id": 7, "n": 7}
    assert collection.find_one({"_id": 700}) is None
    assert collection.update_one({"_id": 8}, {"$set": {"n": 80}}).modified_count == 1
    assert collection.update_many({"_id": {"$gte": 490}}, {"$inc": {"n": 100}}).modified_count == 10
    refused(lambda: collection.update_one({"_id": 9}, {"$set": {"_id": 1000}}), 66)
    upserted = collection.update_one({"_id": 1000}, {"$set": {"n": 1}}, upsert=True)
    assert upserted.upserted_id == 1000
    assert collection.replace_one({"_id": 1000}, {"n": 2}, upsert=True).matched_count == 1
    before = collection.find_one_and_update({"_id": 1000}, {"$inc": {"n": 1}})
    assert before == {"_id": 1000, "n": 2} and collection.find_one({"_id": 1000}) == {"_id": 1000, "n": 3}
    assert collection.find_one_and_delete({}, sort=[("_id", -1)]) == {"_id": 1000, "n": 3}
    assert collection.delete_many({"_id": {"$in": [1, 3, 5, 2000]}}).deleted_count == 3
    assert collection.count_documents({"_id": {"$lt": 10}}) == 7
    assert collection.count_documents({"_id": 8}) == 1 and collection.count_documents({"_id": 5}) == 0
    assert sorted(collection.distinct("_id", {"_id": {"$lt": 6}})) == [0, 2, 4]
    assert len(list(collection.aggregate([{"$sample": {"size": 50}}]))) == 50
    assert collection.estimated_document_count() == 497
    db.others.insert_many([{"_id": n, "of": n * 2} for n in range(5)])
    joined = db.others.aggregate([{"$lookup": {"from": "c", "localField": "of", "foreignField": "_id", "as": "found"}}, {"$sort": {"_id": 1}}])
    assert [len(d["found"]) for d in joined] == [1, 1, 1, 1, 1]
    list(db.others.aggregate([{"$merge": {"into": "c", "whenMatched": "replace"}}]))
    assert [d.get("of") for d in collection.find({"_id": {"$lt": 5}})] == [0, 2, 4, 6, 8]
    list(db.others.aggregate([{"$out": "c"}]))
    assert [d["_id"] for d in collection.find()] == [0, 1, 2, 3, 4] and "clusteredIndex" in collection.options()
    db.c.delete_many({})
    result = collection.bulk_write([pymongo.InsertOne({"_id": 1}), pymongo.UpdateOne({"_id": 1}, {"$set": {"n": 1}}), pymongo.DeleteOne({"_id": 1})])
    assert (result.inserted_count, result.modified_count, result.deleted_count) == (1, 1, 1)


def test_every_type_of_id(db):
    collection = create(db)
    now = datetime.datetime(2024, 1, 1)
    values = [MinKey(), None, -1.5, 3, 2**40, "", "a", {"x": 1}, b"bytes", True, now, MaxKey()]
    for value in reversed(values):
        collection.insert_one({"_id": value})
    assert [d["_id"] for d in collection.find()] == values
    for value in values:
        assert [d["_id"] for d in collection.find({"_id": value})] == [value]
    collection.create_index("x")
    assert collection.count_documents({"x": None}) == len(values)
    record = next(iter(collection.find({"_id": 3}, show_record_id=True)))
    assert isinstance(record["$recordId"], bytes)


def test_plans(db):
    collection = create(db)
    collection.insert_many([{"_id": n, "a": -n} for n in range(100)])
    collection.insert_many([{"_id": None}, {"_id": "foo"}])

    def plan(filter, **more):
        explained = db.command("explain", {"find": "c", "filter": filter, **more}, verbosity="executionStats")
        stats = explained["executionStats"]
        return explained["queryPlanner"]["winningPlan"], stats["nReturned"], stats["totalDocsExamined"], stats["totalKeysExamined"]

    express, n, docs, keys = plan({"_id": 5})
    assert (express["stage"], n, docs, keys) == ("EXPRESS_CLUSTERED_IXSCAN", 1, 1, 0)

    def bounds(filter, **more):
        found, n, docs, keys = plan(filter, **more)
        while "inputStage" in found:
            found = found["inputStage"]
        assert keys == 0
        return found["stage"], found["direction"], found.get("minRecord"), found.get("maxRecord"), n, docs

    inf, hint = float("inf"), {"hint": {"_id": 1}}
    assert bounds({"_id": 5}, hint="_id_") == ("CLUSTERED_IXSCAN", "forward", 5, 5, 1, 1)
    assert bounds({"_id": {"$gt": 89}}) == ("CLUSTERED_IXSCAN", "forward", 89, inf, 10, 10)
    assert bounds({"_id": {"$gte": 89}}) == ("CLUSTERED_IXSCAN", "forward", 89, inf, 11, 11)
    assert bounds({"_id": {"$lt": 10}}) == ("CLUSTERED_IXSCAN", "forward", -inf, 10, 10, 10)
    assert bounds({"_id": {"$gt": 20, "$lte": 40}}) == ("CLUSTERED_IXSCAN", "forward", 20, 40, 20, 20)
    assert bounds({"_id": {"$gt": 20, "$lte": 40}}, sort={"_id": -1}) == ("CLUSTERED_IXSCAN", "backward", 20, 40, 20, 20)
    assert bounds({"_id": {"$gt": 20, "$lte": 40}}, sort={"$natural": -1}) == ("CLUSTERED_IXSCAN", "backward", 20, 40, 20, 20)
    assert bounds({"_id": {"$gte": "f"}})[:4] == ("CLUSTERED_IXSCAN", "forward", "f", {})
    found = bounds({"_id": {"$in": [10, 20, 30]}})
    assert found[:5] == ("CLUSTERED_IXSCAN", "forward", 10, 30, 3) and found[5] <= 6, "it jumps from one to the next"
    assert bounds({"a": {"$gt": -10}})[:5] == ("COLLSCAN", "forward", None, None, 10)
    assert bounds({}, sort={"_id": -1})[:5] == ("COLLSCAN", "backward", None, None, 102)
    assert bounds({}, **hint)[:5] == ("COLLSCAN", "forward", None, None, 102)
    assert bounds({"a": -2}, **hint)[:5] == ("COLLSCAN", "forward", None, None, 1)
    assert bounds({}, min={"_id": 95}, max={"_id": MaxKey()}, **hint) == ("CLUSTERED_IXSCAN", "forward", 95, MaxKey(), 6, 6)
    refused(lambda: plan({}, hint={"_id": -1}), 2)
    refused(lambda: plan({}, hint="no"), 2)
    assert "SORT" not in stages(winning(collection.find().sort("_id", 1)))
    covered = winning(collection.find({"_id": {"$lt": 3}}, {"_id": 1}))
    assert stages(covered) == ["PROJECTION_SIMPLE", "CLUSTERED_IXSCAN"]
    assert [d for d in collection.find({"_id": {"$lt": 3}}, {"_id": 1})] == [{"_id": 0}, {"_id": 1}, {"_id": 2}]
    assert list(collection.find({"_id": {"$lt": 1}}).hint("_id_").sort("_id", 1)) == [{"_id": 0, "a": 0}]
    returned = db.command("find", "c", filter={"_id": {"$lt": 2}}, returnKey=True)["cursor"]["firstBatch"]
    assert returned == [{}, {}], "there is no index whose keys there are"
    for command in ({"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$inc": {"a": 1}}}]}, {"delete": "c", "deletes": [{"q": {"_id": 3}, "limit": 0}]}):
        explained = db.command("explain", command, verbosity="queryPlanner")["queryPlanner"]["winningPlan"]
        scan = explained["inputStage"]
        assert (scan["stage"], scan["minRecord"], scan["maxRecord"]) == ("CLUSTERED_IXSCAN", 3, 3)

    collection.create_index("a")
    assert stages(winning(collection.find({"a": -5}))) == ["FETCH", "IXSCAN"]
    assert [d["_id"] for d in collection.find({"a": {"$gte": -5, "$lt": 0}}).sort("a", 1)] == [5, 4, 3, 2, 1]
    assert [d["_id"] for d in collection.find({"$or": [{"a": -5}, {"_id": {"$in": [5, 7]}}]})] == [5, 7]
    assert stages(winning(collection.find({"a": {"$lt": -90}}, {"a": 1, "_id": 0}))) == ["PROJECTION_COVERED", "IXSCAN"]


def test_cursors_go_on_where_they_were(db):
    collection = create(db)
    collection.insert_many([{"_id": f"{n:05}", "n": n} for n in range(0, 2000, 2)])
    for direction in (1, -1):
        seen = []
        for document in collection.find({"_id": {"$gte": "00100"}}, batch_size=7).sort("_id", direction):
            seen.append(document["_id"])
            if len(seen) == 20:
                ahead = int(document["_id"]) + direction
                collection.insert_one({"_id": f"{ahead + 100 * direction:05}", "n": -1})
        assert seen == sorted(seen, reverse=direction < 0) and len(set(seen)) == len(seen)
        assert len(seen) >= 950


def test_random_queries_agree_with_an_ordinary_collection(db, seed):
    random.seed(seed)
    ordinary, clustered = db.ordinary, create(db)
    for collection in (ordinary, clustered):
        collection.create_index("a")
        collection.create_index([("b", 1), ("_id", -1)])
        collection.create_index("tags")
        collection.create_index("u", unique=True, sparse=True)

    def value():
        return random.choice([random.randrange(60), random.randrange(60) / 2, f"s{random.randrange(40)}", None, {"k": random.randrange(9)}])

    for _ in range(400):
        document = {"_id": value(), "a": random.randrange(9), "b": random.randrange(4), "tags": [random.randrange(5) for _ in range(random.randrange(4))]}
        if random.random() < 0.5:
            document["u"] = random.randrange(500)
        change = random.choice(["insert", "insert", "update", "replace", "delete"])
        outcomes = []
        for collection in (ordinary, clustered):
            try:
                if change == "insert":
                    outcomes.append(collection.insert_one(dict(document)).acknowledged)
                elif change == "update":
                    outcomes.append(collection.update_one({"_id": document["_id"]}, {"$set": {"a": document["a"], "tags": document["tags"]}}).modified_count)
                elif change == "replace":
                    outcomes.append(collection.replace_one({"_id": document["_id"]}, dict(document)).matched_count)
                else:
                    outcomes.append(collection.delete_many({"_id": {"$gt": document["_id"]}, "b": document["b"], "a": {"$lt": 4}}).deleted_count)
            except OperationFailure as error:
                outcomes.append((error.code, error.details.get("keyPattern")))
        assert outcomes[0] == outcomes[1], (change, document)

    def key(document):
        return repr(sorted(document.items(), key=lambda field: field[0]))

    assert sorted(map(key, ordinary.find())) == sorted(map(key, clustered.find()))
    for _ in range(200):
        low, high = value(), value()
        condition = random.choice([{"$gte": low}, {"$lt": high}, {"$gt": low, "$lte": high}, {"$in": [low, high, value()]}, {"$eq": low}, {"$ne": low}, {"$not": {"$gt": low}}])
        filter = {"_id": condition}
        if random.random() < 0.5:
            filter[random.choice(["a", "b", "tags"])] = random.randrange(5)
        if random.random() < 0.2:
            filter = {"$or": [filter, {"a": random.randrange(9)}]}
        sort = random.choice([None, [("_id", 1)], [("_id", -1)], [("a", 1), ("_id", 1)], [("b", 1), ("_id", -1)]])
        found = []
        for collection in (ordinary, clustered):
            cursor = collection.find(filter, batch_size=random.choice([2, 50]))
            found.append([key(d) for d in (cursor.sort(sort) if sort else cursor)])
        if sort is None:
            found = [sorted(each) for each in found]
        assert found[0] == found[1], (filter, sort)
        assert ordinary.count_documents(filter) == clustered.count_documents(filter)


def test_indexes_of_every_kind(db):
    collection = create(db)
    words = ["coffee and cream", "tea", "black coffee"]
    collection.insert_many([{"_id": f"k{n}", "text": words[n % 3], "at": {"type": "Point", "coordinates": [n / 10, 0]}, "any": {"x": n % 5}} for n in range(60)])
    collection.create_index([("text", "text")])
    collection.create_index([("at", "2dsphere")])
    collection.create_index([("any.$**", 1)])
    assert collection.count_documents({"$text": {"$search": "coffee"}}) == 40
    near = collection.find({"at": {"$near": {"type": "Point", "coordinates": [2, 0]}}}).limit(3)
    assert {d["_id"] for d in near} == {"k20", "k19", "k21"}
    assert collection.count_documents({"any.x": 3}) == 12
    assert sorted(d["_id"] for d in collection.find({"$or": [{"$text": {"$search": "tea"}}, {"_id": "k0"}], "any.x": 0})) == sorted(
        ["k0", *(f"k{n}" for n in range(60) if n % 3 == 1 and n % 5 == 0)]
    )


def test_a_sort_that_spills_keeps_the_records(db):
    collection = create(db)
    collection.insert_many([{"_id": f"k{n:05}", "n": n * 7919 % 5000, "pad": "x" * 100} for n in range(5000)])
    client = db.client
    was = client.admin.command("getParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=1)["internalQueryMaxBlockingSortMemoryUsageBytes"]
    client.admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=200_000)
    try:
        found = list(collection.find(sort=[("n", 1)], allow_disk_use=True, show_record_id=True))
    finally:
        client.admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=was)
    assert [d["n"] for d in found] == list(range(5000))
    assert all(isinstance(d["$recordId"], bytes) for d in found)


def test_many_write_at_once(db):
    collection = create(db)
    made = []

    def work():
        own = 0
        for n in range(200):
            try:
                collection.insert_one({"_id": n})
                own += 1
            except DuplicateKeyError:
                pass
            collection.update_one({"_id": n % 20}, {"$inc": {"n": 1}})
        made.append(own)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) == 200 == collection.count_documents({})
    assert sum(d["n"] for d in collection.find({"n": {"$exists": True}})) == 800


def test_documents_expire_by_their_ids(db):
    collection = create(db, expireAfterSeconds=3600)
    now = datetime.datetime.now(datetime.timezone.utc)
    hour = datetime.timedelta(hours=1)
    collection.insert_many([{"_id": now - 5 * hour}, {"_id": now - 2 * hour}, {"_id": now}, {"_id": 1}, {"_id": "2001"}])
    patience = time.monotonic() + 60
    while collection.count_documents({}) > 3 and time.monotonic() < patience:
        time.sleep(0.1)
    assert [type(d["_id"]).__name__ for d in collection.find()] == ["int", "str", "datetime"]
    db.command("collMod", "c", expireAfterSeconds=100_000)
    assert collection.options()["expireAfterSeconds"] == 100_000
    for wrong, code in (("soon", 14), (-1, 72)):
        with pytest.raises(OperationFailure) as refusal:
            db.command("collMod", "c", expireAfterSeconds=wrong)
        told = refusal.value.details["errmsg"]
        assert refusal.value.code == code and "create" not in told and "time-series" not in told, told
    db.command("collMod", "c", expireAfterSeconds="off")
    assert "expireAfterSeconds" not in collection.options()
    db.ordinary.insert_one({})
    refused(lambda: db.command("collMod", "ordinary", expireAfterSeconds=1), 72)


def test_collations(db):
    collection = create(db, collation={"locale": "en", "strength": 2})
    collection.insert_many([{"_id": word} for word in ("b", "C", "a")])
    with pytest.raises(DuplicateKeyError):
        collection.insert_one({"_id": "B"})
    assert [d["_id"] for d in collection.find()] == ["a", "b", "C"]
    assert [d["_id"] for d in collection.find({"_id": "c"})] == ["C"]
    assert [d["_id"] for d in collection.find({"_id": {"$gte": "B"}})] == ["b", "C"]
    binary_order = {"locale": "simple"}
    assert [d["_id"] for d in collection.find({"_id": {"$gte": "B"}}).collation(binary_order)] == ["a", "b", "C"]
    assert [d["_id"] for d in collection.find({"_id": "c"}).collation(binary_order)] == []
    assert [d["_id"] for d in collection.find().sort("_id", 1).collation(binary_order)] == ["C", "a", "b"]


@pytest.mark.parametrize("engine", ENGINES)
def test_transactions(engine, tmp_path):
    with ReplicaSet(tmp_path, engines=[engine]) as rs:
        rs.initiate()
        client = rs.client()
        db = client.t
        collection = create(db)
        collection.insert_many([{"_id": n, "n": 0} for n in range(10)])
        with client.start_session() as one, client.start_session() as two:
            one.start_transaction()
            two.start_transaction()
            collection.insert_one({"_id": 4.5, "n": 1}, session=one)
            assert [d["_id"] for d in collection.find({"_id": {"$gt": 3, "$lt": 6}}, session=one)] == [4, 4.5, 5]
            assert [d["_id"] for d in collection.find({"_id": {"$gt": 3, "$lt": 6}}, session=two)] == [4, 5]
            refused(lambda: collection.insert_one({"_id": 4.5}, session=two), 112)
            one.commit_transaction()
            two.abort_transaction()
            two.start_transaction()
            collection.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=two)
            collection.delete_one({"_id": 2}, session=two)
            two.abort_transaction()
        assert [d["_id"] for d in collection.find()] == [0, 1, 2, 3, 4, 4.5, 5, 6, 7, 8, 9]
        assert collection.find_one({"_id": 1})["n"] == 0
        with collection.watch() as stream:
            collection.insert_one({"_id": "new"})
            collection.update_one({"_id": "new"}, {"$set": {"n": 1}})
            collection.delete_one({"_id": "new"})
            seen = [next(stream) for _ in range(3)]
        assert [change["operationType"] for change in seen] == ["insert", "update", "delete"]
        assert all(change["documentKey"] == {"_id": "new"} for change in seen)
        assert db.command("validate", "c", full=True)["valid"]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_was_written_survives(engine, tmp_path):
    server = Server(tmp_path / "data", engine)
    server.start()
    db = server.client().t
    collection = create(db)
    collection.create_index("n")
    expected = {}
    for round in range(3):
        for n in range(200):
            identity = f"{round}-{n * 37 % 200:03}"
            expected[identity] = {"_id": identity, "n": n, "pad": "x" * (n * 20)}
        collection.insert_many([d for d in expected.values() if d["_id"].startswith(f"{round}-")])
        collection.delete_many({"_id": {"$gte": f"{round}-150", "$lt": f"{round}-160"}})
        for n in range(150, 160):
            del expected[f"{round}-{n:03}"]
        if round == 1:
            db.client.admin.command("fsync")
        db.command({"insert": "last", "documents": [{"_id": round}], "writeConcern": {"j": True}})
        server.close_clients()
        if round == 2:
            assert server.stop() == 0
        else:
            server.kill()
        server.start()
        db = server.client().t
        collection = db.c
        assert list(collection.find()) == [expected[identity] for identity in sorted(expected)]
        assert [d["_id"] for d in collection.find({"n": 3})] == sorted(i for i, d in expected.items() if d["n"] == 3)
        assert db.command("validate", "c", full=True)["valid"]
    assert server.stop() == 0, server.tail()


@pytest.mark.parametrize("engine", ENGINES)
def test_dump_and_restore(engine, tmp_path):
    tool = binary().removesuffix("tenond") + "tenon"
    with Server(tmp_path / "a", engine) as server, Server(tmp_path / "b", engine) as target:
        db = server.client().t
        collection = create(db, index={"name": "by id"}, expireAfterSeconds=10**6)
        collection.insert_many([{"_id": {"n": n}, "a": n % 3} for n in range(100)])
        collection.create_index("a")
        for words in (["dump", "--port", server.port], ["restore", "--port", target.port]):
            done = subprocess.run([tool, *map(str, words), f"--archive={tmp_path}/dump"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        restored = target.client().t
        assert list(restored.c.find()) == list(collection.find())
        assert restored.c.options() == collection.options()
        assert list(restored.c.list_indexes()) == list(collection.list_indexes())
        assert restored.command("validate", "c", full=True)["valid"]


def test_a_set_of_three(new_folder):
    with ReplicaSet(new_folder("set")) as rs:
        rs.initiate()
        client = rs.client(retryWrites=True)
        db = client.t
        collection = create(db)
        collection.create_index("n")
        collection.insert_many([{"_id": f"k{n * 37 % 500:03}", "n": n} for n in range(500)])
        collection.update_many({"n": {"$lt": 100}}, {"$inc": {"n": 1000}})
        collection.delete_many({"_id": {"$gte": "k400"}})
        rs.wait_applied()
        rs.check_equal()
        # A member that has nothing copies all.
        wiped = rs.secondaries[0]
        wiped.stop()
        wiped.wipe()
        wiped.start()
        rs.wait_healthy()
        collection.insert_one({"_id": "a", "n": -1})
        primary = rs.primary
        primary.kill()
        collection.insert_one({"_id": "b", "n": -2})
        primary.start()
        rs.wait_healthy()
        rs.wait_applied()
        rs.check_equal()
        expected = ["a", "b", *(f"k{n:03}" for n in range(400))]
        for member in rs.members:
            own = member.direct.get_database("t", CodecOptions(), ReadPreference.SECONDARY_PREFERRED)
            assert [d["_id"] for d in own.c.find()] == expected
            assert own.command("validate", "c", full=True)["valid"]
