"""Wildcard indexes: any path of the documents is found as with an index of its own."""

import random

import pymongo
import pytest
from bson import Decimal128
from pymongo.errors import OperationFailure
from plans import stages, winning


def scan(cursor):
    plan = winning(cursor)
    while plan["stage"] != "IXSCAN":
        assert "inputStage" in plan, f"no scan of an index: {plan}"
        plan = plan["inputStage"]
    return plan


def is_scan(cursor):
    return "COLLSCAN" in stages(winning(cursor))


def ids(documents):
    return sorted(document["_id"] for document in documents)


def refused(call, code):
    with pytest.raises(OperationFailure) as failure:
        call()
    assert failure.value.code == code, failure.value


@pytest.fixture
def products(db):
    """The collection of the manual's examples, and more."""
    db.products.insert_many([
        {"_id": 1, "product_name": "Spy Coat", "attributes": {"material": ["Tweed", "Wool"], "size": {"length": 72, "units": "inches"}}},
        {"_id": 2, "product_name": "Spy Pen", "attributes": {"colors": ["Blue", "Black"], "secret_feature": {"name": "laser", "power": "1000", "units": "watts"}}},
        {"_id": 3, "product_name": "Book", "attributes": {"size": {"length": 12}}, "price": 5},
        {"_id": 4, "product_name": "Nothing", "attributes": {}, "price": None},
        {"_id": 5, "product_name": "Lists", "attributes": [[1, 2], {"size": {"length": [10, 80]}}, []], "price": 7.5},
        {"_id": 6, "price": {"net": 4, "gross": Decimal128("4.4")}, "a.b": 1},
    ])
    db.products.create_index([("$**", 1)])
    return db.products


def test_paths_are_found(products):
    for query, wanted in [
        ({"product_name": "Spy Pen"}, [2]),
        ({"attributes.size.length": {"$gt": 60}}, [1, 5]),
        ({"attributes.material": "Wool"}, [1]),
        ({"attributes.colors": {"$in": ["Blue", "Red"]}}, [2]),
        ({"attributes.secret_feature.name": {"$exists": True}}, [2]),
        ({"attributes.secret_feature": {"$exists": True}}, [2]),
        ({"attributes": {"$exists": True}}, [1, 2, 3, 4, 5]),
        ({"attributes": {}}, [4]),
        ({"attributes": [1, 2]}, [5]),
        ({"price": {"$gte": 5, "$lt": 8}}, [3, 5]),
        ({"price.gross": {"$lt": 5}}, [6]),
        ({"product_name": {"$regex": "^Spy"}}, [1, 2]),
        ({"price": {"$type": "double"}}, [5]),
        ({"product_name": "Book", "price": 5}, [3]),
        ({"attributes": {"$elemMatch": {"size.length": 80}}}, [5]),
        ({"attributes.size.length": {"$gt": 60, "$lt": 75}}, [1, 5]),
    ]:
        cursor = products.find(query)
        assert ids(cursor.clone()) == wanted, query
        assert not is_scan(cursor), query
        assert ids(products.find(query).hint("$**_1")) == wanted


def test_what_keys_do_not_tell_is_scanned_for(products):
    for query, wanted in [
        ({"price": None}, [1, 2, 4]),
        ({"price": {"$exists": False}}, [1, 2]),
        ({"price": {"$ne": 5}}, [1, 2, 4, 5, 6]),
        ({"price": {"$ne": None}}, [3, 5, 6]),
        ({"attributes": {"material": ["Tweed", "Wool"], "size": {"length": 72, "units": "inches"}}}, [1]),
        ({"price": {"$in": [5, None]}}, [1, 2, 3, 4]),
        ({"attributes": {"$type": "object"}}, [1, 2, 3, 4, 5]),
        ({"_id": {"$gt": 4}, "price": {"$exists": False}}, []),
        ({"attributes.material.0": "Tweed"}, [1]),
        ({"a.b": 1}, []),
    ]:
        assert ids(products.find(query)) == wanted, query
    refused(lambda: products.find_one({"price": None}, hint="$**_1"), 291)
    refused(lambda: products.find_one({}, hint="$**_1"), 291)
    assert is_scan(products.find({"price": None}))


