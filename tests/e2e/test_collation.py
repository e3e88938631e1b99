"""Collations of collections, indexes and operations, as pymongo asks for them; also across restarts and dumps."""

import os
import random
import subprocess

import pytest
from pymongo import ASCENDING, WriteConcern
from pymongo.collation import Collation
from pymongo.errors import DuplicateKeyError, OperationFailure
from server import ENGINES, Server, binary

CASELESS = Collation("en", strength=2)
WORDS = ["apple", "Apple", "APPLE", "äpfel", "Äpfel", "banana", "Banana", "item 9", "item 10", "Item 10", "zebra", "Zoë", "zoe", ""]


def test_strings_are_found_and_sorted_by_language(db):
    words = db.words
    words.insert_many([{"w": word} for word in WORDS])

    def found(query, collation):
        return sorted(document["w"] for document in words.find(query, collation=collation))

    def order(collation):
        return [document["w"] for document in words.find({}, {"w": 1}).sort("w", ASCENDING).collation(collation)]

    numeric = Collation("en", numericOrdering=True)
    german = Collation("de@collation=phonebook")

    def check():
        assert found({"w": "APPLE"}, CASELESS) == ["APPLE", "Apple", "apple"]
        assert found({"w": "APFEL"}, Collation("en", strength=1)) == ["Äpfel", "äpfel"]
        assert found({"w": "ZOE"}, Collation("en", strength=1)) == ["Zoë", "zoe"]
        assert found({"w": {"$gt": "item 9"}}, numeric) == ["Item 10", "Zoë", "item 10", "zebra", "zoe"]
        assert found({"w": {"$regex": "^A"}}, CASELESS) == ["APPLE", "Apple"], "an expression looks at the string as it is"
        assert order(numeric)[-6:-3] == ["item 9", "item 10", "Item 10"]
        assert order(german)[1:4] == ["äpfel", "Äpfel", "apple"]
        assert words.count_documents({"w": {"$in": ["BANANA", "zebra"]}}, collation=CASELESS) == 3
        assert len(words.distinct("w", collation=CASELESS)) == 9

    check()
    words.create_index("w")
    check()
    for collation in (CASELESS, numeric, german):
        words.create_index("w", name=f"w_{collation.document['locale']}_{len(words.index_information())}", collation=collation)
    check()
    plan = words.find({"w": "APPLE"}, collation=CASELESS).explain()["queryPlanner"]["winningPlan"]
    assert plan["inputStage"]["stage"] == "IXSCAN" and plan["inputStage"]["collation"]["strength"] == 2


def test_partial_indexes_have_and_serve_what_their_collation_says(db):
    """No query with a collation used one, and of a list of strings in its filter it had only some."""
    caseless = Collation("en", strength=1)
    words = db.create_collection("words", collation=caseless)
    for name, keys, condition in [
        ("listed", "b", {"w": {"$in": ["B", "a", "C"]}}),
        ("either", "c", {"$or": [{"w": "B"}, {"w": "a"}, {"w": "C"}]}),
        ("above", "d", {"w": {"$gt": "B"}}),
        ("on", "e", {"on": True}),
    ]:
        words.create_index(keys, name=name, partialFilterExpression=condition)
    words.create_index("f", name="plain", partialFilterExpression={"on": True}, collation=Collation("simple"))
    words.create_index("g", name="binary", partialFilterExpression={"w": {"$gt": "B"}}, collation=Collation("simple"))
    same = {"b": 1, "c": 1, "d": 1, "e": "x", "f": 1, "g": 1, "on": True}
    words.insert_many([{"_id": number, "w": word, **same} for number, word in enumerate(["a", "A", "b", "B", "c", "D"])])
    assert db.command("validate", "words")["keysPerIndex"] == {
        "_id_": 6, "listed": 5, "either": 5, "above": 2, "on": 6, "plain": 6, "binary": 4
    }

    def found(filter):
        plan = words.find(filter).explain()["queryPlanner"]["winningPlan"]
        return plan.get("inputStage", plan).get("indexName"), sorted(document["_id"] for document in words.find(filter))

    assert found({"b": 1, "w": {"$in": ["c", "A", "b"]}}) == ("listed", [0, 1, 2, 3, 4])
    assert found({"c": 1, "w": "b"}) == ("either", [2, 3])
    assert found({"d": 1, "w": {"$gt": "b"}}) == ("above", [4, 5])
    assert found({"d": 1, "w": {"$gte": "b"}}) == (None, [2, 3, 4, 5])
    assert found({"e": "X", "on": True}) == ("on", [0, 1, 2, 3, 4, 5])
    assert found({"e": "X"}) == (None, [0, 1, 2, 3, 4, 5])
    # What has no strings is the same in all orders.
    assert found({"f": 1, "on": True}) == ("plain", [0, 1, 2, 3, 4, 5])
    assert found({"g": 1, "w": {"$gt": "b"}}) == (None, [4, 5])


