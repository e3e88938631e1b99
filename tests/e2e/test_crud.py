"""CRUD through pymongo: what applications do all day."""

import datetime

import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, ReturnDocument, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, ClientBulkWriteException, DuplicateKeyError, OperationFailure, WriteError


def test_every_type_comes_back_as_it_went(db):
    document = {
        "_id": 1,
        "double": 1.5,
        "string": "käse \u0000 nul",
        "object": {"b": 1, "a": {"x": []}},
        "array": [1, "two", None, [3]],
        "binary": Binary(b"\x00\xff", 5),
        "oid": ObjectId(),
        "yes": True,
        "date": datetime.datetime(1969, 7, 20, 20, 17, 40, 123000),
        "null": None,
        "regex": Regex("^a.*b$", "im"),
        "code": Code("function() {}"),
        "int": 7,
        "timestamp": Timestamp(5, 6),
        "long": Int64(1 << 40),
        "decimal": Decimal128("1.00"),
        "min": MinKey(),
        "max": MaxKey(),
    }
    db.c.insert_one(document)
    found = db.c.find_one({"_id": 1})
    assert found == document
    assert list(found) == list(document)
    assert isinstance(found["long"], Int64) and str(found["decimal"]) == "1.00"


def test_id_is_made_and_stands_first(db):
    result = db.c.insert_one({"a": 1})
    assert isinstance(result.inserted_id, ObjectId)
    db.c.insert_one({"b": 1, "_id": "mine"})
    assert list(db.c.find_one({"_id": "mine"})) == ["_id", "b"]


def test_many_documents_in_batches(db):
    result = db.c.insert_many([{"_id": i, "x": i % 10, "pad": "p" * 100} for i in range(25_000)])
    assert len(result.inserted_ids) == 25_000
    assert db.c.count_documents({}) == 25_000
    assert db.c.estimated_document_count() == 25_000
    assert db.c.count_documents({"x": 3}) == 2_500
    assert sum(1 for _ in db.c.find({}, batch_size=777)) == 25_000
    assert [d["_id"] for d in db.c.find({}, {"_id": 1}).sort("_id", -1).skip(10).limit(3)] == [24_989, 24_988, 24_987]


def test_queries(db):
    db.c.insert_many(
        [
            {"_id": 1, "a": 1, "tags": ["x", "y"], "sub": {"n": 5}},
            {"_id": 2, "a": 2, "tags": [], "sub": {"n": 6}},
            {"_id": 3, "a": None, "tags": "x"},
            {"_id": 4, "tags": [["x"]], "items": [{"q": 1, "w": 9}, {"q": 5, "w": 2}]},
        ]
    )

    def ids(query):
        return [d["_id"] for d in db.c.find(query).sort("_id", 1)]

    assert ids({"a": {"$gte": 1}}) == [1, 2]
    assert ids({"a": None}) == [3, 4]
    assert ids({"a": {"$exists": False}}) == [4]
    assert ids({"tags": "x"}) == [1, 3]
    assert ids({"tags": ["x"]}) == [4]
    assert ids({"tags": {"$size": 2}}) == [1]
    assert ids({"tags": {"$all": ["x", "y"]}}) == [1]
    assert ids({"sub.n": {"$in": [5, 7]}}) == [1]
    assert ids({"sub.n": {"$nin": [5]}}) == [2, 3, 4]
    assert ids({"$or": [{"a": 1}, {"sub.n": 6}]}) == [1, 2]
    assert ids({"$nor": [{"a": 1}, {"a": 2}]}) == [3, 4]
    assert ids({"items": {"$elemMatch": {"q": {"$gt": 2}, "w": {"$lt": 5}}}}) == [4]
    assert ids({"items": {"$elemMatch": {"q": 1, "w": 2}}}) == []
    assert ids({"a": {"$mod": [2, 0]}}) == [2]
    assert ids({"tags": {"$regex": "^X$", "$options": "i"}}) == [1, 3]
    assert ids({"$expr": {"$gt": ["$sub.n", "$a"]}}) == [1, 2]
    assert ids({"a": {"$not": {"$gt": 1}}}) == [1, 3, 4]
    assert ids({"a": {"$type": "number"}}) == [1, 2]


def test_projection(db):
    db.c.insert_one({"_id": 1, "a": {"b": 1, "c": 2}, "list": [1, 2, 3, 4], "subs": [{"k": 1, "v": 2}, {"k": 3}]})
    assert db.c.find_one({}, {"a.b": 1}) == {"_id": 1, "a": {"b": 1}}
    assert db.c.find_one({}, {"_id": 0, "a": 0, "subs": 0}) == {"list": [1, 2, 3, 4]}
    assert db.c.find_one({}, {"_id": 0, "list": {"$slice": [1, 2]}, "a": 1}) == {"a": {"b": 1, "c": 2}, "list": [2, 3]}
    assert db.c.find_one({}, {"_id": 0, "subs.k": 1}) == {"subs": [{"k": 1}, {"k": 3}]}
    assert db.c.find_one({"subs.k": 3}, {"_id": 0, "subs.$": 1}) == {"subs": [{"k": 3}]}
    with pytest.raises(OperationFailure) as error:
        db.c.find_one({}, {"a": 1, "list": 0})
    assert error.value.code in (31253, 31254)


