"""Indexes: every sort, their conflicts, their use by the planner."""

import datetime
import threading

import pytest
from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.collation import Collation
from pymongo.errors import DuplicateKeyError, OperationFailure
from plans import stages


def plan_of(cursor):
    return stages(cursor.explain()["queryPlanner"]["winningPlan"])


def test_kinds_are_listed_as_made(db):
    db.c.create_index("a")
    db.c.create_index([("a", ASCENDING), ("b.c", DESCENDING)], unique=True, name="two")
    db.c.create_index("s", sparse=True)
    db.c.create_index("p", partialFilterExpression={"p": {"$gt": 5}})
    db.c.create_index("t", expireAfterSeconds=3600)
    info = db.c.index_information()
    assert info["_id_"] == {"v": 2, "key": [("_id", 1)]}
    assert info["two"]["unique"] is True and info["two"]["key"] == [("a", 1), ("b.c", -1)]
    assert info["s_1"]["sparse"] is True
    assert info["p_1"]["partialFilterExpression"] == {"p": {"$gt": 5}}
    assert info["t_1"]["expireAfterSeconds"] == 3600
    assert db.c.create_index("a") == "a_1"
    with pytest.raises(OperationFailure) as error:
        db.c.create_index("a", name="other")
    assert error.value.code == 85
    with pytest.raises(OperationFailure) as error:
        db.c.create_index("x", name="two")
    assert error.value.code == 86
    db.c.drop_index("two")
    with pytest.raises(OperationFailure) as error:
        db.c.drop_index("two")
    assert error.value.code == 27
    db.c.drop_indexes()
    assert list(db.c.index_information()) == ["_id_"]


def test_planner_uses_them(db):
    db.c.insert_many([{"_id": i, "a": i % 100, "b": i, "tags": [i % 7, i % 11]} for i in range(2000)])
    assert plan_of(db.c.find({"a": 5})) == ["COLLSCAN"]
    db.c.create_indexes([IndexModel([("a", 1), ("b", -1)]), IndexModel("tags"), IndexModel("b")])
    assert "IXSCAN" in plan_of(db.c.find({"a": 5}))
    assert "SORT" not in plan_of(db.c.find({"a": 5}).sort("b", -1))
    assert "SORT" not in plan_of(db.c.find({"a": 5}).sort("b", 1))
    assert plan_of(db.c.find({"a": 5}, {"_id": 0, "a": 1, "b": 1}))[-1] == "IXSCAN"
    assert "FETCH" not in plan_of(db.c.find({"a": 5}, {"_id": 0, "a": 1, "b": 1}))
    assert "IXSCAN" in plan_of(db.c.find({"$or": [{"a": 1}, {"b": 7}]}))
    assert "COLLSCAN" not in plan_of(db.c.find({"$or": [{"a": 1}, {"b": 7}]}))
    assert "COLLSCAN" in plan_of(db.c.find({"a": 5}).hint([("$natural", 1)]))
    assert db.c.count_documents({"tags": 3, "a": {"$lt": 50}}) == len([i for i in range(2000) if 3 in (i % 7, i % 11) and i % 100 < 50])
    assert [d["b"] for d in db.c.find({"a": {"$in": [1, 2]}}).sort([("a", 1), ("b", -1)]).limit(2)] == [1901, 1801]
    with pytest.raises(OperationFailure) as error:
        list(db.c.find({}).hint("nonesuch"))
    assert error.value.code == 2


def test_unique(db):
    db.c.create_index("u", unique=True)
    db.c.insert_one({"_id": 1, "u": 1})
    with pytest.raises(DuplicateKeyError) as error:
        db.c.insert_one({"_id": 2, "u": 1.0})
    assert error.value.details["keyPattern"] == {"u": 1}
    db.c.insert_one({"_id": 3})
    with pytest.raises(DuplicateKeyError):
        db.c.insert_one({"_id": 4})
    db.c.insert_one({"_id": 5, "u": 5})
    with pytest.raises(DuplicateKeyError):
        db.c.update_one({"_id": 5}, {"$set": {"u": 1}})
    assert db.c.find_one({"_id": 5})["u"] == 5
    db.d.insert_many([{"x": 1}, {"x": 1}])
    with pytest.raises(OperationFailure) as error:
        db.d.create_index("x", unique=True)
    assert error.value.code == 11000
    assert list(db.d.index_information()) == ["_id_"]