def test_explain(products):
    found = scan(products.find({"attributes.size.length": {"$gte": 60}}))
    assert found["keyPattern"] == {"$_path": 1, "attributes.size.length": 1}
    assert found["isMultiKey"] and found["multiKeyPaths"] == {"$_path": [], "attributes.size.length": ["attributes.size.length"]}
    assert found["indexBounds"]["$_path"] == ['["attributes.size.length", "attributes.size.length"]']
    assert found["indexBounds"]["attributes.size.length"] == ["[60, inf.0]"]
    plain = scan(products.find({"product_name": "Book"}))
    assert not plain["isMultiKey"] and plain["multiKeyPaths"] == {"$_path": [], "product_name": []}
    exists = scan(products.find({"price": {"$exists": True}}))
    assert exists["indexBounds"]["$_path"] == ['["price", "price"]', '["price.", "price/")']
    assert products.find({"price": 5}).explain()["executionStats"]["totalKeysExamined"] == 1


def test_order_and_covering(db):
    db.c.create_index([("$**", -1)])
    db.c.insert_many([{"_id": n, "a": n % 10, "b": {"c": n}, "t": [n]} for n in range(100)])
    sorted_by = db.c.find({"b.c": {"$gte": 90}}).sort("b.c", 1)
    assert ids(sorted_by.clone()) == list(range(90, 100))
    assert [d["_id"] for d in sorted_by.clone()] == list(range(90, 100)) and "SORT" not in stages(winning(sorted_by))
    covered = db.c.find({"b.c": {"$lt": 3}}, {"b.c": 1, "_id": 0}).sort("b.c", -1)
    assert list(covered.clone()) == [{"b": {"c": 2}}, {"b": {"c": 1}}, {"b": {"c": 0}}]
    assert stages(winning(covered)) == ["PROJECTION_COVERED", "IXSCAN"]
    assert covered.explain()["executionStats"]["totalDocsExamined"] == 0
    by_array = db.c.find({"t": {"$gte": 90}}).sort("t", 1)
    assert [d["_id"] for d in by_array.clone()] == list(range(90, 100)) and "SORT" in stages(winning(by_array))
    assert list(db.c.find({"b.c": 5}, {"_id": 0}, return_key=True)) == [{"$_path": "b.c", "b.c": 5}]
    either = db.c.find({"$or": [{"a": 3, "b.c": {"$lt": 20}}, {"t": 50}]})
    assert ids(either.clone()) == [3, 13, 50] and "OR" in stages(winning(either))
    assert db.c.count_documents({"a": 3}) == 10
    assert sorted(db.c.distinct("a", {"b.c": {"$lt": 5}})) == [0, 1, 2, 3, 4]


def test_projections_and_subtrees(db):
    db.c.insert_many([{"_id": n, "a": {"b": n, "c": n, "d": {"e": n}}, "x": n} for n in range(20)])
    db.c.create_index([("a.d.$**", 1)], name="below")
    assert not is_scan(db.c.find({"a.d.e": 5})) and not is_scan(db.c.find({"a.d": 5}))
    assert is_scan(db.c.find({"a.b": 5})) and is_scan(db.c.find({"a": 5})) and is_scan(db.c.find({"x": 5}))
    db.c.create_index([("$**", 1)], name="some", wildcardProjection={"a.c": 1, "_id": 1})
    db.c.create_index([("$**", 1)], name="others", wildcardProjection={"a.c": 0, "x": False})
    (some,) = [i for i in db.c.list_indexes() if i["name"] == "some"]
    assert some["wildcardProjection"] == {"a.c": 1, "_id": 1} and some["key"] == {"$**": 1}
    assert scan(db.c.find({"a.c": 5}))["indexName"] == "some"
    assert scan(db.c.find({"a.b": 5}))["indexName"] == "others"
    assert is_scan(db.c.find({"x": 5}))
    refused(lambda: db.c.find_one({"x": 5}, hint="others"), 291)
    assert ids(db.c.find({"a.c": {"$gte": 18}})) == [18, 19] and ids(db.c.find({"a": {"$exists": True}})) == list(range(20))
    assert db.command("validate", "c", full=True)["valid"]


