"""Text indexes: `$text` finds the documents that have the words, and orders them by their scores."""

import os
import random
import subprocess

import pymongo
import pytest
from pymongo.errors import OperationFailure
from plans import stages, winning
from server import ENGINES, Server, binary

SCORE = {"$meta": "textScore"}

# The collection of the manual's examples.
ARTICLES = [
    {"_id": 1, "subject": "coffee", "author": "xyz", "views": 50},
    {"_id": 2, "subject": "Coffee Shopping", "author": "efg", "views": 5},
    {"_id": 3, "subject": "Baking a cake", "author": "abc", "views": 90},
    {"_id": 4, "subject": "baking", "author": "xyz", "views": 100},
    {"_id": 5, "subject": "Café Con Leche", "author": "abc", "views": 200},
    {"_id": 6, "subject": "Сырники", "author": "jkl", "views": 80},
    {"_id": 7, "subject": "coffee and cream", "author": "efg", "views": 10},
    {"_id": 8, "subject": "Cafe con Leche", "author": "xyz", "views": 10},
]


def ids(documents):
    return sorted(document["_id"] for document in documents)


def text(search, **options):
    return {"$text": {"$search": search} | {f"${name}": value for name, value in options.items()}}


def refused(call, code):
    with pytest.raises(OperationFailure) as failure:
        call()
    assert failure.value.code == code, failure.value


@pytest.fixture
def articles(db):
    db.articles.insert_many(ARTICLES)
    db.articles.create_index([("subject", pymongo.TEXT)])
    return db.articles


def test_the_examples_of_the_manual(articles):
    def found(search, **options):
        return ids(articles.find(text(search, **options)))

    assert found("coffee") == [1, 2, 7]
    assert found("bake coffee cake") == [1, 2, 3, 4, 7]
    assert found('"coffee shop"') == [2]
    assert found("coffee -shop") == [1, 7]
    assert found("leche", language="es") == [5, 8]
    assert found("сы́рники CAFÉS") == [5, 6, 8]
    assert found("Coffee", caseSensitive=True) == [2]
    assert found('"Café Con"', caseSensitive=True) == [5]
    assert found("Coffee -shop", caseSensitive=True) == [2]
    assert found("CAFÉ", diacriticSensitive=True) == [5]
    assert found("leches -cafés", diacriticSensitive=True) == [8]
    assert found("-coffee") == [] and found("") == [] and found("the and") == []
    assert found("coffee cake -\"cream\" -shopping") == [1, 3]


def test_scores(articles):
    got = {a["_id"]: a["score"] for a in articles.find(text("coffee"), {"score": SCORE})}
    assert got == {1: 1.0, 2: 0.75, 7: 0.75}
    ordered = list(articles.find(text("coffee shopping"), {"score": SCORE}).sort([("score", SCORE)]))
    assert [(a["_id"], a["score"]) for a in ordered] == [(2, 1.5), (1, 1.0), (7, 0.75)]
    assert ordered[0]["subject"] == "Coffee Shopping", "the other fields stay"
    assert list(articles.find(text("cake"), {"subject": 1, "s": SCORE})) == [
        {"_id": 3, "subject": "Baking a cake", "s": 0.75}
    ]
    assert list(articles.find(text("cake"), {"subject": 0, "views": 0, "s": SCORE})) == [
        {"_id": 3, "author": "abc", "s": 0.75}
    ]
    # Sorted by without being shown, with other fields, and with a limit.
    assert [a["_id"] for a in articles.find(text("coffee")).sort([("s", SCORE), ("views", -1)])] == [1, 7, 2]
    assert [a["_id"] for a in articles.find(text("coffee")).sort([("s", SCORE), ("views", 1)])] == [1, 2, 7]
    assert [a["_id"] for a in articles.find(text("coffee bake")).sort([("author", 1), ("s", SCORE)])] == [3, 2, 7, 1, 4]
    assert [a["_id"] for a in articles.find(text("coffee shopping")).sort([("s", SCORE)]).skip(1).limit(1)] == [1]
    assert articles.find_one(text("coffee"), sort=[("s", SCORE)])["_id"] == 1


