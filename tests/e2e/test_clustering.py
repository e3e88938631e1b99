"""Clustering indexes: their rows carry the documents, and give the answers that any other plan gives."""

import random

import pytest
from pymongo import IndexModel, InsertOne, ReplaceOne, UpdateOne
from pymongo.errors import OperationFailure
from server import ENGINES, Server

DEFINITIONS = [
    ([("a", 1), ("b", -1)], {}),
    ([("tags", 1)], {}),
    ([("u", 1)], {"unique": True, "sparse": True}),
    ([("b", 1)], {"partialFilterExpression": {"p": True}}),
]


def make(collection, **more):
    collection.create_indexes([IndexModel(keys, **options, **more) for keys, options in DEFINITIONS])


def some_document(rng, number):
    document = {"_id": number, "a": rng.choice([rng.randrange(20), float(rng.randrange(20)), "text", None]), "b": rng.randrange(50)}
    if rng.random() < 0.5:
        document["tags"] = [rng.randrange(30) for _ in range(rng.randrange(6))]
    if rng.random() < 0.3:
        document["u"] = number
    document["p"] = rng.random() < 0.5
    document["pad"] = "x" * rng.randrange(600)
    return document


def some_writes(rng, numbers, count):
    """The same for every collection that is given them."""
    writes = []
    for _ in range(count):
        one = {"_id": rng.choice(numbers)}
        writes.append(
            rng.choice(
                [
                    UpdateOne(one, {"$inc": {"n": 1}}),
                    UpdateOne(one, {"$set": {"pad": "y" * rng.randrange(900)}}),
                    UpdateOne(one, {"$set": {"a": rng.randrange(20)}}),
                    UpdateOne(one, {"$unset": {"tags": 1}}),
                    UpdateOne(one, {"$push": {"tags": rng.randrange(30)}}),
                    UpdateOne(one, {"$set": {"p": rng.random() < 0.5}}),
                    UpdateOne(one, [{"$set": {"c": {"$concat": ["$pad", "!"]}}}]),
                    ReplaceOne(one, {key: value for key, value in some_document(rng, one["_id"]).items() if key != "_id"}),
                ]
            )
        )
    return writes


QUERIES = [
    {"a": {"$gte": 3, "$lt": 9}},
    {"a": 5, "n": {"$gt": 0}},
    {"a": {"$in": [1, 2, "text", None]}},
    {"tags": {"$gt": 10, "$lt": 20}},
    {"tags": 7, "pad": {"$regex": "^y"}},
    {"u": {"$gt": 100}},
    {"b": {"$lt": 9}, "p": True},
    {"$or": [{"a": 4}, {"tags": 3}]},
]
SORTS = [None, [("b", 1), ("_id", 1)], [("a", 1), ("b", -1), ("_id", 1)]]


def compare(plain, carrying):
    """Both have the same documents, and every query finds the same in both. Answers the plans of the second."""
    assert list(plain.find().sort("_id")) == list(carrying.find().sort("_id"))
    plans = []
    for query in QUERIES:
        for sort in SORTS:
            found = [list(c.find(query, sort=sort)) for c in (plain, carrying)]
            if sort is None:
                found = [sorted(each, key=lambda document: document["_id"]) for each in found]
            assert found[0] == found[1], (query, sort)
            plans.append(carrying.find(query, sort=sort).explain()["queryPlanner"]["winningPlan"])
        assert plain.count_documents(query) == carrying.count_documents(query) == len(found[1])
        assert sorted(plain.distinct("b", query)) == sorted(carrying.distinct("b", query))
        grouped = [{"$match": query}, {"$group": {"_id": "$b", "n": {"$sum": "$n"}, "pads": {"$sum": {"$strLenCP": "$pad"}}}}, {"$sort": {"_id": 1}}]
        assert list(plain.aggregate(grouped)) == list(carrying.aggregate(grouped))
    for index, definition in carrying.index_information().items():
        # Each entry leads to the document that its record is now.
        query = {"p": True} if "partialFilterExpression" in definition else {}
        hinted = list(carrying.find(query).hint(index))
        by_id = {document["_id"]: document for document in carrying.find({"_id": {"$in": [document["_id"] for document in hinted]}})}
        assert all(by_id[document["_id"]] == document for document in hinted)
    return plans