def test_what_cannot_be_created(db):
    def create(key, **options):
        return lambda: db.command("createIndexes", "c", indexes=[{"key": key, "name": "n"} | options])

    for key, options, code in [
        ({"$**": 1}, {"unique": True}, 67),
        ({"$**": 1}, {"sparse": True}, 67),
        ({"$**": 1}, {"expireAfterSeconds": 5}, 67),
        ({"$**": "hashed"}, {}, 67),
        ({"$**": "2dsphere"}, {}, 67),
        ({"$**": 0}, {}, 67),
        ({"a.$**.b": 1}, {}, 67),
        ({"a.$**": 1}, {"wildcardProjection": {"b": 1}}, 9),
        ({"a": 1}, {"wildcardProjection": {"b": 1}}, 2),
        ({"$**": 1}, {"wildcardProjection": {}}, 9),
        ({"$**": 1}, {"wildcardProjection": {"a": 1, "b": 0}}, 31254),
        ({"a": 1, "$**": 1}, {}, 67),
        ({"a": 1, "$**": 1}, {"wildcardProjection": {"b": 0}}, 7246209),
        ({"a": 1, "$**": 1}, {"wildcardProjection": {"_id": 0}}, 7246210),
        ({"a": 1, "_id": 1, "$**": 1}, {"wildcardProjection": {"a": 0}}, 7246209),
        ({"a": 1, "$**": 1}, {"wildcardProjection": {"a": 1}}, 7246208),
        ({"a": 1, "$**": 1}, {"wildcardProjection": {"a": 0, "b": 1}}, 7246211),
        ({"a": 1, "$**": 1}, {"wildcardProjection": {"b.c": 1, "b": 1}}, 7246200),
        ({"a": 1, "a.$**": 1}, {}, 7246204),
        ({"a.$**": 1, "b.$**": 1}, {}, 7246201),
        ({"a": "hashed", "b.$**": 1}, {}, 67),
    ]:
        refused(create(key, **options), code)
    create({"$**": -1})()