def test_updates(db):
    db.c.insert_one({"_id": 1, "n": 1, "list": [1, 2, 3], "docs": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]})

    def apply(update, query=None, **options):
        result = db.c.update_one(query or {"_id": 1}, update, **options)
        return result.matched_count, result.modified_count

    assert apply({"$set": {"a.b": 5}, "$inc": {"n": 2}}) == (1, 1)
    assert apply({"$set": {"a.b": 5}}) == (1, 0)
    assert apply({"$unset": {"a": ""}}) == (1, 1)
    assert apply({"$mul": {"n": 2.5}}) == (1, 1)
    assert apply({"$min": {"n": 3}, "$max": {"m": 9}}) == (1, 1)
    assert apply({"$rename": {"m": "renamed"}}) == (1, 1)
    assert apply({"$push": {"list": {"$each": [9, 8], "$sort": 1, "$slice": -4}}}) == (1, 1)
    assert apply({"$addToSet": {"list": {"$each": [9, 10]}}}) == (1, 1)
    assert apply({"$pull": {"list": {"$gte": 9}}}) == (1, 1)
    assert apply({"$pop": {"list": -1}}) == (1, 1)
    assert apply({"$bit": {"bits": {"or": 6}}}) == (1, 1)
    assert apply({"$set": {"docs.$.v": 20}}, {"_id": 1, "docs.k": "b"}) == (1, 1)
    assert apply({"$inc": {"docs.$[].v": 1}}) == (1, 1)
    assert apply({"$set": {"docs.$[d].hit": True}}, array_filters=[{"d.k": "a"}]) == (1, 1)
    assert db.c.find_one() == {
        "_id": 1,
        "n": 3,
        "list": [3, 8],
        "docs": [{"k": "a", "v": 2, "hit": True}, {"k": "b", "v": 21}],
        "renamed": 9,
        "bits": 6,
    }
    assert apply({"$currentDate": {"when": True}}) == (1, 1)
    assert isinstance(db.c.find_one()["when"], datetime.datetime)
    db.c.replace_one({"_id": 1}, {"fresh": True})
    assert db.c.find_one() == {"_id": 1, "fresh": True}


def test_update_errors_change_nothing(db):
    db.c.insert_one({"_id": 1, "a": 1, "s": "x"})
    for update, code in [
        ({"$set": {"_id": 2}}, 66),
        ({"$inc": {"s": 1}}, 14),
        ({"$set": {"a.b": 1}}, 28),
        ({"$set": {"a": 1}, "$inc": {"a": 1}}, 40),
        ({"$push": {"a": 1}}, 2),
        ({"$nonesuch": {"a": 1}}, 9),
    ]:
        with pytest.raises(WriteError) as error:
            db.c.update_one({"_id": 1}, update)
        assert error.value.code == code, update
    assert db.c.find_one() == {"_id": 1, "a": 1, "s": "x"}


def test_upserts(db):
    result = db.c.update_one({"k": 5, "x.y": 1}, {"$set": {"v": 1}, "$setOnInsert": {"new": True}}, upsert=True)
    assert result.upserted_id is not None
    assert db.c.find_one({}, {"_id": 0}) == {"k": 5, "x": {"y": 1}, "v": 1, "new": True}
    result = db.c.update_one({"k": 5}, {"$set": {"v": 2}, "$setOnInsert": {"new": False}}, upsert=True)
    assert result.upserted_id is None and result.modified_count == 1
    assert db.c.find_one()["new"] is True
    assert db.c.replace_one({"_id": "r"}, {"z": 1}, upsert=True).upserted_id == "r"


def test_find_and_modify(db):
    db.c.insert_many([{"_id": i, "rank": 10 - i} for i in range(5)])
    assert db.c.find_one_and_update({}, {"$set": {"hit": 1}}, sort=[("rank", 1)]) == {"_id": 4, "rank": 6}
    after = db.c.find_one_and_update(
        {"_id": 0}, {"$inc": {"rank": 1}}, projection={"_id": 0}, return_document=ReturnDocument.AFTER
    )
    assert after == {"rank": 11}
    assert db.c.find_one_and_delete({"_id": 1}) == {"_id": 1, "rank": 9}
    assert db.c.find_one_and_delete({"_id": 1}) is None
    made = db.c.find_one_and_update({"_id": 9}, {"$set": {"a": 1}}, upsert=True, return_document=ReturnDocument.AFTER)
    assert made == {"_id": 9, "a": 1}