def test_writes_and_pipelines_have_the_collation(db):
    users = db.create_collection("users", collation=CASELESS)
    users.create_index("name", unique=True)
    users.insert_many([{"_id": n, "name": name, "tags": ["A", "b"]} for n, name in enumerate(["Ann", "bob"])])
    with pytest.raises(DuplicateKeyError) as refused:
        users.insert_one({"name": "ANN"})
    assert refused.value.details["collation"]["locale"] == "en"
    assert users.update_one({"name": "BOB"}, {"$pull": {"tags": "B"}, "$addToSet": {"more": "x"}}).modified_count == 1
    assert users.find_one({"_id": 1})["tags"] == ["A"]
    assert users.update_one({"name": "BOB"}, {"$addToSet": {"more": "X"}}).modified_count == 0
    assert users.find_one_and_update({"name": "bob"}, {"$set": {"seen": 1}}, collation=Collation("simple"))["name"] == "bob"
    assert users.find_one({"name": "BOB"}, collation=Collation("simple")) is None
    assert users.replace_one({"name": "Carl"}, {"name": "Carl"}, upsert=True).upserted_id is not None
    assert users.replace_one({"name": "CARL"}, {"name": "carl", "n": 1}, upsert=True).matched_count == 1
    db.orders.insert_many([{"who": "ann"}, {"who": "ANN"}, {"who": "bob"}])
    joined = users.aggregate([{"$lookup": {"from": "orders", "localField": "name", "foreignField": "who", "as": "orders"}}, {"$sort": {"name": 1}}])
    assert [len(document["orders"]) for document in joined] == [2, 1, 0]
    groups = db.orders.aggregate([{"$group": {"_id": "$who", "n": {"$sum": 1}}}, {"$sort": {"n": 1}}], collation=CASELESS)
    assert [group["n"] for group in groups] == [1, 2]
    assert db.orders.delete_many({"who": "Ann"}, collation=CASELESS).deleted_count == 2
    with pytest.raises(OperationFailure) as unknown:
        users.find_one({}, collation=Collation("xx"))
    assert unknown.value.code == 2


def test_runs_of_marks_are_ordered_alike_everywhere(db):
    words = ["x" + "\u0f71\u0f72" * count + end for count in (63, 64, 65, 5000) for end in ("a", "b")]
    db.c.insert_many({"_id": n, "w": word} for n, word in enumerate(words))
    collation = Collation("en")

    def check():
        order = [document["_id"] for document in db.c.find({}).sort("w", ASCENDING).collation(collation)]
        above = [sorted(d["_id"] for d in db.c.find({"w": {"$gte": word}}, collation=collation)) for word in words]
        assert above == [sorted(order[order.index(n):]) for n in range(len(words))]
        return order

    scanned = check()
    db.c.create_index([("w", ASCENDING)], collation=collation)
    assert check() == scanned
    db.c.delete_many({})
    assert db.command("validate", "c", full=True)["valid"]


def test_upper_case_first_needs_case(db):
    for locale in ("da", "mt"):
        collation = Collation(locale, strength=1)
        for call in (
            lambda: list(db.c.find({}, collation=collation)),
            lambda: db.create_collection("d", collation=collation),
        ):
            with pytest.raises(OperationFailure) as failure:
                call()
            assert failure.value.code == 2
        assert list(db.c.find({}, collation=Collation(locale, strength=1, caseFirst="off"))) == []


def test_random_queries_do_not_depend_on_indexes(db):
    plain, indexed = db.plain, db.indexed
    random.seed(7)
    documents = [{"_id": n, "a": random.choice(WORDS), "b": random.choice([*WORDS, 1, 2, None, ["x", "X"]])} for n in range(300)]
    for collection in (plain, indexed):
        collection.insert_many(documents)
    collations = [None, CASELESS, Collation("de", strength=1), Collation("en", numericOrdering=True, caseFirst="upper")]
    for number, collation in enumerate(collations):
        indexed.create_index([("a", 1), ("b", -1)], name=f"i{number}", collation=collation)
    for _ in range(150):
        word = random.choice(WORDS)
        query = random.choice([{"a": word}, {"a": {"$lt": word}}, {"a": {"$gte": word}, "b": random.choice(WORDS)}, {"a": {"$ne": word}}, {"b": word}])
        collation = random.choice(collations)
        keys = [[(document["a"], document["_id"]) for document in collection.find(query, collation=collation).sort([("a", 1), ("b", -1), ("_id", 1)])] for collection in (plain, indexed)]
        assert keys[0] == keys[1], (query, collation)


@pytest.mark.parametrize("engine", ENGINES)
def test_indexes_outlive_restarts_and_dumps(tmp_path, engine):
    server = Server(tmp_path / "a", engine)
    server.start()
    client = server.client()
    users = client.shop.create_collection("users", collation=CASELESS)
    users.create_index("name", unique=True)
    users.create_index("name", name="plain", collation=Collation("simple"))
    users.with_options(write_concern=WriteConcern(j=True)).insert_one({"_id": "x", "name": "Ann"})
    for how in (server.kill, server.stop):
        how()
        server.start()
        users = server.client().shop.users
        assert users.find_one({"name": "ANN"})["_id"] == "x" and users.find_one({"_id": "X"})
        with pytest.raises(DuplicateKeyError):
            users.insert_one({"name": "aNN"})
        assert server.client().shop.command("validate", "users")["valid"]
    tool = os.path.join(os.path.dirname(binary()), "tenon")
    target = Server(tmp_path / "b", engine)
    target.start()
    for words in (["dump", "--port", server.port], ["restore", "--port", target.port]):
        done = subprocess.run([tool, *map(str, words), f"--archive={tmp_path}/dump"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    copied = target.client().shop.users
    assert copied.index_information() == users.index_information() and copied.options() == users.options()
    assert copied.find_one({"name": "ANN"})["_id"] == "x"