def names(plan):
    found = [plan["stage"]]
    for child in [plan.get("inputStage"), *plan.get("inputStages", [])]:
        if child:
            found += names(child)
    return found


def test_answers_are_those_of_other_indexes(db):
    rng = random.Random(7)
    documents = [some_document(rng, number) for number in range(400)]
    make(db.plain)
    make(db.carrying, clustering=True)
    # Built over documents that are there.
    for collection in (db.plain, db.carrying, db.built):
        collection.insert_many(documents)
    for _ in range(4):
        writes = some_writes(rng, range(400), 300)
        for collection in (db.plain, db.carrying, db.built):
            collection.bulk_write(writes)
        some = {"_id": {"$mod": [17, rng.randrange(3)]}}
        for collection in (db.plain, db.carrying, db.built):
            collection.delete_many(some)
            collection.update_many({"b": {"$lt": 10}}, {"$inc": {"n": 1, "b": 1}})
        make(db.built, clustering=True)
        plans = compare(db.plain, db.carrying) + compare(db.plain, db.built)
    assert any("SORT_MERGE" in names(plan) or "OR" in names(plan) for plan in plans)
    assert not any("FETCH" in names(plan) for plan in plans), plans
    assert any(names(plan) == ["IXSCAN"] and "filter" in plan for plan in plans)


def test_explain_counts_no_documents(db):
    db.c.create_index("a", clustering=True)
    db.c.insert_many([{"_id": number, "a": number % 10, "n": number} for number in range(100)])
    stats = db.c.find({"a": {"$gte": 8}, "n": {"$lt": 50}}).explain()["executionStats"]
    assert (stats["nReturned"], stats["totalKeysExamined"], stats["totalDocsExamined"]) == (10, 20, 0)
    assert stats["executionStages"]["stage"] == "IXSCAN" and stats["executionStages"]["isClustering"] is True
    counted = db.command("explain", {"count": "c", "query": {"a": 3}}, verbosity="executionStats")
    assert "COUNT_SCAN" in str(counted) and counted["executionStats"]["totalDocsExamined"] == 0


def test_definition(db):
    db.c.create_index("a", clustering=True)
    assert db.c.index_information()["a_1"] == {"v": 2, "key": [("a", 1)], "clustering": True}
    assert db.c.create_index("a", clustering=True) == "a_1"
    for options in ({}, {"name": "other"}):
        with pytest.raises(OperationFailure) as error:
            db.c.create_index("a", **options)
        assert error.value.code == 85
    with pytest.raises(OperationFailure) as error:
        db.command("createIndexes", "c", indexes=[{"key": {"_id": 1}, "name": "_id_", "clustering": True}])
    assert error.value.code == 197
    with pytest.raises(OperationFailure) as error:
        db.command("createIndexes", "c", indexes=[{"key": {"b": 1}, "name": "b_1", "clustering": "yes"}])
    assert error.value.code == 14
    db.c.insert_many([{"_id": number, "a": number} for number in range(10)])
    db.command("collMod", "c", index={"name": "a_1", "hidden": True})
    assert db.c.index_information()["a_1"]["clustering"] is True
    db.command("collMod", "c", index={"name": "a_1", "hidden": False})
    db.c.rename("d")
    db.d.update_many({}, {"$inc": {"n": 1}})
    assert [document["n"] for document in db.d.find({"a": {"$gte": 5}})] == [1] * 5
    db.d.aggregate([{"$match": {"a": {"$lt": 3}}}, {"$out": "d"}])
    assert db.d.index_information()["a_1"]["clustering"] is True
    assert list(db.d.find({"a": {"$gte": 0}})) == [{"_id": number, "a": number, "n": 1} for number in range(3)]
    db.d.drop_index("a_1")
    db.d.create_index("a")
    assert "clustering" not in db.d.index_information()["a_1"]