def test_sparse_and_partial_hold_only_their_documents(db):
    db.c.insert_many([{"_id": 1, "s": 1, "p": 1}, {"_id": 2, "p": 9}, {"_id": 3, "s": None}])
    db.c.create_index("s", sparse=True, name="s")
    db.c.create_index("p", partialFilterExpression={"p": {"$gt": 5}}, name="p")
    keys = db.command("validate", "c")["keysPerIndex"]
    assert keys == {"_id_": 3, "s": 2, "p": 1}
    assert sorted(d["_id"] for d in db.c.find({"s": None})) == [2, 3]
    assert [d["_id"] for d in db.c.find({"p": {"$gt": 6}})] == [2]
    assert [d["_id"] for d in db.c.find({"p": 1})] == [1]


def test_a_partial_index_of_what_exists_serves_what_is_not_null(db):
    """It was not used: not null is not without the field."""
    db.c.create_index("d", partialFilterExpression={"a": {"$exists": True}})
    db.c.create_index("e", partialFilterExpression={"b.c": {"$exists": True}})
    values = [1, None, [], [None], [None, 1], {}, "x", float("nan")]
    others = [{}, {"b": []}, {"b": [{"c": 1}]}, {"b": {"c": 1}}, {"b": {"c": None}}]
    db.c.insert_many([{**document, "d": 1, "e": 1} for document in [*({"a": value} for value in values), *others]])

    def found(filter):
        ids = [document["_id"] for document in db.c.find(filter)]
        assert sorted(ids) == sorted(document["_id"] for document in db.c.find(filter, hint=[("$natural", 1)]))
        return plan_of(db.c.find(filter))[-1], len(ids)

    assert found({"d": 1, "a": {"$ne": None}}) == ("IXSCAN", 5)
    assert found({"d": 1, "a": {"$nin": [None, 1]}}) == ("IXSCAN", 4)
    assert found({"d": 1, "a": {"$not": {"$in": [None, "x"]}}}) == ("IXSCAN", 4)
    assert found({"d": 1, "a": {"$ne": 1}}) == ("COLLSCAN", 11)
    # An empty array on the way to it is not null, and not there.
    assert found({"e": 1, "b.c": {"$ne": None}}) == ("COLLSCAN", 3)


def test_elements_without_the_field_sort_first_whatever_index_there_is(db):
    """A sparse index has no key for such an element, and gave its document a later place."""
    documents = [{"a": [{"x": 1}, {"c": 3}]}, {"a": {"c": 2}}, {"a": [{"c": 1}]}, {}, {"a": {"c": 4}}]
    db.c.insert_many([{"_id": number, **document} for number, document in enumerate(documents)])
    there = {"a.c": {"$exists": True}}

    def check():
        assert [document["_id"] for document in db.c.find(there).sort("a.c")] == [0, 2, 1, 4]
        assert [document["_id"] for document in db.c.find(there).sort("a.c", -1)] == [4, 0, 1, 2]
        assert db.c.find_one(there, sort=[("a.c", 1)])["_id"] == 0

    check()
    db.c.create_index("a.c", sparse=True)
    check()
    # A plain field's arrays have a key for each element.
    db.c.create_index("a", sparse=True)
    assert "SORT" not in plan_of(db.c.find({"a": {"$exists": True}}).sort("a", 1))


