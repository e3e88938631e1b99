"""Time-series collections: measurements go in and come out, and buckets are what MongoDB's are."""

import datetime
import os
import random
import subprocess
import threading

import bson
import pymongo
import pytest
from bson import ObjectId
from members import ReplicaSet
from pymongo.errors import BulkWriteError, OperationFailure
from pymongo.read_preferences import Secondary
from server import ENGINES, Server, binary, send

UTC = datetime.timezone.utc


def at(*parts):
    return datetime.datetime(*parts)


START = at(2021, 5, 18)


def minutes(n):
    return START + datetime.timedelta(minutes=n)


def refused(code, call, *arguments, **options):
    with pytest.raises((OperationFailure, BulkWriteError)) as failure:
        call(*arguments, **options)
    error = failure.value
    found = error.details["writeErrors"][0]["code"] if isinstance(error, BulkWriteError) else error.code
    assert found == code, error
    return str(error)


def without_ids(documents):
    return [{name: value for name, value in document.items() if name != "_id"} for document in documents]


@pytest.fixture
def weather(db):
    """The manual's example."""
    db.create_collection("weather", timeseries={"timeField": "timestamp", "metaField": "metadata"})
    meta = {"sensorId": 5578, "type": "temperature"}
    temperatures = [12, 11, 11, 12, 16, 15, 13, 12, 11, 12, 17, 12]
    db.weather.insert_many(
        [{"metadata": meta, "timestamp": at(2021, 5, 18 + n // 6, n % 6 * 4), "temp": temp} for n, temp in enumerate(temperatures)]
    )
    return db.weather


def test_the_manuals_example(weather):
    found = weather.find_one({"timestamp": at(2021, 5, 18, 0, 0)})
    assert found.pop("_id").__class__ is ObjectId
    assert found == {"timestamp": at(2021, 5, 18), "metadata": {"sensorId": 5578, "type": "temperature"}, "temp": 12}
    days = weather.aggregate([
        {"$project": {"date": {"$dateToParts": {"date": "$timestamp"}}, "temp": 1}},
        {
            "$group": {
                "_id": {"date": {"year": "$date.year", "month": "$date.month", "day": "$date.day"}},
                "avgTmp": {"$avg": "$temp"},
            }
        },
        {"$sort": {"_id": 1}},
    ])
    assert list(days) == [
        {"_id": {"date": {"year": 2021, "month": 5, "day": 18}}, "avgTmp": 77 / 6},
        {"_id": {"date": {"year": 2021, "month": 5, "day": 19}}, "avgTmp": 77 / 6},
    ]


def test_what_is_listed(db):
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=100)
    listed = {entry["name"]: entry for entry in db.list_collections()}
    options = {"timeField": "t", "metaField": "m", "granularity": "seconds", "bucketMaxSpanSeconds": 3600}
    assert listed["x"]["type"] == "timeseries"
    assert listed["x"]["options"] == {"expireAfterSeconds": 100, "timeseries": options}
    buckets = listed["system.buckets.x"]
    assert buckets["type"] == "collection" and buckets["options"]["clusteredIndex"] is True
    assert buckets["options"]["timeseries"] == options and "$jsonSchema" in buckets["options"]["validator"]
    assert list(db.x.list_indexes()) == [{"v": 2, "key": {"m": 1, "t": 1}, "name": "m_1_t_1"}]
    # Once more the same is fine, another one is not.
    db.command("create", "x", timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=100)
    refused(48, db.command, "create", "x", timeseries={"timeField": "t"})
    refused(48, db.command, "create", "x")
    assert [dict(index["key"]) for index in db["system.buckets.x"].list_indexes()] == [{"meta": 1, "control.min.t": 1, "control.max.t": 1}]
    made = db.command("createIndexes", "x", indexes=[{"key": {"v": 1}, "name": "v"}])
    assert (made["numIndexesBefore"], made["numIndexesAfter"]) == (1, 2)
    assert db.command("dropIndexes", "x", index="v")["nIndexesWas"] == 2
    assert db.command("drop", "x") == {"nIndexesWas": 1, "ns": f"{db.name}.x", "ok": 1.0}
    assert db.list_collection_names() == []


def test_options_that_are_refused(db):
    def create(code, timeseries, **options):
        refused(code, db.command, "create", "x", timeseries=timeseries, **options)

    create(14, "")
    create(14, {"timeField": 100})
    create(14, {"timeField": "t", "metaField": 100})
    create(40414, {"granularity": "minutes"})
    create(40415, {"timeField": "t", "invalidOption": {}})
    for timeseries in [
        {"timeField": "sub.t"},
        {"timeField": "t", "metaField": "sub.m"},
        {"timeField": "t", "metaField": "t"},
        {"timeField": "t", "metaField": "_id"},
        {"timeField": "t", "bucketMaxSpanSeconds": 10},
        {"timeField": "t", "bucketRoundingSeconds": 10},
        {"timeField": "t", "bucketMaxSpanSeconds": 10, "bucketRoundingSeconds": 20},
        {"timeField": "t", "granularity": "minutes", "bucketMaxSpanSeconds": 3600},
        {"timeField": "t", "granularity": "seconds", "bucketMaxSpanSeconds": 3600, "bucketRoundingSeconds": 60},
    ]:
        create(72, timeseries)
    create(2, {"timeField": "t", "granularity": "days"})
    create(2, {"timeField": "t", "bucketMaxSpanSeconds": 31536001, "bucketRoundingSeconds": 31536001})
    for options in [
        {"capped": True, "size": 100},
        {"idIndex": {"key": {"_id": 1}, "name": "_id_"}},
        {"validator": {}},
        {"validationLevel": "off"},
        {"viewOn": "c"},
        {"clusteredIndex": True},
        {"expireAfterSeconds": -10},
    ]:
        create(72, {"timeField": "t"}, **options)
    create(14, {"timeField": "t"}, expireAfterSeconds="")
    refused(72, db.command, "create", "x", expireAfterSeconds=10)
    assert db.list_collection_names() == []


def test_buckets_are_as_the_layout_says(db):
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    db.x.insert_many([
        {"t": at(2022, 1, 1, 10, 20, 30), "m": {"b": 2, "a": 1}, "v": 5, "o": {"p": 1, "q": 9}, "l": [1, 8]},
        {"t": at(2022, 1, 1, 10, 20, 10), "m": {"a": 1, "b": 2}, "v": 3.5, "o": {"p": 2, "q": 3}},
        {"t": at(2022, 1, 1, 11, 0, 0), "m": {"a": 1, "b": 2}, "w": "x", "l": [4, 2, 7]},
    ])
    (bucket,) = db["system.buckets.x"].find()
    assert bucket["_id"].generation_time.replace(tzinfo=None) == at(2022, 1, 1, 10, 20)
    assert bucket["meta"] == {"a": 1, "b": 2} and list(bucket["meta"]) == ["a", "b"]
    control = bucket["control"]
    assert control["version"] == 1
    for end, times, v, o, l in [
        ("min", at(2022, 1, 1, 10, 20), 3.5, {"p": 1, "q": 3}, [1, 2, 7]),
        ("max", at(2022, 1, 1, 11), 5, {"p": 2, "q": 9}, [4, 8, 7]),
    ]:
        found = {name: value for name, value in control[end].items() if name != "_id"}
        assert found == {"t": times, "v": v, "o": o, "l": l, "w": "x"}
    assert bucket["data"]["v"] == {"0": 5, "1": 3.5} and bucket["data"]["w"] == {"2": "x"}
    assert bucket["data"]["l"] == {"0": [1, 8], "2": [4, 2, 7]}
    assert [m.get("v") for m in db.x.find().sort("t")] == [3.5, 5, None]
    # One bucket more when the span is over, and for another type at a path.
    db.x.insert_one({"t": at(2022, 1, 1, 11, 20, 0), "m": {"a": 1, "b": 2}, "v": 1})
    db.x.insert_one({"t": at(2022, 1, 1, 11, 20, 1), "m": {"a": 1, "b": 2}, "v": "text"})
    db.x.insert_one({"t": at(2022, 1, 1, 11, 20, 2), "m": {"a": 1, "b": 2}, "v": 2})
    assert db["system.buckets.x"].count_documents({}) == 3
    # The client's stage does what the view's does.
    unpack = {"$_internalUnpackBucket": {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}}
    assert list(db["system.buckets.x"].aggregate([unpack, {"$sort": {"t": 1}}])) == list(db.x.find().sort("t"))


def test_a_batch_writes_each_bucket_once(db):
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    db.x.insert_many([{"t": minutes(n % 30), "m": n % 3, "v": n} for n in range(2400)])
    buckets = list(db["system.buckets.x"].find())
    assert sorted(len(bucket["data"]["t"]) for bucket in buckets) == [800] * 3
    db.x.insert_many([{"t": minutes(n % 30), "m": 0, "v": n} for n in range(600)])
    sizes = [len(bucket["data"]["t"]) for bucket in db["system.buckets.x"].find({"meta": 0})]
    # The earliest of the rest opens the bucket that takes all of it.
    assert sorted(sizes) == [400, 1000]
    assert db.x.count_documents({}) == 3000 and db.x.estimated_document_count() == 3000


def test_a_cursor_sees_each_measurement_once_while_others_insert(db):
    """Measurements stay in their buckets, whatever comes to them between the batches of a cursor."""
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    written = 0

    def insert(count):
        nonlocal written
        db.x.insert_many([{"_id": written + n, "t": minutes((written + n) % 50), "m": n % 7, "v": n} for n in range(count)])
        written += count

    insert(1400)
    for pipeline in [[], [{"$sort": {"m": 1}}], [{"$match": {"m": {"$gte": 0}}}]]:
        there = written
        found = []
        for document in db.x.aggregate([*pipeline, {"$project": {"_id": 1}}], batchSize=100):
            found.append(document["_id"])
            if len(found) % 100 == 0:
                insert(140)
        seen = sorted(n for n in found if n < there)
        assert seen == list(range(there))
        assert len(set(found)) == len(found) and written > there
    sizes = [len(bucket["data"]["t"]) for bucket in db["system.buckets.x"].find()]
    assert sum(sizes) == written and max(sizes) <= 1000


def test_measurements_that_are_refused(db):
    db.create_collection("x", timeseries={"timeField": "t"})
    message = refused(2, db.x.insert_one, {"v": 1})
    assert "'t' must be present and contain a valid BSON UTC datetime value" in message
    refused(2, db.x.insert_one, {"t": "2021"})
    with pytest.raises(BulkWriteError) as failure:
        db.x.insert_many([{"t": START, "v": 1}, {"v": 2}, {"t": START, "v": 3}], ordered=False)
    assert [error["index"] for error in failure.value.details["writeErrors"]] == [1]
    with pytest.raises(BulkWriteError) as failure:
        db.x.insert_many([{"t": START, "v": 4}, {"v": 5}, {"t": START, "v": 6}])
    assert failure.value.details["nInserted"] == 1
    assert sorted(found["v"] for found in db.x.find()) == [1, 3, 4]


VALUES = [0, 1, -3, 2.5, float("nan"), bson.Int64(7), "a", "b", None, True, [1, 5], [], ["x", 3], {"p": 1}, {"p": [2, "y"]}, [{"p": 3}, {"p": "z"}]]


def random_measurement(rng, n):
    time = rng.choice([START, at(1969, 12, 31, 23, 50), at(2039, 6, 1), at(1, 1, 1), at(2107, 1, 1)])
    document = {"_id": n, "t": time + datetime.timedelta(seconds=rng.randrange(9000))}
    if rng.random() < 0.8:
        document["m"] = rng.choice([1, 2, "a", {"x": 1}, {"x": [1, 2]}, None, [1, 2]])
    for field in "fgh":
        if rng.random() < 0.7:
            document[field] = rng.choice(VALUES)
    if rng.random() < 0.7:
        document["s"] = rng.choice([value for value in VALUES if not isinstance(value, (list, dict))])
    return document


def random_predicate(rng, documents):
    sample = rng.choice(documents)
    kind = rng.randrange(8)
    operator = rng.choice(["$lt", "$lte", "$gt", "$gte", "$eq"])
    field = rng.choice(["f", "g", "h", "s", "s", "f.p", "g.0", "h.1.p"])
    if kind < 2:
        return {"t": {operator: sample["t"]}}
    if kind == 2:
        return {"m": sample.get("m")} if rng.random() < 0.5 else {"m.x": 1}
    if kind == 3:
        return {field: {"$in": [rng.choice(VALUES), rng.choice(VALUES)]}}
    if kind == 4:
        return {"$or": [random_predicate(rng, documents), random_predicate(rng, documents)]}
    if kind == 5:
        return {"$nor": [random_predicate(rng, documents)]}
    return {field: {operator: rng.choice(VALUES)}}


def test_what_is_found_is_what_a_plain_collection_has(db):
    """Whatever is asked of buckets first, the same measurements are found, counted, deleted."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    documents = [random_measurement(rng, n) for n in range(600)]
    for first in range(0, 600, 40):
        db.x.insert_many(documents[first : first + 40])
    db.plain.insert_many(documents)
    for field in ("t", "s", "m.x"):
        db.x.create_index(field)
    for _ in range(150):
        query = {"$and": [random_predicate(rng, documents) for _ in range(rng.randrange(1, 4))]}
        expected = sorted(found["_id"] for found in db.plain.find(query, {"_id": 1}))
        assert sorted(found["_id"] for found in db.x.find(query, {"_id": 1})) == expected, query
        assert db.x.count_documents(query) == len(expected), query
    for _ in range(5):
        query = random_predicate(rng, documents)
        assert db.x.delete_many(query).deleted_count == db.plain.delete_many(query).deleted_count, query
        left = sorted(found["_id"] for found in db.plain.find())
        assert sorted(found["_id"] for found in db.x.find()) == left, query
    assert db.command("validate", "x", full=True)["valid"]


def test_predicates_reach_the_buckets(weather):
    meta = {"metadata.sensorId": 5578, "timestamp": {"$gte": at(2021, 5, 18, 4), "$lt": at(2021, 5, 18, 9)}, "temp": {"$gt": 10}}
    plan = weather.find(meta).explain()
    cursor, unpack = plan["stages"][0]["$cursor"], plan["stages"][1]["$_internalUnpackBucket"]
    parsed = str(cursor["queryPlanner"]["parsedQuery"])
    for part in ("meta.sensorId", "control.min.timestamp", "control.max.timestamp", "control.max.temp", "'_id'"):
        assert part in parsed, parsed
    assert "metadata.sensorId" not in str(unpack["eventFilter"])
    assert cursor["executionStats"]["nReturned"] == 2
    assert len(list(weather.find(meta))) == 2
    hinted = weather.find({"metadata": {"sensorId": 5578, "type": "temperature"}}).hint([("metadata", 1), ("timestamp", 1)])
    assert len(list(hinted)) == 12
    assert "IXSCAN" in str(hinted.explain()["stages"][0])
    refused(2, list, weather.find().hint([("temp", 1)]))


def test_joins_and_stages(db):
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    db.x.insert_many([{"t": minutes(n), "m": n % 2, "v": n} for n in range(10)])
    db.names.insert_many([{"_id": 0, "name": "even"}, {"_id": 1, "name": "odd"}])
    into = db.names.aggregate([
        {"$lookup": {"from": "x", "localField": "_id", "foreignField": "m", "as": "all", "pipeline": [{"$match": {"v": {"$gte": 8}}}]}},
        {"$project": {"all.v": 1}},
        {"$sort": {"_id": 1}},
    ])
    assert list(into) == [{"_id": 0, "all": [{"v": 8}]}, {"_id": 1, "all": [{"v": 9}]}]
    of = db.x.aggregate([{"$lookup": {"from": "names", "localField": "m", "foreignField": "_id", "as": "n"}}, {"$match": {"n.name": "odd"}}, {"$count": "n"}])
    assert list(of) == [{"n": 5}]
    both = db.names.aggregate([{"$unionWith": "x"}, {"$group": {"_id": None, "n": {"$sum": 1}}}])
    assert list(both) == [{"_id": None, "n": 12}]
    assert sorted(db.x.distinct("v", {"m": 1})) == [1, 3, 5, 7, 9]
    assert [found["m"] for found in db.x.find().sort("m", -1)] == [1] * 5 + [0] * 5
    stats = db.command("collStats", "x")
    assert stats["timeseries"]["bucketCount"] == 2 and stats["timeseries"]["bucketsNs"] == f"{db.name}.system.buckets.x"
    (of_stage,) = db.x.aggregate([{"$collStats": {"storageStats": {}}}])
    assert of_stage["storageStats"]["timeseries"]["bucketCount"] == 2
    refused(20, db.client.admin.command, "renameCollection", f"{db.name}.x", to=f"{db.name}.y")


def test_out(db):
    db.plain.insert_many([{"_id": n, "t": minutes(n), "m": n % 2, "v": n} for n in range(100)])
    out = {"db": db.name, "coll": "x", "timeseries": {"timeField": "t", "metaField": "m"}}
    for least in (50, 90):
        db.plain.aggregate([{"$match": {"v": {"$gte": least}}}, {"$out": out}])
        assert sorted(found["v"] for found in db.x.find()) == list(range(least, 100))
        assert sorted(db.list_collection_names()) == ["plain", "system.buckets.x", "x"]
        assert [dict(index["key"]) for index in db.x.list_indexes()] == [{"m": 1, "t": 1}]
    db.x.aggregate([{"$match": {"m": 1}}, {"$out": "x"}])
    assert sorted(found["v"] for found in db.x.find()) == [91, 93, 95, 97, 99]
    refused(7406103, db.plain.aggregate, [{"$out": {**out, "timeseries": {"timeField": "t"}}}])
    refused(7268700, db.x.aggregate, [{"$out": {**out, "coll": "plain"}}])
    refused(2, db.plain.aggregate, [{"$project": {"t": 1, "w": "$v"}}, {"$unset": "t"}, {"$out": out}])
    refused(166, db.plain.aggregate, [{"$merge": "x"}])
    assert db.x.count_documents({}) == 5 and len(db.list_collection_names()) == 3


def test_indexes(db):
    db.create_collection("x", timeseries={"timeField": "tm", "metaField": "mm"})
    db.x.insert_one({"tm": START, "mm": {"tag1": "a", "tag2": "b", "location": [1.0, 2.0]}, "v": 3})
    buckets = db["system.buckets.x"]
    low, high = "control.min.tm", "control.max.tm"
    for key, of_buckets in [
        ({"mm": -1}, {"meta": -1}),
        ({"mm.tag1": 1, "mm.tag2": -1}, {"meta.tag1": 1, "meta.tag2": -1}),
        ({"tm": 1}, {low: 1, high: 1}),
        ({"tm": -1}, {high: -1, low: -1}),
        ({"mm.tag1": 1, "tm": -1}, {"meta.tag1": 1, high: -1, low: -1}),
        ({"v": 1}, {"control.min.v": 1, "control.max.v": 1}),
        ({"mm": "hashed"}, {"meta": "hashed"}),
        ({"mm.location": "2dsphere"}, {"meta.location": "2dsphere"}),
    ]:
        name = db.x.create_index(list(key.items()), name="own")
        assert key in [dict(index["key"]) for index in db.x.list_indexes()]
        assert of_buckets in [dict(index["key"]) for index in buckets.list_indexes()]
        if "2dsphere" not in key.values():
            assert len(list(db.x.find().hint(list(key.items())))) == 1
            assert len(list(db.x.find().hint("own"))) == 1
        db.command("collMod", "x", index={"keyPattern": key, "hidden": True})
        refused(2, list, db.x.find().hint(name))
        db.command("dropIndexes", "x", index=key)
    db.x.create_index([("mm", 1)], name="part", partialFilterExpression={"mm.tag1": "a"})
    (part,) = [index for index in db.x.list_indexes() if index["name"] == "part"]
    assert part["partialFilterExpression"] == {"mm.tag1": "a"}
    stats = {entry["name"]: entry["key"] for entry in db.x.aggregate([{"$indexStats": {}}])}
    assert stats == {"mm_1_tm_1": {"mm": 1, "tm": 1}, "part": {"mm": 1}}
    assert {"meta": 1} in [entry["key"] for entry in buckets.aggregate([{"$indexStats": {}}])]
    db.x.drop_indexes()
    assert list(db.x.list_indexes()) == []
    for key, options, code in [
        ([("mm", 1)], {"unique": True}, 72),
        ([("mm", 1)], {"expireAfterSeconds": 3600}, 72),
        ([("mm", "text")], {}, 72),
        ([("v", 1)], {"sparse": True}, 72),
        ([("v", "hashed")], {}, 67),
        ([("v", "2d")], {}, 67),
    ]:
        refused(code, db.x.create_index, key, **options)
    refused(72, db.command, "collMod", "x", validator={})
    refused(20, db.client.admin.command, "renameCollection", f"{db.name}.system.buckets.x", to=f"{db.name}.y")


def test_coll_mod(db):
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    db.x.insert_one({"t": minutes(0), "m": 1})

    def options():
        (entry,) = db.list_collections(filter={"name": "x"})
        return entry["options"]

    db.command("collMod", "x", timeseries={"granularity": "hours"})
    assert options()["timeseries"] == {"timeField": "t", "metaField": "m", "granularity": "hours", "bucketMaxSpanSeconds": 2592000}
    db.x.insert_one({"t": minutes(20000), "m": 1})
    assert db["system.buckets.x"].count_documents({}) == 1
    assert db.x.count_documents({"t": {"$gt": minutes(19999)}}) == 1
    refused(72, db.command, "collMod", "x", timeseries={"granularity": "seconds"})
    refused(72, db.command, "collMod", "x", timeseries={"bucketMaxSpanSeconds": 2592000})
    db.command("collMod", "x", timeseries={"bucketMaxSpanSeconds": 2592001, "bucketRoundingSeconds": 2592001})
    assert "granularity" not in options()["timeseries"]
    db.command("collMod", "x", expireAfterSeconds=60)
    assert options()["expireAfterSeconds"] == 60
    db.command("collMod", "x", expireAfterSeconds="off")
    assert "expireAfterSeconds" not in options()
    db.command("collMod", "x", timeseries={})
    refused(72, db.command, "collMod", "x", viewOn="c", pipeline=[])


def test_deletes_and_updates(db):
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    db.x.insert_many([{"t": minutes(n), "m": {"s": n % 3, "k": 1}, "v": n} for n in range(30)])
    assert db.x.delete_many({"m.s": 2}).deleted_count == 10
    assert db["system.buckets.x"].count_documents({}) == 2
    assert db.x.delete_many({"v": {"$gte": 20}}).deleted_count == 6
    assert db.x.delete_one({"m.s": 0, "v": {"$lt": 9}}).deleted_count == 1
    assert db.x.count_documents({}) == 13
    changed = db.x.update_many({"m.s": 1}, {"$set": {"m.k": 5}, "$unset": {"m.none": 1}})
    assert (changed.matched_count, changed.modified_count) == (7, 7)
    assert db.x.count_documents({"m.k": 5}) == 7
    db.x.update_many({"m.k": 5}, {"$rename": {"m.k": "m.z"}})
    assert db.x.count_documents({"m": {"s": 1, "z": 5}}) == 7
    refused(72, db.x.update_one, {"m.s": 1}, {"$set": {"m.k": 1}})
    refused(72, db.x.update_many, {"m.s": 1}, {"$set": {"m.k": 1}}, upsert=True)
    message = refused(72, db.x.update_many, {"v": 1}, {"$set": {"m.k": 1}})
    assert "querying on a field that is not the metaField 'm'" in message
    refused(72, db.x.update_many, {"m.s": 1}, {"$set": {"v": 1}})
    refused(72, db.x.update_many, {"m.s": 1}, [{"$set": {"m.k": 1}}])
    refused(72, db.x.find_one_and_delete, {"m.s": 1})
    db.create_collection("y", timeseries={"timeField": "t"})
    refused(72, db.y.update_many, {}, {"$set": {"m": 1}})


def test_many_writers_lose_nothing(db):
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    failures = []

    def work(thread):
        try:
            for n in range(60):
                db.x.insert_many([{"t": minutes(n), "m": m, "of": thread, "n": n} for m in range(2)])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    found = sorted((found["of"], found["n"], found["m"]) for found in db.x.find())
    assert found == sorted((thread, n, m) for thread in range(4) for n in range(60) for m in range(2))
    assert db["system.buckets.x"].count_documents({}) <= 8


def test_foreign_buckets_are_checked(db):
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    db.x.insert_many([{"t": minutes(n), "m": 1, "v": n} for n in range(3)])
    (bucket,) = db["system.buckets.x"].find()
    db["system.buckets.x"].delete_many({})
    db["system.buckets.x"].insert_one(bucket)
    assert db.x.count_documents({}) == 3

    def changed(**paths):
        copy = bson.decode(bson.encode(bucket))
        copy["_id"] = ObjectId(bytes(copy["_id"].binary[:4]) + os.urandom(8))
        for path, value in paths.items():
            *way, last = path.split("__")
            place = copy
            for step in way:
                place = place[step]
            place[last] = value
        return copy

    for damaged in [
        changed(control__max__v=1),
        changed(control__min__v=1),
        changed(data__v={"0": 0, "1": "a"}),
        changed(data__v={"7": 1}),
        changed(data__t={"0": minutes(0), "1": minutes(70)}),
        changed(data__m={"0": 1}),
    ]:
        refused(2, db["system.buckets.x"].insert_one, damaged)
    refused(2, db["system.buckets.x"].insert_one, changed(control__version=2))
    assert db.x.count_documents({}) == 3
    # MongoDB has buckets whose `_id` is of another time. Buckets are looked for by it, and so it is put right.
    db["system.buckets.x"].insert_one(changed(_id=ObjectId()))
    assert db.x.count_documents({"t": {"$lt": minutes(1)}}) == 2
    assert {found["_id"].generation_time for found in db["system.buckets.x"].find()} == {bucket["_id"].generation_time}


def test_a_foreign_bucket_from_before_1970_is_taken(db):
    """MongoDB's `_id` has the low 32 bits of the seconds."""
    db.create_collection("x", timeseries={"timeField": "t"})
    time = datetime.datetime(1960, 1, 1)
    db.x.insert_one({"t": time, "v": 1})
    (bucket,) = db["system.buckets.x"].find()
    db["system.buckets.x"].delete_many({})
    bucket["_id"] = ObjectId(bytes.fromhex("ed300880") + bucket["_id"].binary[4:])
    db["system.buckets.x"].insert_one(bucket)
    assert db.x.count_documents({"t": time}) == 1
    assert db.x.count_documents({"t": {"$gt": time}}) == 0
    assert db.x.delete_many({"v": 1}).deleted_count == 1


def test_compressed_buckets_are_taken(db):
    """As MongoDB 8.0 writes them, and as a dump of it has them."""

    def column(value, control, *blocks):
        element = bson.encode({"": value})[4:-1]
        return bson.Binary(element + bytes([control]) + b"".join(block.to_bytes(8, "little") for block in blocks) + b"\0", 7)

    def one(number):
        return number << 4 | 14

    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    begin = START.replace(tzinfo=UTC)
    bucket = {
        "_id": ObjectId(int(begin.timestamp()).to_bytes(4, "big") + os.urandom(8)),
        "control": {"version": 2, "min": {"t": START, "v": 1.5}, "max": {"t": minutes(2), "v": 3.5}, "count": 3},
        "meta": "a",
        # Every minute: a delta, and no delta of it. Tenths: ten more twice.
        "data": {"t": column(START, 0x81, one(60000 << 1), one(0)), "v": column(1.5, 0xA1, one(10 << 1), one(10 << 1))},
    }
    wrong = {**bucket, "control": {**bucket["control"], "max": {"t": minutes(2), "v": 4.5}}}
    refused(2, db["system.buckets.x"].insert_one, wrong)
    db["system.buckets.x"].insert_one(bucket)
    expected = [{"t": minutes(n), "m": "a", "v": 1.5 + n} for n in range(3)]
    assert list(db.x.find().sort("t")) == expected
    db.x.insert_one({"_id": 1, "t": minutes(3), "m": "a", "v": 7})
    assert db.x.count_documents({"v": {"$gt": 2}, "t": {"$lte": minutes(3)}}) == 3
    assert db["system.buckets.x"].count_documents({"control.version": 1}) == 1


def test_a_compressed_bucket_brings_nothing_that_drivers_cannot_read(db):
    """One byte of a binary that is a column: the batch that had the measurement could not be read any more."""

    def column(element):
        return bson.Binary(element + b"\0", 7)

    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    db.x.insert_one({"_id": 1, "t": START, "m": 1})
    time = bson.encode({"": START})[4:-1]
    for element, value in [(b"\x08\0\x07", True), (b"\x03\0\x09\0\0\0\x08x\0\x07\0", {"x": True}), (b"\x02\0\x02\0\0\0\xe9\0", "x")]:
        extent = {"t": START, "a": value}
        bucket = {
            "_id": ObjectId(),
            "control": {"version": 2, "min": extent, "max": extent, "count": 1},
            "meta": 1,
            "data": {"t": column(time), "a": column(element)},
        }
        assert "a compressed column cannot be read" in refused(2, db["system.buckets.x"].insert_one, bucket)
    assert [found["_id"] for found in db.x.find()] == [1]


def test_expired_buckets_go(server, db):
    now = datetime.datetime.now(UTC).replace(tzinfo=None)
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=3600)
    old, young = now - datetime.timedelta(hours=5), now - datetime.timedelta(minutes=5)
    db.x.insert_many([{"t": old, "m": 1}, {"t": young, "m": 1}, {"t": at(1960, 1, 1), "m": 1}, {"t": at(2120, 1, 1), "m": 1}])
    db.create_collection("y", timeseries={"timeField": "t", "metaField": "m"})
    db.y.create_index("t", expireAfterSeconds=3600, partialFilterExpression={"m": 1})
    db.y.insert_many([{"t": old, "m": 1}, {"t": old, "m": 2}, {"t": young, "m": 1}])
    db.client.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
    for _ in range(600):
        if db.x.count_documents({}) == 2 and db.y.count_documents({}) == 2:
            break
        threading.Event().wait(0.1)
    db.client.admin.command("setParameter", 1, ttlMonitorSleepSecs=60)
    assert sorted(found["t"] > at(2100, 1, 1) for found in db.x.find()) == [False, True]
    assert sorted(found["m"] for found in db.y.find()) == [1, 2]


@pytest.mark.parametrize("engine", ENGINES)
def test_kills_and_restarts(engine, new_folder):
    """After a kill all that was acknowledged is there, and inserting goes on in the buckets that are there."""
    server = Server(new_folder(f"killed-{engine}"), engine)
    server.start()
    client = server.client()
    client.t.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    written = 0
    for round in range(3):
        acknowledged = client.t.get_collection("x", write_concern=pymongo.WriteConcern(w=1, j=True))
        for _ in range(5):
            acknowledged.insert_many([{"t": minutes(n % 30), "m": n % 2, "n": written + n} for n in range(20)])
            written += 20
        if engine == "inMemory":
            break
        server.kill()
        server.start()
        client = server.client()
        assert sorted(found["n"] for found in client.t.x.find()) == list(range(written))
    client.t.x.insert_one({"t": minutes(5), "m": 0, "n": written})
    assert client.t["system.buckets.x"].count_documents({}) == 2
    assert client.t.command("validate", "x", full=True)["valid"]
    client.close()
    assert server.stop() == 0, server.tail()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_member_of_a_replica_set(engine, new_folder):
    """Inserts may be sent again, the log has buckets, transactions only read."""
    server = Server(new_folder(f"member-{engine}"), engine, options=["--replSet", "rs0", "--replSetInitiate"])
    server.start()
    client = server.client(replicaSet="rs0", serverSelectionTimeoutMS=20000)
    db = client.t
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    insert = {
        "insert": "x",
        "documents": [{"_id": n, "t": minutes(n), "m": n % 2} for n in range(5)],
        "lsid": {"id": bson.Binary(os.urandom(16), 4)},
        "txnNumber": bson.Int64(1),
    }
    assert send(server, "t", insert)["n"] == 5
    again = send(server, "t", insert)
    assert again["n"] == 5 and sorted(again["retriedStmtIds"]) == [0, 1, 2, 3, 4]
    assert db.x.count_documents({}) == 5
    if engine != "inMemory":
        server.kill()
        server.start()
        client = server.client(replicaSet="rs0", serverSelectionTimeoutMS=20000)
        db = client.t
        assert send(server, "t", insert)["n"] == 5
        assert db.x.count_documents({}) == 5
    with client.start_session() as session:
        session.start_transaction()
        assert db.x.count_documents({}, session=session) == 5
        with pytest.raises(OperationFailure) as failure:
            db.x.insert_one({"t": START, "m": 1}, session=session)
        assert failure.value.code == 263
        session.abort_transaction()
    db.x.insert_many([{"_id": 10 + n, "t": minutes(9), "m": 3} for n in range(5)])
    (insert,) = client.local["oplog.rs"].find({"ns": "t.system.buckets.x", "op": "i", "o.meta": 3})
    assert len(insert["o"]["data"]["t"]) == 5
    db.x.insert_one({"_id": 9, "t": minutes(9), "m": 3})
    (update,) = client.local["oplog.rs"].find({"ns": "t.system.buckets.x", "op": "u"})
    assert len(bson.encode(update)) < 1000
    client.close()
    assert server.stop() == 0, server.tail()


@pytest.mark.parametrize("engine", ENGINES[:1])
def test_privileges(engine, new_folder):
    """The right to a collection is not one to its buckets: those are for backups and restorations."""
    server = Server(new_folder("auth"), engine, options=["--auth"])
    server.start()
    server.client().admin.command("createUser", "root", pwd="p", roles=["root"])
    root = server.client(username="root", password="p")
    root.t.command("createRole", "buckets", privileges=[{"resource": {"db": "t", "system_buckets": "x"}, "actions": ["find"]}], roles=[])
    for name, roles in [("rw", ["readWrite"]), ("b", ["buckets"]), ("backup", [{"role": "backup", "db": "admin"}])]:
        root.t.command("createUser", name, pwd="p", roles=roles)

    def of(name):
        return server.client(username=name, password="p", authSource="t").t

    of("rw").create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    of("rw").x.insert_one({"t": START, "m": 1})
    assert len(list(of("rw").x.find())) == 1
    for name in ("b", "backup"):
        assert len(list(of(name)["system.buckets.x"].find())) == 1
    assert len(list(root.t["system.buckets.x"].find())) == 1
    refused(13, list, of("rw")["system.buckets.x"].find())
    refused(13, list, of("b").x.find())
    shown = root.t.command("rolesInfo", "buckets", showPrivileges=True)["roles"][0]["privileges"]
    assert shown == [{"resource": {"db": "t", "system_buckets": "x"}, "actions": ["find"]}]
    assert server.stop() == 0, server.tail()


def test_dump_and_restore(server, db, new_folder):
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m", "granularity": "minutes"}, expireAfterSeconds=1 << 30)
    db.x.insert_many([{"t": minutes(n), "m": n % 2, "v": n} for n in range(50)])
    db.x.create_index("v")
    before, listed = list(db.x.find().sort("v")), list(db.list_collections())
    folder = new_folder("dump")
    for way in (["--out", folder], [f"--archive={folder}/archive"]):
        made = subprocess.run([program, "dump", "--uri", server.uri(), "--db", db.name, *map(str, way)], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
    names = sorted(os.listdir(os.path.join(folder, db.name)))
    assert names == ["prelude.json", "system.buckets.x.bson", "x.metadata.json"] or names == ["system.buckets.x.bson", "x.metadata.json"]
    for way in ([folder], [f"--archive={folder}/archive"]):
        db.x.drop()
        made = subprocess.run([program, "restore", "--uri", server.uri(), *map(str, way)], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        assert list(db.x.find().sort("v")) == before
        assert [entry["options"] for entry in db.list_collections()] == [entry["options"] for entry in listed]
        assert {"v": 1} in [dict(index["key"]) for index in db.x.list_indexes()]


def test_what_is_deep_or_large_comes_back_out_of_a_dump(server, db, new_folder):
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    deep = 1
    for _ in range(179):
        deep = {"a": deep}
    db.x.insert_many([{"_id": n, "t": minutes(n), "m": 1, "v": deep} for n in range(3)])
    db.x.insert_one({"_id": 3, "t": START, "m": 2, "v": "x" * 5_592_000})
    refused(10334, db.x.insert_one, {"_id": 4, "t": START, "m": 3, "v": "x" * 5_594_900})
    folder = new_folder("dump")
    made = subprocess.run([program, "dump", "--uri", server.uri(), "--db", db.name, "--out", folder], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    db.x.drop()
    made = subprocess.run([program, "restore", "--uri", server.uri(), folder], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert db.x.distinct("_id") == [0, 1, 2, 3]
    assert db.command("validate", "x")["valid"]


@pytest.mark.parametrize("engine", ENGINES[:1])
def test_a_dump_with_the_log(engine, new_folder):
    """What is written to buckets while a dump goes on comes along: a moment of it, nothing in between missing."""
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    first = Server(new_folder("from"), engine, options=["--replSet", "rs0", "--replSetInitiate"])
    first.start()
    client = first.client(replicaSet="rs0", serverSelectionTimeoutMS=20000)
    client.t.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    # What is largest is dumped first: much is written to the buckets behind that.
    client.t.x.insert_many([{"t": minutes(n % 50), "m": n % 3, "pad": os.urandom(60).hex()} for n in range(20000)])
    client.t.pad.insert_many([{"pad": os.urandom(300).hex()} for _ in range(3000)])
    written, stop, failures = [0], threading.Event(), []

    def write():
        try:
            while not stop.is_set():
                client.t.x.insert_many([{"t": minutes(n % 50), "m": n % 3, "n": written[0] + n} for n in range(7)])
                written[0] += 7
                client.t.marks.insert_one({"_id": written[0]})
        except Exception as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    folder = new_folder("oplog-dump")
    before = written[0]
    made = subprocess.run([program, "dump", "--uri", first.uri(), "--oplog", "-j", "1", "--out", str(folder)], capture_output=True, text=True)
    stop.set()
    writer.join()
    assert made.returncode == 0 and not failures, (made.stderr, failures)
    second = Server(new_folder("to"), engine)
    second.start()
    made = subprocess.run([program, "restore", "--uri", second.uri(), "--oplogReplay", str(folder)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    restored = second.client()
    found = sorted(document["n"] for document in restored.t.x.find({"n": {"$exists": True}}))
    assert found == list(range(len(found))) and before <= len(found) <= written[0]
    (last,) = restored.t.marks.find().sort("_id", -1).limit(1)
    assert last["_id"] <= len(found) <= last["_id"] + 7, "one moment of both"
    assert restored.t.command("validate", "x", full=True)["valid"]
    for server in (first, second):
        assert server.stop() == 0, server.tail()


def test_three_members_have_the_same_buckets(new_folder):
    """A new primary goes on in the buckets that the one before filled, and no measurement is lost or doubled."""
    with ReplicaSet(new_folder("set")) as rs:
        rs.initiate()
        db = rs.client(retryWrites=True).t
        db.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
        written = 0
        for round in range(3):
            for n in range(10):
                db.x.insert_many([{"t": minutes(n), "m": n % 2, "n": written + k} for k in range(20)])
                written += 20
            if round == 0:
                rs.step_down()
            elif round == 1:
                primary = rs.primary
                primary.kill()
                db.x.insert_many([{"t": minutes(30), "m": 0, "n": written + k} for k in range(20)])
                written += 20
                primary.start()
        rs.wait_healthy()
        rs.wait_applied()
        rs.check_equal()
        from_secondary = db.get_collection("x", read_preference=Secondary())
        assert sorted(found["n"] for found in from_secondary.find()) == list(range(written))
        assert db["system.buckets.x"].count_documents({}) == 2
        assert db.x.delete_many({"m": 1}).deleted_count == 300
        rs.wait_applied()
        rs.check_equal()