def test_bulk(db):
    result = db.c.bulk_write(
        [
            InsertOne({"_id": 1}),
            InsertOne({"_id": 2}),
            UpdateOne({"_id": 1}, {"$set": {"a": 1}}),
            UpdateMany({}, {"$set": {"all": 1}}),
            ReplaceOne({"_id": 3}, {"b": 1}, upsert=True),
            DeleteOne({"_id": 2}),
            DeleteMany({"_id": {"$gt": 100}}),
        ]
    )
    assert (result.inserted_count, result.matched_count, result.upserted_count, result.deleted_count) == (2, 3, 1, 1)
    with pytest.raises(BulkWriteError) as error:
        db.c.bulk_write([InsertOne({"_id": 10}), InsertOne({"_id": 10}), InsertOne({"_id": 11})], ordered=False)
    details = error.value.details
    assert details["nInserted"] == 2
    [failure] = details["writeErrors"]
    assert (failure["index"], failure["code"], failure["keyPattern"], failure["keyValue"]) == (1, 11000, {"_id": 1}, {"_id": 10})
    with pytest.raises(BulkWriteError) as error:
        db.c.insert_many([{"_id": 20}, {"_id": 20}, {"_id": 21}])
    assert error.value.details["nInserted"] == 1
    assert db.c.find_one({"_id": 21}) is None


def test_client_bulk_write_on_several_collections(db, client):
    result = client.bulk_write(
        [
            InsertOne({"_id": 1}, namespace=f"{db.name}.a"),
            InsertOne({"_id": 1}, namespace=f"{db.name}.b"),
            UpdateOne({"_id": 1}, {"$set": {"x": 1}}, namespace=f"{db.name}.a"),
            UpdateOne({"_id": 5}, {"$set": {"x": 1}}, upsert=True, namespace=f"{db.name}.b"),
            DeleteMany({"_id": 1}, namespace=f"{db.name}.b"),
        ],
        verbose_results=True,
    )
    counts = (result.inserted_count, result.matched_count, result.modified_count, result.upserted_count, result.deleted_count)
    assert counts == (2, 1, 1, 1, 1)
    assert result.update_results[3].upserted_id == 5
    with pytest.raises(ClientBulkWriteException) as error:
        client.bulk_write([InsertOne({"_id": i % 2}, namespace=f"{db.name}.c") for i in range(4)], ordered=False)
    assert error.value.partial_result.inserted_count == 2
    assert sorted((e["idx"], e["code"]) for e in error.value.write_errors) == [(2, 11000), (3, 11000)]


def test_client_bulk_write_to_collections_by_their_uuids(db, client):
    db.create_collection("c")
    stale = db.command("listCollections", filter={"name": "c"})["cursor"]["firstBatch"][0]["info"]["uuid"]
    db.drop_collection("c")
    db.create_collection("c")
    uuid = db.command("listCollections", filter={"name": "c"})["cursor"]["firstBatch"][0]["info"]["uuid"]
    places = [{"ns": f"{db.name}.c", "collectionUUID": stale}, {"ns": f"{db.name}.c", "collectionUUID": uuid}, {"ns": f"{db.name}.d"}]
    writes = [{"insert": place, "document": {"_id": place}} for place in range(3)]
    change = {"updateMods": {"$set": {"x": 1}}, "filter": {"_id": 1}}
    writes += [{"update": 0, **change}, {"update": 1, **change}, {"delete": 0, "filter": {"_id": 1}}]
    reply = client.admin.command({"bulkWrite": 1, "ops": writes, "nsInfo": places, "ordered": False})
    assert [result.get("code", 0) for result in reply["cursor"]["firstBatch"]] == [361, 0, 0, 361, 0, 361]
    refused = reply["cursor"]["firstBatch"][0]
    assert (refused["db"], refused["expectedCollection"], refused["actualCollection"]) == (db.name, "c", None)
    assert refused["collectionUUID"] == stale
    assert (list(db.c.find()), list(db.d.find())) == ([{"_id": 1, "x": 1}], [{"_id": 2}])


def test_duplicate_key_text_is_what_programs_parse(db):
    db.c.insert_one({"_id": 1})
    with pytest.raises(DuplicateKeyError) as error:
        db.c.insert_one({"_id": 1})
    assert error.value.details["errmsg"] == f"E11000 duplicate key error collection: {db.name}.c index: _id_ dup key: {{ _id: 1 }}"


def test_delete(db):
    db.c.insert_many([{"x": i} for i in range(100)])
    assert db.c.delete_one({"x": {"$gte": 50}}).deleted_count == 1
    assert db.c.delete_many({"x": {"$lt": 50}}).deleted_count == 50
    assert db.c.count_documents({}) == 49
    assert db.c.delete_many({}).deleted_count == 49
    assert db.c.estimated_document_count() == 0


def test_distinct(db):
    db.c.insert_many([{"a": 1}, {"a": 1.0}, {"a": [2, 3]}, {"a": "x"}, {}])
    assert sorted(map(str, db.c.distinct("a"))) == ["1", "2", "3", "x"]
    assert db.c.distinct("a", {"a": {"$gt": 2}}) == [2, 3] or db.c.distinct("a", {"a": {"$gt": 2}}) == [3, 2]


def test_unacknowledged_writes_arrive(db):
    from pymongo import WriteConcern

    quiet = db.get_collection("c", write_concern=WriteConcern(w=0))
    for i in range(100):
        quiet.insert_one({"_id": i})
    assert db.command("ping")["ok"] == 1
    for _ in range(200):
        if db.c.count_documents({}) == 100:
            break
    assert db.c.count_documents({}) == 100