def test_a_hint_by_key_has_to_mean_one_index(db):
    """The first index with that key was used, which may be a partial one, or a hidden one, which was an error."""
    db.c.insert_many([{"_id": number, "a": number} for number in range(6)])
    db.c.create_index("a", name="some", partialFilterExpression={"a": {"$gte": 3}})
    key = [("a", 1)]

    def ids():
        return [document["_id"] for document in db.c.find(hint=key)]

    assert ids() == [3, 4, 5]
    db.c.create_index("a", name="all")
    for attempt in (
        ids,
        lambda: db.command("count", "c", hint={"a": 1}),
        lambda: db.command("distinct", "c", key="a", hint={"a": 1}),
        lambda: list(db.c.aggregate([{"$match": {"a": 1}}], hint={"a": 1})),
        lambda: db.c.find_one_and_delete({"a": 1}, hint=key),
        lambda: db.c.update_one({"a": 1}, {"$set": {"b": 1}}, hint=key),
        lambda: db.c.delete_many({"a": 1}, hint=key),
        lambda: list(db.c.find(hint=key).min(key)),
        lambda: db.c.find(hint=key).explain(),
    ):
        with pytest.raises(OperationFailure) as error:
            attempt()
        assert error.value.code == 27 and "some and all" in str(error.value)
    assert db.c.count_documents({"b": {"$exists": True}}) == 0 and db.c.count_documents({}) == 6
    assert [document["_id"] for document in db.c.find(hint="all")] == [0, 1, 2, 3, 4, 5]
    # With an index filter nobody asks what the hint means, but for `min` and `max`.
    db.command("planCacheSetFilter", "c", query={"a": 0}, indexes=["all"])
    assert [document["_id"] for document in db.c.find({"a": 1}, hint=key)] == [1]
    assert [document["_id"] for document in db.c.find({"a": 1}, hint="nonesuch")] == [1]
    assert db.command("distinct", "c", key="a", query={"a": 1}, hint={"a": 1})["values"] == [1]
    with pytest.raises(OperationFailure) as error:
        list(db.c.find({"a": 1}, hint=key).min(key))
    assert error.value.code == 27
    db.command("planCacheClearFilters", "c")
    db.command("collMod", "c", index={"name": "some", "hidden": True})
    assert ids() == [0, 1, 2, 3, 4, 5]


def test_a_hinted_partial_index_answers_with_what_it_has(db):
    db.c.insert_many([{"_id": number, "p": number, "x": number % 3} for number in range(12)])
    db.c.create_index([("x", 1), ("p", 1)], partialFilterExpression={"p": {"$gte": 6}}, name="part")
    db.c.create_index([("$**", 1)], partialFilterExpression={"p": {"$gte": 6}}, name="wild")
    held = [6, 7, 8, 9, 10, 11]
    assert sorted(d["_id"] for d in db.c.find({}, hint="part")) == held
    assert sorted(d["_id"] for d in db.c.find({"_id": {"$gte": 3}}, hint="part")) == held
    assert [d["_id"] for d in db.c.find({"x": 1}, hint="part")] == [7, 10]
    assert [d["_id"] for d in db.c.find({"x": {"$in": [0, 1]}}, hint="part", sort=[("p", -1)])] == [10, 9, 7, 6]
    assert [d["_id"] for d in db.c.find({"$or": [{"x": 1}, {"_id": 8}]}, hint="part", sort=[("_id", 1)])] == [7, 8, 10]
    assert [d for d in db.c.find({"x": 0, "p": {"$lt": 9}}, {"_id": 0, "p": 1}, hint="part")] == [{"p": 6}]
    assert db.command("count", "c", query={"x": 1}, hint="part")["n"] == 2
    assert db.command("count", "c", hint="part")["n"] == 6
    assert db.c.count_documents({"x": 1}, hint="part") == 2
    assert db.command("distinct", "c", key="p", query={"x": 2}, hint="part")["values"] == [8, 11]
    assert [d["n"] for d in db.c.aggregate([{"$match": {"x": 1}}, {"$count": "n"}], hint="part")] == [2]
    assert db.c.update_many({"x": 1}, {"$set": {"seen": 1}}, hint="part").modified_count == 2
    assert db.c.delete_many({"x": 1}, hint="part").deleted_count == 2
    assert db.c.count_documents({"x": 1}) == 2
    # Without the hint it is not used; a wildcard index that lacks some is refused.
    assert sorted(d["_id"] for d in db.c.find({"x": 1})) == [1, 4]
    with pytest.raises(OperationFailure) as error:
        list(db.c.find({"x": 1}, hint="wild"))
    assert error.value.code == 291