def test_aggregation(articles):
    pipeline = [{"$match": text("cake coffee")}, {"$sort": {"score": SCORE, "_id": 1}}, {"$project": {"title": "$subject", "s": SCORE}}]
    assert [(a["_id"], a["s"]) for a in articles.aggregate(pipeline)] == [(1, 1.0), (2, 0.75), (3, 0.75), (7, 0.75)]
    groups = articles.aggregate([{"$match": text("cake coffee")}, {"$group": {"_id": SCORE, "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
    assert list(groups) == [{"_id": 0.75, "n": 3}, {"_id": 1.0, "n": 1}]
    total = articles.aggregate([{"$match": text("coffee")}, {"$group": {"_id": None, "views": {"$sum": "$views"}}}])
    assert list(total) == [{"_id": None, "views": 65}]
    above = articles.aggregate([
        {"$match": text("coffee")},
        {"$addFields": {"s": SCORE}},
        {"$match": {"s": {"$gt": 0.8}}},
        {"$unset": ["views", "author"]},
        {"$addFields": {"again": SCORE}},
    ])
    assert list(above) == [{"_id": 1, "subject": "coffee", "s": 1.0, "again": 1.0}]
    late = articles.aggregate([
        {"$match": text("coffee")},
        {"$project": {"words": {"$split": ["$subject", " "]}}},
        {"$unwind": "$words"},
        {"$sort": {"s": SCORE, "_id": 1, "words": 1}},
        {"$project": {"_id": 1, "words": 1, "s": SCORE}},
        {"$limit": 2},
    ])
    assert list(late) == [{"_id": 1, "words": "coffee", "s": 1.0}, {"_id": 2, "words": "Coffee", "s": 0.75}]
    assert list(articles.aggregate([{"$match": text("coffee")}, {"$count": "n"}])) == [{"n": 3}]
    expression = articles.aggregate([{"$match": {"$and": [text("coffee"), {"views": {"$gt": 5}}]}}, {"$match": {"$expr": {"$gt": [SCORE, 0.9]}}}])
    assert ids(expression) == [1]
    joined = articles.database.one.insert_one({"_id": 1, "who": "efg"}) and articles.database.one.aggregate([
        {"$lookup": {"from": "articles", "localField": "who", "foreignField": "author", "as": "found",
                     "pipeline": [{"$match": text("coffee")}, {"$project": {"s": SCORE}}]}},
    ])
    assert sorted((a["_id"], a["s"]) for a in joined.next()["found"]) == [(2, 0.75), (7, 0.75)]


def test_counts_writes_and_distinct(articles):
    assert articles.count_documents(text("coffee")) == 3
    assert articles.database.command("count", "articles", query=text("coffee -shop"))["n"] == 2
    assert sorted(articles.distinct("author", text("coffee"))) == ["efg", "xyz"]
    assert articles.update_many(text("coffee"), {"$set": {"subject": "tea time", "seen": 1}}).modified_count == 3
    assert ids(articles.find(text("coffee"))) == [] and ids(articles.find(text("times"))) == [1, 2, 7]
    assert articles.update_one(text("tea") | {"_id": 2}, {"$set": {"views": 1}}).modified_count == 1
    assert articles.find_one_and_update(text("tea"), {"$inc": {"views": 1000}}, sort=[("views", -1)])["_id"] == 1
    assert articles.find_one_and_delete(text("baking") | {"views": 90})["_id"] == 3
    assert articles.delete_many(text("tea")).deleted_count == 3
    assert ids(articles.find(text("tea bake"))) == [4]
    assert articles.database.command("validate", "articles", full=True)["valid"]


def test_what_listIndexes_shows(db):
    name = db.c.create_index([("a", pymongo.TEXT), ("b.c", pymongo.TEXT)], weights={"b.c": 5}, default_language="french")
    assert name == "a_text_b.c_text"
    (spec,) = [index for index in db.c.list_indexes() if index["name"] == name]
    assert spec.to_dict() == {
        "v": 2,
        "key": {"_fts": "text", "_ftsx": 1},
        "name": name,
        "weights": {"a": 1, "b.c": 5},
        "default_language": "french",
        "language_override": "language",
        "textIndexVersion": 3,
    }
    assert list(spec)[:3] == ["v", "key", "name"]
    # As often as one likes, also as a dump has it.
    db.c.create_index([("a", pymongo.TEXT), ("b.c", pymongo.TEXT)], weights={"b.c": 5}, default_language="french")
    db.command("createIndexes", "c", indexes=[spec.to_dict()])
    assert len(list(db.c.list_indexes())) == 2
    db.c.drop_index(name)
    db.c.create_index([("x", 1), ("a", pymongo.TEXT), ("y", -1)])
    assert db.c.index_information()["x_1_a_text_y_-1"]["key"] == [("x", 1), ("_fts", "text"), ("_ftsx", 1), ("y", -1)]


def test_what_cannot_be_created(db):
    def create(key, **options):
        return lambda: db.command("createIndexes", "c", indexes=[{"key": key, "name": "n"} | options])

    create({"a": "text"}, name="first")()
    refused(create({"b": "text"}), 85)
    refused(create({"x": 1, "b": "text"}), 67)
    db.c.drop_index("first")
    for key, options in [
        ({"a": "text", "x": 1, "b": "text"}, {}),
        ({"a": "text", "b": "2dsphere"}, {}),
        ({"a": "text", "b": "hashed"}, {}),
        ({"a": "text"}, {"weights": {"a": 0}}),
        ({"a": "text"}, {"weights": {"a": 100000}}),
        ({"a": "text"}, {"weights": {"a": "x"}}),
        ({"a": "text"}, {"weights": 7}),
        ({"a": "text"}, {"weights": {"a": 0.5}}),
        ({"a": "text"}, {"weights": "b"}),
        ({"a": "text"}, {"default_language": "klingon"}),
        ({"a": "text"}, {"language_override": ""}),
        ({"a": "text"}, {"language_override": "a.b"}),
        ({"a": "text"}, {"language_override": "$a"}),
        ({"a": "text"}, {"textIndexVersion": 4}),
        ({"a": "text"}, {"expireAfterSeconds": 5}),
        ({"a": "text"}, {"collation": {"locale": "fr"}}),
        ({"a": "text", "b": 2}, {}),
        ({"_fts": "text", "_ftsx": 1}, {}),
    ]:
        refused(create(key, **options), 67)
    create({"a": "text"}, textIndexVersion=2, name="old")()
    (old,) = [index for index in db.c.list_indexes() if index["name"] == "old"]
    assert old["textIndexVersion"] == 3
    db.c.drop_index("old")
    create({"a": "text"}, weights={"a": 2.7, "b": 3.0})()
    assert db.c.index_information()["n"]["weights"] == {"a": 2, "b": 3}


def test_paths_are_no_deeper_than_documents(db):
    """A path of tens of thousands of parts ended the server, or took gigabytes at every start."""
    deepest = ".".join(["a"] * 200)
    for path in (deepest + ".a", ".".join(["a"] * 20_000)):
        refused(lambda: db.command("createIndexes", "c", indexes=[{"key": {path: "text"}, "name": "t"}]), 67)
        by_weights = {"key": {"b": "text"}, "name": "t", "weights": {path: 3}}
        refused(lambda: db.command("createIndexes", "c", indexes=[by_weights]), 67)
    db.command("createIndexes", "c", indexes=[{"key": {deepest: "text", "b": "text"}, "name": "t"}])
    db.c.insert_one({"_id": 1, "b": "coffee"})
    assert ids(db.c.find(text("coffee"))) == [1]


def test_scores_are_of_what_still_matches(db):
    db.c.create_index([("a", "text")])
    db.c.insert_many({"_id": n, "a": "coffee", "keeps": n % 5 == 0} for n in range(20))
    for sort in (None, [("s", SCORE)]):
        db.c.update_many({}, {"$set": {"a": "coffee"}})
        cursor = db.c.find(text("coffee"), {"s": SCORE, "keeps": 1}, batch_size=2, sort=sort)
        given = [next(cursor)["_id"], next(cursor)["_id"]]
        db.c.update_many({"keeps": False}, {"$set": {"a": "tea"}})
        left = ids(cursor)
        assert left == [n for n in range(0, 20, 5) if n not in given]


def test_a_search_of_many_words_is_charged(db):
    db.c.create_index([("a", "text")])
    db.c.insert_one({"_id": 1, "a": "w77 coffee"})
    words = " ".join(f"w{n}" for n in range(10_000))
    assert ids(db.c.find(text(words))) == [1]
    admin = db.client.admin
    before = admin.command("setParameter", 1, operationMemoryBytesMax=4 << 20)["was"]
    try:
        refused(lambda: list(db.c.find(text(words))), 146)
        refused(lambda: list(db.c.find(text(words), {"s": SCORE})), 146)
        assert ids(db.c.find(text("coffee"))) == [1]
    finally:
        admin.command("setParameter", 1, operationMemoryBytesMax=before)


def test_weights_wildcards_and_arrays(db):
    db.c.insert_many([
        {"_id": 1, "title": "rust", "body": {"text": ["iron", "rust never sleeps"]}, "n": 1},
        {"_id": 2, "title": "iron", "notes": [{"note": "gold"}, {"note": ["silver", {"deep": "tin"}]}]},
    ])
    db.c.create_index([("title", pymongo.TEXT), ("body.text", pymongo.TEXT), ("notes.note", pymongo.TEXT)], weights={"title": 10}, default_language="none")
    scores = {a["_id"]: a["s"] for a in db.c.find(text("iron"), {"s": SCORE})}
    assert scores == {1: pytest.approx(1.1), 2: pytest.approx(11.0)}
    scores = {a["_id"]: a["s"] for a in db.c.find(text("rust"), {"s": SCORE})}
    assert scores == {1: pytest.approx(11 + 0.5 + 1 / 6)}
    assert ids(db.c.find(text("silver"))) == [2] and ids(db.c.find(text("tin"))) == []
    db.c.drop_indexes()
    db.c.create_index([("$**", pymongo.TEXT)], default_language="none")
    assert db.c.index_information()["$**_text"]["weights"] == {"$**": 1}
    assert ids(db.c.find(text("tin"))) == [2] and ids(db.c.find(text("iron"))) == [1, 2]


def test_languages_of_documents(db):
    db.quotes.create_index([("original", pymongo.TEXT), ("translation.quote", pymongo.TEXT)])
    db.quotes.insert_many([
        {"_id": 1, "language": "portuguese", "original": "A sorte protege os audazes.", "translation": [
            {"language": "english", "quote": "Fortune favors the bold."},
            {"language": "spanish", "quote": "La suerte protege a los audaces."}]},
        {"_id": 2, "language": "spanish", "original": "Nada hay más surrealista que la realidad.", "translation": [
            {"language": "english", "quote": "There is nothing more surreal than reality."},
            {"language": "french", "quote": "Il n'y a rien de plus surréaliste que la réalité."}]},
        {"_id": 3, "original": "is this a dagger which I see before me.", "translation": {
            "language": "spanish", "quote": "Es este un puñal que veo delante de mí."}},
    ])
    assert ids(db.quotes.find(text("fortunes bolder"))) == [1]
    assert ids(db.quotes.find(text("audaz", language="es"))) == [1]
    assert ids(db.quotes.find(text("réalités", language="fr"))) == [2]
    assert ids(db.quotes.find(text("daggers"))) == [3]
    # The language of a document is part of what its text is.
    db.quotes.update_one({"_id": 3}, {"$set": {"language": "none"}})
    assert ids(db.quotes.find(text("is", language="none"))) == [3], "no stop word any more"
    assert ids(db.quotes.find(text("daggers", language="none"))) == []
    refused(lambda: db.quotes.insert_one({"language": "klingon", "original": "x"}), 17262)
    refused(lambda: db.quotes.insert_one({"language": 5, "original": "x"}), 17261)
    refused(lambda: db.quotes.find_one(text("x", language="klingon")), 2)
    db.quotes.drop_indexes()
    db.quotes.create_index([("original", pymongo.TEXT)], language_override="idioma", default_language="spanish")
    assert ids(db.quotes.find(text("la realidad"))) == [2]
    assert db.command("validate", "quotes", full=True)["valid"]


def test_a_negation_ends_with_white_space(db):
    db.c.create_index([("a", pymongo.TEXT)])
    db.c.insert_many([{"_id": 1, "a": "quux foo zap"}, {"_id": 2, "a": "zap"}, {"_id": 3, "a": "zap bar"}])
    assert ids(db.c.find(text('zap -"foo bar"-"quux foo"'))) == [2, 3]
    assert ids(db.c.find(text('zap -"foo bar"quux'))) == [2, 3]
    assert ids(db.c.find(text('zap -"quux foo" bar'))) == [2, 3]
    assert ids(db.c.find(text('zap"quux foo"'))) == [1], "a quotation mark ends a word"


def test_phrases_are_folded_as_their_text(db):
    db.c.create_index([("a", pymongo.TEXT)])
    db.c.insert_one({"_id": 1, "a": "KAÇ YAŞINDASINIZ", "language": "tr"})
    assert ids(db.c.find(text('"kaç yaşındasınız"', language="tr"))) == [1]
    # Its terms are found by `kaç`, which is the same in both languages.
    assert ids(db.c.find(text('"kaç yaşındasınız"'))) == [1]


def test_prefixes_and_suffixes(db):
    db.c.create_index([("dept", 1), ("about", pymongo.TEXT), ("price", 1)])
    db.c.insert_many([{"_id": n, "dept": "ab"[n % 2], "about": "green lamp" if n % 3 else "lamp", "price": n} for n in range(12)])
    db.c.insert_one({"_id": 50, "about": "a lamp nobody owns"})
    assert ids(db.c.find(text("green") | {"dept": "a"})) == [2, 4, 8, 10]
    found = db.c.find(text("green") | {"dept": "a", "price": {"$gte": 8}})
    assert ids(found.clone()) == [8, 10]
    plan = winning(found)
    assert plan["stage"] == "TEXT_MATCH" and plan["indexPrefix"] == {"dept": "a"}
    assert found.explain()["executionStats"]["totalDocsExamined"] == 2, "the price is in the keys"
    assert ids(db.c.find(text("lamp") | {"dept": None})) == [50]
    refused(lambda: db.c.find_one(text("green")), 291)
    refused(lambda: db.c.find_one(text("green") | {"dept": {"$gt": "a"}}), 291)
    # One value of `$in` is an equality.
    assert ids(db.c.find(text("green") | {"dept": {"$in": ["a"]}})) == [2, 4, 8, 10]
    refused(lambda: db.c.find_one(text("green") | {"dept": {"$in": ["a", "b"]}}), 291)
    refused(lambda: db.c.insert_one({"dept": ["a"], "about": "x"}), 201)


def test_or_needs_indexes_everywhere(articles):
    query = {"$or": [text("coffee"), {"views": {"$gt": 95}}]}
    refused(lambda: articles.find_one(query), 291)
    articles.create_index("views")
    assert ids(articles.find(query)) == [1, 2, 4, 5, 7]
    assert ids(articles.find(query | {"author": "xyz"})) == [1, 4]
    scored = {a["_id"]: a.get("s") for a in articles.find({"$or": [text("coffee"), {"views": 100}]}, {"s": SCORE})}
    assert scored == {1: 1.0, 2: 0.75, 7: 0.75, 4: None}


def test_where_text_cannot_be(articles):
    db = articles.database
    many = {"$and": [text("a"), text("b")]}
    refused(lambda: articles.find_one(many), 2)
    refused(lambda: articles.find_one({"$nor": [text("a")]}), 2)
    refused(lambda: articles.find_one({"a": {"$elemMatch": text("a")}}), 2)
    refused(lambda: list(articles.find(text("a")).hint([("_id", 1)])), 2)
    refused(lambda: list(articles.find(text("a")).sort("$natural", 1)), 2)
    refused(lambda: articles.find_one({"$text": {"$search": 5}}), 14)
    refused(lambda: articles.find_one({"$text": {}}), 4)
    refused(lambda: articles.find_one({"$text": {"$search": "x", "$other": 1}}), 2)
    refused(lambda: list(articles.aggregate([{"$limit": 5}, {"$match": text("a")}])), 17313)
    refused(lambda: list(articles.aggregate([{"$facet": {"a": [{"$match": text("a")}]}}])), 40600)
    refused(lambda: articles.find_one({"views": 1}, {"s": SCORE}), 40218)
    refused(lambda: list(articles.find().sort([("s", SCORE)])), 40218)
    refused(lambda: list(articles.aggregate([{"$project": {"s": SCORE}}])), 40218)
    refused(lambda: articles.find_one(text("a"), {"s": {"$meta": "nonsense"}}), 17308)
    refused(lambda: articles.find_one(text("a"), {"s": {"$meta": "scoreDetails"}}), 238)
    assert "s" not in articles.find_one(text("coffee"), {"s": {"$meta": "searchScore"}})
    refused(lambda: db.command("create", "v", validator=text("a")), 2)
    db.command("create", "whole", viewOn="articles", pipeline=[])
    db.command("create", "some", viewOn="articles", pipeline=[{"$match": {"views": {"$gt": 5}}}])
    assert ids(db.whole.find(text("coffee"))) == [1, 2, 7]
    refused(lambda: db.some.find_one(text("coffee")), 17313)
    articles.drop_index("subject_text")
    with pytest.raises(OperationFailure, match="text index required for \\$text query") as failure:
        articles.find_one(text("a"))
    assert failure.value.code == 27
    assert db.nothing.find_one(text("a")) is None


def test_hidden_and_partial_indexes(articles):
    db = articles.database
    db.command("collMod", "articles", index={"name": "subject_text", "hidden": True})
    refused(lambda: articles.find_one(text("coffee")), 291)
    db.command("collMod", "articles", index={"name": "subject_text", "hidden": False})
    assert ids(articles.find(text("coffee"))) == [1, 2, 7]
    articles.drop_index("subject_text")
    articles.create_index([("subject", pymongo.TEXT)], partialFilterExpression={"views": {"$gte": 10}})
    refused(lambda: articles.find_one(text("coffee")), 291)
    assert ids(articles.find(text("coffee") | {"views": {"$gte": 10}})) == [1, 7]


def test_plans(articles):
    one = winning(articles.find(text("coffee")))
    assert stages(one) == ["TEXT_MATCH", "FETCH", "IXSCAN"]
    assert one["parsedTextQuery"] == {"terms": ["coffe"], "negatedTerms": [], "phrases": [], "negatedPhrases": []}
    assert one["indexName"] == "subject_text" and one["textIndexVersion"] == 3
    two = winning(articles.find(text("coffee cake") | {"views": 5}))
    assert stages(two) == ["TEXT_MATCH", "FETCH", "OR", "IXSCAN", "IXSCAN"]
    scored = winning(articles.find(text('coffee cake -shop "coffee"'), {"s": SCORE}))
    assert stages(scored) == ["PROJECTION_DEFAULT", "TEXT_MATCH", "TEXT_OR", "IXSCAN", "IXSCAN"]
    assert scored["inputStage"]["parsedTextQuery"]["negatedTerms"] == ["shop"]
    assert scored["inputStage"]["parsedTextQuery"]["phrases"] == ["coffee"]
    stats = articles.find(text("coffee")).explain()["executionStats"]
    assert (stats["nReturned"], stats["totalKeysExamined"], stats["totalDocsExamined"]) == (3, 3, 3)


def test_other_metadata(db):
    db.c.insert_many([{"_id": n, "a": 10 - n, "loc": [n, 0]} for n in range(5)])
    db.c.create_index("a")
    db.c.create_index([("loc", "2dsphere")])
    found = list(db.c.find({"a": {"$gt": 8}}, {"_id": 1, "k": {"$meta": "indexKey"}, "r": {"$meta": "recordId"}}))
    assert [(a["_id"], a["k"]) for a in found] == [(1, {"a": 9}), (0, {"a": 10})]
    shown = {a["_id"]: a["$recordId"] for a in db.c.find(show_record_id=True)}
    assert all(a["r"] == shown[a["_id"]] for a in found)
    keys = [a["k"] for a in db.c.find({}, {"k": {"$meta": "sortKey"}}).sort([("a", -1), ("_id", 1)])]
    assert keys == [[10 - n, n] for n in range(5)]
    near = list(db.c.aggregate([
        {"$geoNear": {"near": {"type": "Point", "coordinates": [0, 0]}, "distanceField": "d"}},
        {"$project": {"d": 1, "m": {"$meta": "geoNearDistance"}, "p": {"$meta": "geoNearPoint"}}},
    ]))
    assert len(near) == 5 and all(a["d"] == a["m"] and a["p"] == [a["_id"], 0] for a in near)
    by_distance = db.c.find({"loc": {"$nearSphere": [3, 0]}}, {"m": {"$meta": "geoNearDistance"}})
    assert [a["m"] for a in by_distance][0] == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_transactions_see_their_own_text(tmp_path, engine):
    with Server(tmp_path / "tenond", engine, options=["--replSet", "rs", "--replSetInitiate"]) as server:
        client = server.client(directConnection=True)
        articles = client["t"].articles
        articles.insert_many(ARTICLES)
        articles.create_index([("subject", pymongo.TEXT)])
        articles.create_index([("$**", 1)])
        with client.start_session() as session:
            with session.start_transaction():
                articles.insert_one({"_id": 100, "subject": "a coffee grinder", "views": 1}, session=session)
                articles.update_one({"_id": 1}, {"$set": {"subject": "tea"}}, session=session)
                articles.delete_one({"_id": 7}, session=session)
                inside = list(articles.find(text("coffee"), {"s": SCORE}, session=session).sort([("s", SCORE)]))
                assert [(a["_id"], a["s"]) for a in inside] == [(2, 0.75), (100, 0.75)]
                assert ids(articles.find({"views": {"$lt": 10}}, session=session)) == [2, 100]
                assert ids(articles.find(text("coffee"))) == [1, 2, 7]
                session.abort_transaction()
            assert ids(articles.find(text("coffee tea grinders"))) == [1, 2, 7]
            with session.start_transaction():
                articles.update_many(text("coffee"), {"$set": {"subject": "cocoa"}}, session=session)
        assert ids(articles.find(text("cocoa"))) == [1, 2, 7] and ids(articles.find(text("coffee"))) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_text_is_there_after_a_crash(tmp_path, engine):
    with Server(tmp_path / "tenond", engine) as server:
        durable = pymongo.WriteConcern(j=True)
        articles = server.client()["t"].get_collection("articles", write_concern=durable)
        articles.create_index([("subject", pymongo.TEXT)])
        articles.create_index([("$**", 1)], wildcardProjection={"subject": 0})
        articles.insert_many(ARTICLES)
        articles.update_one({"_id": 4}, {"$set": {"subject": "coffee, again", "views": [1, 2]}})
        server.kill()
        server.start()
        articles = server.client()["t"].articles
        assert ids(articles.find(text("coffee"))) == [1, 2, 4, 7]
        assert ids(articles.find({"views": {"$gte": 2, "$lt": 6}})) == [2, 4]
        assert articles.database.command("validate", "articles", full=True)["valid"]


def test_scores_survive_a_sort_on_disk(db):
    name = "internalQueryMaxBlockingSortMemoryUsageBytes"
    db.c.create_index([("t", pymongo.TEXT)], default_language="none")
    db.c.insert_many([{"_id": n, "t": "word " * (1 + n % 7) + "x" * 500, "n": n % 50} for n in range(1500)])
    wanted = {a["_id"]: a["s"] for a in db.c.find(text("word"), {"s": SCORE})}
    order = sorted(wanted, key=lambda n: (-wanted[n], n % 50, n))
    was = db.client.admin.command("setParameter", 1, **{name: 200_000})["was"]
    try:
        found = db.c.find(text("word"), {"s": SCORE}).sort([("s", SCORE), ("n", 1), ("_id", 1)])
        assert found.clone().explain()["executionStats"]["executionStages"]["inputStage"]["usedDisk"]
        assert [(a["_id"], a["s"]) for a in found] == [(n, wanted[n]) for n in order]
        piped = db.c.aggregate([
            {"$match": text("word")},
            {"$addFields": {"m": {"$add": ["$n", 0]}}},
            {"$sort": {"s": SCORE, "m": 1, "_id": 1}},
            {"$project": {"_id": 1, "s": SCORE}},
        ])
        assert [(a["_id"], a["s"]) for a in piped] == [(n, wanted[n]) for n in order]
    finally:
        db.client.admin.command("setParameter", 1, **{name: was})


def test_dumps_have_text_and_wildcard_indexes(tmp_path):
    tool = os.path.join(os.path.dirname(binary()), "tenon")
    with Server(tmp_path / "from", ENGINES[0]) as server, Server(tmp_path / "to", ENGINES[-1]) as target:
        articles = server.client()["t"].articles
        articles.insert_many(ARTICLES)
        articles.create_index([("author", 1), ("subject", pymongo.TEXT)], weights={"subject": 3}, default_language="none")
        articles.create_index([("$**", -1)], wildcardProjection={"views": 1})
        for words in (["dump", "--port", server.port], ["restore", "--port", target.port]):
            command = [tool, *map(str, words), f"--archive={tmp_path}/dump"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
        copied = target.client()["t"].articles
        assert [dict(i) for i in copied.list_indexes()] == [dict(i) for i in articles.list_indexes()]
        assert ids(copied.find(text("Coffee") | {"author": "efg"})) == [2, 7] and ids(copied.find({"views": 5})) == [2]


WORDS = "red green blue cat dogs running runner tea the a coffee time café über".split()


def test_what_is_found_is_what_is_there(db, seed):
    rng = random.Random(seed)

    def words(most):
        return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(most)))

    def document(n):
        return {"_id": n, "t": words(6), "tags": [words(3) for _ in range(rng.randrange(3))], "n": n % 5}

    before = rng.random() < 0.5
    if before:
        db.c.create_index([("t", pymongo.TEXT), ("tags", pymongo.TEXT)], default_language="none")
    stored = {n: document(n) for n in range(150)}
    db.c.insert_many(stored.values())
    if not before:
        db.c.create_index([("t", pymongo.TEXT), ("tags", pymongo.TEXT)], default_language="none")
    for n in rng.sample(range(150), 60):
        if rng.random() < 0.3:
            del stored[n]
            db.c.delete_one({"_id": n})
        else:
            stored[n] = document(n)
            db.c.replace_one({"_id": n}, stored[n])
    fold = str.maketrans("éü", "eu")
    texts = {n: [(t, t.translate(fold)) for t in [d["t"]] + d["tags"]] for n, d in stored.items()}

    def score(n, terms):
        total = 0
        for given, found in texts[n]:
            tokens = found.split()
            for term in terms:
                count = tokens.count(term)
                if count:
                    part = sum(0.5**i for i in range(count)) * (0.5 * count / len(tokens) + 0.5)
                    total += part * (1.1 if given == term else 1)
        return total

    hits = 0
    for _ in range(60):
        wanted = {w.translate(fold) for w in rng.sample(WORDS, rng.randrange(1, 4))}
        unwanted = {w.translate(fold) for w in rng.sample(WORDS, rng.randrange(2))} - wanted
        phrase = " ".join(rng.sample(WORDS, 2)).translate(fold) if rng.random() < 0.2 else None
        terms = wanted | set(phrase.split() if phrase else [])

        def matches(n):
            tokens = {token for _, found in texts[n] for token in found.split()}
            has_phrase = phrase is None or any(phrase in found for _, found in texts[n])
            return tokens & terms and not tokens & unwanted and has_phrase

        search = " ".join([*wanted, *(f"-{w}" for w in unwanted)] + ([f'"{phrase}"'] if phrase else []))
        query = text(search) | ({"n": 3} if rng.random() < 0.3 else {})
        expected = {n: score(n, terms) for n in stored if matches(n) and ("n" not in query or n % 5 == 3)}
        got = {a["_id"]: a["s"] for a in db.c.find(query, {"s": SCORE})}
        assert got == pytest.approx(expected), search
        assert ids(db.c.find(query)) == sorted(expected), search
        assert db.c.count_documents(query) == len(expected)
        ordered = [a["s"] for a in db.c.find(query, {"s": SCORE}).sort([("s", SCORE)])]
        assert ordered == sorted(ordered, reverse=True) and len(ordered) == len(expected)
        hits += len(expected)
    assert hits > 100
    assert db.command("validate", "c", full=True)["valid"]