def test_compound_indexes(db):
    db.c.insert_many([{"_id": n, "tenant": n % 4, "attr": {"k": n, "tags": [n, -n]}, "at": n // 2} for n in range(80)])
    db.c.insert_many([{"_id": 100, "tenant": 1}, {"_id": 101, "tenant": 7, "attr": {"k": 3}}, {"_id": 102, "attr": {"k": 3}}])
    db.c.create_index([("tenant", 1), ("attr.$**", 1), ("at", -1)], name="compound")
    (spec,) = [i for i in db.c.list_indexes() if i["name"] == "compound"]
    assert spec["key"] == {"tenant": 1, "attr.$**": 1, "at": -1}
    for query, wanted in [
        ({"tenant": 1, "attr.k": {"$lt": 10}}, [1, 5, 9]),
        ({"tenant": 1, "attr.tags": -5}, [5]),
        ({"tenant": 1, "attr.k": 5, "at": 2}, [5]),
        ({"tenant": 1}, [*range(1, 80, 4), 100]),
        ({"tenant": 7}, [101]),
        ({"tenant": 1, "attr.k": {"$exists": True}}, [*range(1, 80, 4)]),
        ({"tenant": None, "attr.k": 3}, [102]),
        ({"tenant": 1, "attr.k": None}, [100]),
        ({"tenant": 1, "at": 2}, [5]),
    ]:
        cursor = db.c.find(query)
        assert ids(cursor.clone()) == wanted, query
        assert scan(cursor)["indexName"] == "compound", query
    assert is_scan(db.c.find({"attr.k": 5}))
    found = scan(db.c.find({"tenant": 2, "attr.k": 5}))
    assert found["keyPattern"] == {"tenant": 1, "$_path": 1, "attr.k": 1, "at": -1}
    by_key = db.c.find({"tenant": 2}, {"_id": 0}, return_key=True).sort("tenant", 1).limit(1)
    assert list(by_key) == [{"tenant": 2, "$_path": "attr.k", "attr.k": 2, "at": 1}]
    db.c.update_one({"_id": 100}, {"$set": {"attr": {"k": 1000}}})
    db.c.update_one({"_id": 1}, {"$unset": {"attr": 1}})
    assert ids(db.c.find({"tenant": 1, "attr.k": {"$gt": 70}})) == [73, 77, 100]
    assert 1 in ids(db.c.find({"tenant": 1})) and db.command("validate", "c", full=True)["valid"]
    db.c.create_index([("tenant", 1), ("$**", 1)], name="all", wildcardProjection={"tenant": 0, "attr": 0})
    assert scan(db.c.find({"tenant": 3, "at": {"$lt": 4}}))["keyPattern"] in ({"tenant": 1, "$_path": 1, "at": 1}, {"tenant": 1, "$_path": 1, "attr.$**": 1, "at": -1})
    assert ids(db.c.find({"tenant": 3, "at": {"$lt": 4}}).hint("all")) == [3, 7]


def test_no_arrays_beside_the_wildcard(db):
    db.c.insert_many([{"_id": 1, "t": 1, "w": {"x": [1, 2]}}, {"_id": 2, "t": [1, 2]}])
    refused(lambda: db.c.create_index([("t", 1), ("w.$**", 1)]), 7246301)
    assert [i["name"] for i in db.c.list_indexes()] == ["_id_"]
    db.c.update_one({"_id": 2}, {"$set": {"t": 2}})
    db.c.create_index([("t", 1), ("w.$**", 1), ("u.v", -1)])
    for call in (
        lambda: db.c.insert_one({"_id": 3, "t": []}),
        lambda: db.c.insert_one({"_id": 3, "u": [{"v": 1}]}),
        lambda: db.c.update_one({"_id": 1}, {"$push": {"u.v": 5}}),
        lambda: db.c.find_one_and_update({"_id": 1}, {"$set": {"t": [1]}}),
    ):
        refused(call, 7246301)
    db.c.insert_one({"_id": 3, "t": 1, "u": {"v": 4}, "w": [{"x": 1}, {"x": 7}]})
    assert ids(db.c.find({"t": 1, "w.x": 1}).hint("t_1_w.$**_1_u.v_-1")) == [1, 3]
    # Whatever is in no array keeps its order.
    assert "SORT" not in stages(winning(db.c.find({"t": {"$gte": 1}, "w.x": 7}).sort("t", 1).hint("t_1_w.$**_1_u.v_-1")))
    assert db.command("validate", "c", full=True)["valid"]


def test_positions(db):
    db.c.create_index([("$**", 1)])
    db.c.insert_many([
        {"_id": 1, "a": [5, {"b": 1}]}, {"_id": 2, "a": {"0": 5}}, {"_id": 3, "a": [[5], 6]}, {"_id": 4, "a": 5},
        {"_id": 5, "a": [{"0": {"b": 1}}, {"b": 1}]}, {"_id": 6, "a": [[{"b": 1}]]}, {"_id": 7, "a": {"1": [[{"b": 1}]]}},
    ])
    for query in ({"a.0": 5}, {"a.1.b": 1}, {"a.0.b": 1}, {"a.0": {"$exists": True}}, {"a.0": [5]}, {"a.0.b": {"$gte": 0}}):
        assert ids(db.c.find(query)) == ids(db.c.find(query).hint([("$natural", 1)])), query
    assert not is_scan(db.c.find({"a.0": 5})) and ids(db.c.find({"a.0": 5})) == [1, 2]


def test_partial_and_hidden(db):
    db.c.insert_many([{"_id": n, "a": n, "b": n % 3} for n in range(30)])
    db.c.create_index([("$**", 1)], partialFilterExpression={"b": 1}, name="partial")
    assert is_scan(db.c.find({"a": 4})) and not is_scan(db.c.find({"a": 4, "b": 1}))
    assert ids(db.c.find({"a": {"$lt": 8}, "b": 1})) == [1, 4, 7]
    db.c.drop_indexes()
    db.c.create_index([("$**", 1)], hidden=True)
    assert is_scan(db.c.find({"a": 4}))
    db.command("collMod", "c", index={"keyPattern": {"$**": 1}, "hidden": False})
    assert not is_scan(db.c.find({"a": 4}))
    db.c.drop_index([("$**", 1)])
    assert is_scan(db.c.find({"a": 4}))


PATHS = ["a", "b", "a.x", "a.y", "b.x.y", "c", "c.0", "c.x"]


def test_it_finds_what_a_scan_finds(db, seed):
    rng = random.Random(seed)

    def value(depth=0):
        kind = rng.randrange(9)
        if kind == 0 and depth < 3:
            return [value(depth + 1) for _ in range(rng.randrange(4))]
        if kind in (1, 2) and depth < 3:
            return {name: value(depth + 1) for name in "xy0" if rng.random() < 0.5}
        return rng.choice([1, 2, 2.5, "s", "t", None, True, 7])

    def document(n):
        return {"_id": n} | {name: value() for name in "abc" if rng.random() < 0.8}

    db.c.create_index([("$**", rng.choice([1, -1]))])
    stored = {n: document(n) for n in range(200)}
    db.c.insert_many(stored.values())
    for n in rng.sample(range(200), 80):
        db.c.replace_one({"_id": n}, document(n))
    db.c.delete_many({"a": 7})
    used = 0
    for _ in range(150):
        operand = rng.choice([
            {"$eq": rng.choice([1, 2.5, "s", None, [1], {}, []])}, {"$gt": 1}, {"$lte": "s"}, {"$exists": rng.random() < 0.7},
            {"$in": [1, "t", 7]}, {"$ne": 2}, {"$gte": 1, "$lt": 3}, {"$type": "number"}, {"$elemMatch": {"$gt": 1}},
        ])
        query = {rng.choice(PATHS): operand}
        if rng.random() < 0.3:
            query[rng.choice(PATHS)] = {"$gte": 1}
        cursor = db.c.find(query)
        used += not is_scan(cursor)
        assert ids(cursor.clone()) == ids(db.c.find(query).hint([("$natural", 1)])), query
    assert used > 40
    assert db.command("validate", "c", full=True)["valid"]