def test_a_partial_index_of_a_region_serves_all_collations(db):
    """No strings are compared in its filter."""
    square = [[[0.5, 0.5], [4.5, 0.5], [4.5, 4.5], [0.5, 4.5], [0.5, 0.5]]]
    region = {"p": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": square}}}}
    db.c.create_index("a", partialFilterExpression=region, collation=Collation("en"))
    db.c.insert_many([{"_id": number, "a": number % 3, "p": [number, number]} for number in range(6)])
    assert "IXSCAN" in plan_of(db.c.find({"a": 1, **region}))
    assert sorted(document["_id"] for document in db.c.find({"a": 1, **region})) == [1, 4]
    assert plan_of(db.c.find({"a": 1})) == ["COLLSCAN"]


def test_parallel_arrays_are_refused(db):
    db.c.create_index([("a", 1), ("b", 1)])
    with pytest.raises(OperationFailure) as error:
        db.c.insert_one({"a": [1, 2], "b": [3, 4]})
    assert error.value.code == 171
    assert db.c.count_documents({}) == 0


def test_ttl_deletes_what_has_expired(db):
    now = datetime.datetime.now(datetime.timezone.utc)
    db.c.insert_many([{"_id": 1, "t": now - datetime.timedelta(hours=1)}, {"_id": 2, "t": now + datetime.timedelta(hours=1)}, {"_id": 3, "t": "never"}])
    passes = db.client.admin.command("serverStatus")["metrics"]["ttl"]["passes"]
    db.c.create_index("t", expireAfterSeconds=0)
    while db.client.admin.command("serverStatus")["metrics"]["ttl"]["passes"] < passes + 2:
        pass
    assert sorted(d["_id"] for d in db.c.find()) == [2, 3]


def test_build_while_writes_go_on(db):
    db.c.insert_many([{"_id": i, "a": i} for i in range(20_000)])
    stop = threading.Event()
    written = []

    def write():
        number = 100_000
        while not stop.is_set():
            db.c.insert_one({"_id": number, "a": number})
            db.c.update_one({"_id": number % 20_000}, {"$set": {"a": -number}})
            db.c.delete_one({"_id": number - 5})
            written.append(number)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while len(written) < 20:
            pass
        db.c.create_index("a")
        at_ready = len(written)
        while len(written) < at_ready + 20:
            pass
    finally:
        stop.set()
        writer.join()
    report = db.command("validate", "c", full=True)
    assert report["valid"], report
    assert report["keysPerIndex"]["a_1"] == report["nrecords"] == db.c.count_documents({})


def test_index_names_and_specs_that_are_wrong(db):
    for spec, code in [
        ({"key": {}, "name": "x"}, 67),
        ({"key": {"a": 0}, "name": "x"}, 67),
        ({"key": {"a": 1}, "name": ""}, 67),
        ({"key": {"a": 1}}, 9),
        ({"key": {"a": 1}, "name": "x", "nonesuch": 1}, 197),
        ({"key": {"a": "text", "b": "columnstore"}, "name": "x"}, 67),
    ]:
        with pytest.raises(OperationFailure) as error:
            db.command("createIndexes", "c", indexes=[spec])
        assert error.value.code == code, (spec, error.value)


def test_current_op_tells_how_far_an_index_build_is(db):
    """Whoever waited for hours for an index saw nothing but that it was being built."""
    of_build = {"command.createIndexes": "c", "command.$db": db.name, "progress": {"$exists": True}}
    building = [{"$currentOp": {}}, {"$match": of_build}]
    total = 0
    # A build may be too quick to be seen at work.
    for wanted in (20_000, 40_000, 80_000, 160_000):
        db.c.insert_many({"_id": number, "t": "red blue green white black"} for number in range(total, wanted))
        total = wanted
        builder = threading.Thread(target=lambda: db.c.create_index([("t", "text")]))
        builder.start()
        seen = []
        while builder.is_alive():
            seen += db.client.admin.aggregate(building)
        builder.join()
        assert "t_text" in db.c.index_information()
        done = [operation["progress"]["done"] for operation in seen]
        assert done == sorted(done) and all(0 <= number <= total for number in done)
        for operation in seen:
            assert operation["progress"]["total"] == total
            text = f"{operation['progress']['done']}/{total} {100 * operation['progress']['done'] // total}%"
            assert operation["msg"] == f"Index Build: scanning collection Index Build: scanning collection: {text}"
        if any(0 < number < total for number in done):
            return
        db.c.drop_index("t_text")
    pytest.fail("no build was seen at work")