def test_large_documents_and_many_keys(db):
    db.c.create_index("t", clustering=True)
    db.c.insert_one({"_id": 1, "t": "x", "pad": "y" * (15 << 20)})
    db.c.insert_one({"_id": 2, "t": list(range(300)), "pad": "z" * 5000})
    assert len(db.c.find_one({"t": "x"})["pad"]) == 15 << 20
    assert db.c.count_documents({"t": {"$gte": 100}}) == 1
    db.c.update_one({"_id": 2}, {"$set": {"pad": "w"}})
    assert db.c.find_one({"t": 299})["pad"] == "w"
    # More than a single operation may have.
    with pytest.raises(OperationFailure) as error:
        db.c.insert_one({"_id": 3, "t": list(range(1000)), "pad": "z" * (4 << 20)})
    assert error.value.code == 146
    assert db.c.count_documents({}) == 2


def test_expiring_and_capped(db):
    db.create_collection("capped", capped=True, size=1 << 20, max=20)
    db.capped.create_index("a", clustering=True)
    db.capped.insert_many([{"_id": number, "a": number % 7} for number in range(100)])
    assert sorted(document["_id"] for document in db.capped.find({"a": {"$gte": 0}})) == list(range(80, 100))


@pytest.mark.parametrize("engine", ENGINES)
def test_kills_lose_no_documents_of_rows(tmp_path, engine):
    rng = random.Random(11)
    server = Server(tmp_path / "tenond", engine).start()
    db = server.client()["t"]
    make(db.plain)
    make(db.carrying, clustering=True)
    writes = [InsertOne(some_document(rng, number)) for number in range(300)]
    for round in range(4):
        for collection in (db.plain, db.carrying):
            collection.bulk_write(writes)
        if round == 1:
            db.client.admin.command("fsync")
        db.command("insert", f"last{round}", documents=[{"_id": 1}], writeConcern={"w": 1, "j": True})
        server.kill()
        server.start()
        db = server.client()["t"]
        compare(db.plain, db.carrying)
        for name in ("plain", "carrying"):
            report = db.command("validate", name, full=True)
            assert report["valid"], report
        writes = some_writes(rng, range(300), 400)
    assert server.stop() == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_transactions_read_what_they_wrote(tmp_path, engine):
    with Server(tmp_path / "tenond", engine, options=["--replSet", "rs", "--replSetInitiate"]) as server:
        client = server.client(directConnection=True)
        collection = client["t"].c
        collection.create_index("a", clustering=True)
        collection.insert_many([{"_id": number, "a": number, "n": 0} for number in range(10)])
        with client.start_session() as session:
            with session.start_transaction():
                collection.update_many({"a": {"$lt": 5}}, {"$inc": {"n": 1}}, session=session)
                collection.insert_one({"_id": 10, "a": 2, "n": 7}, session=session)
                collection.delete_one({"_id": 0}, session=session)
                inside = [(document["_id"], document["n"]) for document in collection.find({"a": {"$gte": 0}}, session=session)]
                assert sorted(inside) == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 0), (6, 0), (7, 0), (8, 0), (9, 0), (10, 7)]
                outside = [document["n"] for document in collection.find({"a": {"$gte": 0}})]
                assert outside == [0] * 10
                session.abort_transaction()
            with session.start_transaction():
                collection.update_one({"_id": 3}, {"$set": {"n": 9}}, session=session)
        assert [document["n"] for document in collection.find({"a": {"$gte": 2, "$lte": 4}})] == [0, 9, 0]
        assert client["t"].command("validate", "c", full=True)["valid"]
