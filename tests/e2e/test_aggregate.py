"""Aggregation through pymongo."""

import threading

import pytest
from bson import DBRef
from pymongo.errors import OperationFailure
from server import ENGINES, Server


@pytest.fixture
def sales(db):
    db.sales.insert_many(
        [
            {"_id": 1, "item": "a", "price": 10, "qty": 2, "tags": ["x", "y"]},
            {"_id": 2, "item": "b", "price": 20, "qty": 1, "tags": []},
            {"_id": 3, "item": "a", "price": 5, "qty": 10},
            {"_id": 4, "item": "c", "price": 7.5, "qty": 4, "tags": ["x"]},
        ]
    )
    db.items.insert_many([{"_id": "a", "name": "Apple"}, {"_id": "b", "name": "Bread"}])
    return db.sales


def test_group(sales):
    result = list(
        sales.aggregate(
            [
                {"$match": {"qty": {"$gt": 1}}},
                {"$group": {"_id": "$item", "total": {"$sum": {"$multiply": ["$price", "$qty"]}}, "n": {"$sum": 1}, "most": {"$max": "$qty"}}},
                {"$sort": {"_id": 1}},
            ]
        )
    )
    assert result == [{"_id": "a", "total": 70, "n": 2, "most": 10}, {"_id": "c", "total": 30.0, "n": 1, "most": 4}]


def test_stages(sales):
    assert list(sales.aggregate([{"$count": "n"}])) == [{"n": 4}]
    assert [d["tags"] for d in sales.aggregate([{"$unwind": "$tags"}, {"$sort": {"_id": 1, "tags": 1}}])] == ["x", "y", "x"]
    kept = list(sales.aggregate([{"$unwind": {"path": "$tags", "preserveNullAndEmptyArrays": True, "includeArrayIndex": "i"}}]))
    assert len(kept) == 5
    [first] = sales.aggregate([{"$sort": {"price": -1}}, {"$skip": 1}, {"$limit": 1}, {"$project": {"_id": 0, "p": "$price", "double": {"$multiply": ["$price", 2]}}}])
    assert first == {"p": 10, "double": 20}
    [shaped] = sales.aggregate([{"$match": {"_id": 2}}, {"$addFields": {"total": {"$add": ["$price", "$qty"]}}}, {"$unset": ["tags", "price"]}])
    assert shaped == {"_id": 2, "item": "b", "qty": 1, "total": 21}
    assert len(list(sales.aggregate([{"$sample": {"size": 2}}]))) == 2


def test_paths_go_through_references(db):
    """Object mappers join along the `$id` of DBRefs, which begins with a dollar as no other name of a path may."""
    db.windows.insert_many([{"_id": n, "n": n * 10, "house": DBRef("houses", n % 2)} for n in range(4)])
    db.houses.insert_many([{"_id": 0, "door": DBRef("doors", 7, "far"), "windows": [DBRef("windows", 3), DBRef("windows", 1)]}, {"_id": 1, "door": DBRef("doors", 5)}])
    join = {"$lookup": {"from": "windows", "localField": "windows.$id", "foreignField": "_id", "as": "w"}}
    assert [[w["n"] for w in d["w"]] for d in db.houses.aggregate([join, {"$sort": {"_id": 1}}])] == [[10, 30], []]
    joined = [{"$unwind": "$windows"}, {"$lookup": {"from": "windows", "let": {"i": "$windows.$id"}, "pipeline": [{"$match": {"$expr": {"$eq": ["$_id", "$$i"]}}}], "as": "w"}}]
    assert [d["w"][0]["n"] for d in db.houses.aggregate(joined)] == [30, 10]
    back = {"$lookup": {"from": "windows", "localField": "_id", "foreignField": "house.$id", "as": "w"}}
    for _ in range(2):
        assert {d["_id"]: [w["_id"] for w in d["w"]] for d in db.houses.aggregate([back])} == {0: [0, 2], 1: [1, 3]}
        assert [d["_id"] for d in db.houses.find().sort("door.$id", 1)] == [1, 0]
        assert db.windows.distinct("house.$id") == [0, 1]
        assert [d["_id"] for d in db.windows.find({"house.$id": 1})] == [1, 3]
        db.windows.create_index("house.$id")
        db.houses.create_index("door.$id")
    groups = [{"$group": {"_id": "$house.$id", "n": {"$sum": "$n"}}}, {"$sort": {"_id": 1}}]
    assert list(db.windows.aggregate(groups)) == [{"_id": 0, "n": 20}, {"_id": 1, "n": 40}]
    parts = {"$project": {"_id": 0, "r": "$door.$ref", "d": "$door.$db"}}
    assert list(db.houses.aggregate([{"$match": {"_id": 0}}, parts])) == [{"r": "doors", "d": "far"}]
    assert db.houses.find_one({"_id": 1}, {"door.$id": 1}) == {"_id": 1, "door": {"$id": 5}}
    for pipeline in [[{"$project": {"r": "$door.$other"}}], [{"$sort": {"door.$other": 1}}], [{"$project": {"door.$other": 1}}]]:
        with pytest.raises(OperationFailure) as refused:
            db.houses.aggregate(pipeline)
        assert refused.value.code == 16410


def explained(collection, pipeline):
    reply = collection.database.command("explain", {"aggregate": collection.name, "pipeline": pipeline, "cursor": {}}, verbosity="executionStats")
    return next(stage for stage in reply["stages"] if "$lookup" in stage)


def test_joins(db):
    db.orders.insert_many([{"_id": n, "k": n % 50} for n in range(400)] + [{"_id": 400, "k": [1, 2]}, {"_id": 401}, {"_id": 402, "k": "1"}])
    db.goods.insert_many([{"_id": n, "k": n / 2, "n": n} for n in range(100)] + [{"_id": "none"}, {"_id": "list", "k": [7, 8]}])
    lookup = [{"$lookup": {"from": "goods", "localField": "k", "foreignField": "k", "as": "g"}}]
    wanted = {n: [2 * (n % 50)] + (["list"] if n % 50 in (7, 8) else []) for n in range(400)} | {400: [2, 4], 401: ["none"], 402: []}

    def found():
        return {d["_id"]: [g["_id"] for g in d["g"]] for d in db.orders.aggregate(lookup, batchSize=30)}

    assert found() == wanted
    told = explained(db.orders, lookup)
    assert told["strategy"] == "HashJoin" and "indexesUsed" not in told
    # The first document and the one without a value are asked for by a filter; the table is made of one scan.
    assert told["totalDocsExamined"] == 3 * 102 and told["totalKeysExamined"] == 0
    db.goods.create_index("k")
    assert found() == wanted
    told = explained(db.orders, lookup)
    assert (told["strategy"], told["indexesUsed"]) == ("IndexedLoopJoin", ["k_1"])
    assert told["totalDocsExamined"] < 600 and told["nReturned"] == 403
    # Of a view, which has stages of its own.
    db.create_collection("some", viewOn="goods", pipeline=[{"$match": {"n": {"$lt": 20}}}])
    lookup[0]["$lookup"]["from"] = "some"
    assert found() == {n: [g for g in ids if g != "list" and g != "none" and g < 20] for n, ids in wanted.items()}
    assert explained(db.orders, lookup)["strategy"] == "NestedLoopJoin"
    lookup[0]["$lookup"]["from"] = "missing"
    assert set(map(len, found().values())) == {0}


def test_joins_of_documents_that_look_like_operators(db):
    """`$lookup` and `$graphLookup` failed with "cannot nest $ under $in" where the joined values had names with a dollar in front."""
    db.local.insert_one({"_id": 1, "a": [{"$x": 1}, 2, {"$y": 3}]})
    db.foreign.insert_many([{"_id": 1, "f": {"$x": 1}}, {"_id": 2, "f": 2}, {"_id": 3, "f": {"$x": 2}}])
    db.create_collection("view", viewOn="foreign", pipeline=[])
    for source in "foreign", "view":
        for stage in (
            {"$lookup": {"from": source, "localField": "a", "foreignField": "f", "as": "r"}},
            {"$graphLookup": {"from": source, "startWith": "$a", "connectFromField": "none", "connectToField": "f", "as": "r"}},
        ):
            (found,) = db.local.aggregate([stage])
            assert sorted(d["_id"] for d in found["r"]) == [1, 2], stage


def test_lookup(sales):
    joined = {
        d["_id"]: [i["name"] for i in d["info"]]
        for d in sales.aggregate([{"$lookup": {"from": "items", "localField": "item", "foreignField": "_id", "as": "info"}}])
    }
    assert joined == {1: ["Apple"], 2: ["Bread"], 3: ["Apple"], 4: []}
    piped = list(
        sales.aggregate(
            [
                {"$match": {"_id": 1}},
                {"$lookup": {"from": "items", "let": {"i": "$item"}, "pipeline": [{"$match": {"$expr": {"$eq": ["$_id", "$$i"]}}}, {"$project": {"name": 1, "_id": 0}}], "as": "info"}},
            ]
        )
    )
    assert piped[0]["info"] == [{"name": "Apple"}]


def test_views(sales, db):
    db.create_collection("cheap", viewOn="sales", pipeline=[{"$match": {"price": {"$lt": 10}}}])
    assert sorted(d["_id"] for d in db.cheap.find({})) == [3, 4]
    assert db.cheap.count_documents({"qty": 10}) == 1
    with pytest.raises(OperationFailure) as error:
        db.cheap.insert_one({})
    assert error.value.code == 166
    [listed] = db.list_collections(filter={"name": "cheap"})
    assert listed["type"] == "view" and listed["options"]["viewOn"] == "sales"
    db.cheap.drop()


def test_errors_carry_mongodb_codes(sales):
    for pipeline, code in [
        ([{"$nonesuch": {}}], 40324),
        ([{"$match": {}, "$limit": 1}], 40323),
        ([{"$limit": -1}], None),
        ([{"$project": {"x": {"$nonesuch": 1}}}], None),
    ]:
        with pytest.raises(OperationFailure) as error:
            list(sales.aggregate(pipeline))
        assert code is None or error.value.code == code, error.value


def test_joins_by_variables(db):
    db.orders.insert_many([{"_id": n, "k": n % 50, "from": n} for n in range(200)] + [{"_id": 200}, {"_id": 201, "k": None}, {"_id": 202, "k": [1, 2]}])
    db.goods.insert_many([{"_id": n, "k": n / 2, "n": n, "tags": [1, 2]} for n in range(100)] + [{"_id": "none"}, {"_id": "null", "k": None}, {"_id": "list", "k": [1, 2]}])

    def lookup(*stages, source="goods", **more):
        return [{"$lookup": {"from": source, "let": {"k": "$k", "from": "$from"}, "pipeline": list(stages), "as": "g", **more}}]

    def found(stages):
        return {d["_id"]: [g["_id"] for g in d["g"]] for d in db.orders.aggregate(stages, batchSize=30)}

    equal = {"$match": {"$expr": {"$and": [{"$eq": ["$k", "$$k"]}, {"$ne": ["$n", 6]}]}}}
    wanted = {n: [2 * (n % 50)] if n % 50 != 3 else [] for n in range(200)}
    # What is missing equals what is missing and not null, and an array one that is the same.
    wanted |= {200: ["none"], 201: ["null"], 202: ["list"]}
    by_expr = lookup(equal)
    assert found(by_expr) == wanted
    told = explained(db.orders, by_expr)
    assert "strategy" not in told and "indexesUsed" not in told
    # One scan for the first document, one for the table and one for each of the three that no key tells of.
    assert told["totalDocsExamined"] == 5 * 103
    db.goods.create_index("k")
    assert found(by_expr) == wanted
    told = explained(db.orders, by_expr)
    # The document with a list is met under two keys, four times each, and is not what was asked for.
    assert told["indexesUsed"] == ["k_1"] and told["totalDocsExamined"] == 200 + 8 + 3 * 103
    assert found(lookup(equal, {"$unwind": "$tags"}, {"$match": {"$expr": {"$lt": ["$tags", "$$from"]}}}))[52] == [4, 4]
    assert found(lookup({"$match": {"n": {"$gt": 20}}}, localField="k", foreignField="k")) == {n: g if g and g[0] in range(21, 100) else [] for n, g in wanted.items()}
    db.create_collection("some", viewOn="goods", pipeline=[{"$match": {"n": {"$lt": 20}}}])
    assert found(lookup(equal, source="some")) == {n: g if g and g[0] in range(20) else [] for n, g in wanted.items()}
    assert set(map(len, found(lookup(equal, source="missing")).values())) == {0}
    # What the first stages find is the same for every document, what the last one makes of it is not.
    last = lookup({"$sort": {"n": -1}}, {"$limit": 2}, {"$project": {"_id": {"$add": ["$n", "$$from"]}}})
    assert found(last)[100] == [199, 198] and explained(db.orders, last)["totalDocsExamined"] < 500


def test_expr_uses_indexes(db):
    db.c.insert_many([{"_id": n, "k": n, "a": n % 7} for n in range(1000)])
    db.c.create_index("k")
    for predicate, found in [
        ({"$eq": ["$k", 7]}, 1),
        ({"$gt": [{"$add": [1, 2]}, "$k"]}, 3),
        ({"$and": [{"$gte": ["$k", 10]}, {"$lte": ["$k", 20]}, {"$eq": ["$a", 3]}]}, 2),
    ]:
        told = db.c.find({"$expr": predicate}).explain()
        assert told["executionStats"]["nReturned"] == found
        assert told["executionStats"]["totalDocsExamined"] <= 11
    # Other types lie behind numbers, what is missing before them, and an array is compared as a whole.
    db.c.insert_many([{"_id": "text", "k": "x"}, {"_id": "none"}])
    assert [d["_id"] for d in db.c.find({"$expr": {"$gte": ["$k", 999]}}, sort=[("k", 1)])] == [999, "text"]
    assert [d["_id"] for d in db.c.find({"$expr": {"$lt": ["$k", 1]}}, sort=[("k", 1)])] == ["none", 0]
    db.c.insert_one({"_id": "list", "k": [5]})
    assert [d["_id"] for d in db.c.find({"$expr": {"$gte": ["$k", 999]}}, sort=[("_id", 1)])] == [999, "list", "text"]


def test_joins_by_variables_can_be_interrupted(db):
    db.outer.insert_many([{"_id": n} for n in range(300)])
    db.inner.insert_many([{"_id": n, "k": 1, "next": n + 1} for n in range(20_000)])
    same = {"$match": {"$expr": {"$and": [{"$eq": ["$k", {"$add": ["$$one", 0]}]}, {"$lt": ["$_id", "$$id"]}]}}}
    joined = {"$lookup": {"from": "inner", "let": {"one": {"$literal": 1}, "id": "$_id"}, "pipeline": [same], "as": "g"}}
    kept = {"$lookup": {"from": "inner", "let": {"id": "$_id"}, "pipeline": [{"$sort": {"next": -1}}, {"$match": {"$expr": {"$lt": ["$next", "$$id"]}}}], "as": "g"}}
    graph = {"$graphLookup": {"from": "inner", "startWith": "$_id", "connectFromField": "next", "connectToField": "_id", "as": "g"}}
    for stage in (joined, kept, graph):
        with pytest.raises(OperationFailure) as error:
            list(db.outer.aggregate([stage, {"$project": {"n": {"$size": "$g"}}}], maxTimeMS=100))
        assert error.value.code == 50


def test_views_that_add_each_other_can_be_interrupted(db):
    """Each asks the one below three times, and there is nothing in any: nobody was asked whether to go on."""
    db.create_collection("empty")
    below = "empty"
    for level in range(15):
        db.create_collection(f"v{level}", viewOn=below, pipeline=[{"$unionWith": below}, {"$unionWith": below}])
        below = f"v{level}"
    assert list(db.v3.find()) == []
    db.empty.insert_one({"_id": 1})
    assert db.v3.count_documents({}) == 81
    db.empty.delete_many({})
    with pytest.raises(OperationFailure) as error:
        list(db[below].find(max_time_ms=200))
    assert error.value.code == 50


def test_unwound_arrays_can_be_interrupted(db):
    numbers = list(range(20_000))
    db.c.insert_one({"a": numbers, "b": numbers})
    twice = [{"$unwind": "$a"}, {"$unwind": "$b"}]
    db.create_collection("unwound", viewOn="c", pipeline=twice)
    for command in (
        {"aggregate": "c", "pipeline": [{"$unwind": "$a"}, {"$unwind": "$b"}, {"$unwind": "$missing"}], "cursor": {}},
        {"explain": {"aggregate": "c", "pipeline": twice, "cursor": {}}, "verbosity": "executionStats"},
        {"distinct": "unwound", "key": "a"},
    ):
        with pytest.raises(OperationFailure) as error:
            db.command(command, maxTimeMS=200)
        assert error.value.code == 50, command


def test_lists_of_arrays_are_read_once(db):
    """Each was looked for from the beginning of the list: 40,000 pairs took minutes, before anything was read."""
    pairs = [[n, n] for n in range(40_000)]
    db.c.insert_many([{"_id": 1, "p": [39_999, 39_999]}, {"_id": 2, "p": pairs}, {"_id": 3, "p": 7}])
    assert {d["_id"] for d in db.c.find({"p": {"$in": pairs}}, {"p": 0}, max_time_ms=60_000)} == {1, 2}
    assert db.c.count_documents({"p": [39_999, 39_999]}, maxTimeMS=60_000) == 2
    db.c.update_one({"_id": 2}, {"$push": {"p": {"$each": [], "$sort": {"x": 1}}}})
    assert len(db.c.find_one({"_id": 2})["p"]) == 40_000
    db.f.insert_one({"_id": 1, "k": [5, 5]})
    joined = db.c.aggregate([{"$match": {"_id": 2}}, {"$lookup": {"from": "f", "localField": "p", "foreignField": "k", "as": "found"}}])
    assert len(next(joined)["found"]) == 1


def test_two_lists_and_a_sort_share_their_bounds(db):
    """200 scans had a copy of the other list each: gigabytes, before anything was read."""
    db.c.create_index([("a", 1), ("b", 1), ("c", -1)])
    db.c.insert_many([{"a": n % 250, "b": n % 7, "c": n} for n in range(3_000)])
    query = {"a": {"$in": list(range(200))}, "c": {"$in": list(range(0, 100_000, 2))}}
    found = list(db.c.find(query, {"_id": 0}, sort=[("b", 1), ("c", 1)], max_time_ms=60_000))
    expected = [{"a": n % 250, "b": n % 7, "c": n} for n in range(0, 3_000, 2) if n % 250 < 200]
    assert found == sorted(expected, key=lambda d: (d["b"], d["c"]))
    # Equalities alone would be joined to one list. Of the longer list each branch would need a copy of its own: too much.
    for end in (200, 100_000):
        branches = {"$or": [{"a": n, "b": {"$gte": 0}} for n in range(900)], "c": {"$in": list(range(0, end, 2)), "$gte": 10}}
        assert db.c.count_documents(branches, maxTimeMS=60_000) == sum(n >= 10 for n in range(0, min(end, 3_000), 2))


def test_scores_go_through_joins_and_windows(db):
    db.c.insert_many([{"_id": 1, "t": "coffee", "p": 2}, {"_id": 2, "t": "coffee coffee"}])
    db.c.create_index([("t", "text")])
    search = {"$match": {"$text": {"$search": "coffee"}}}
    score = {"$project": {"score": {"$meta": "textScore"}}}
    plain = list(db.c.aggregate([search, score, {"$sort": {"_id": 1}}]))
    assert all(document["score"] > 0 for document in plain)
    for stage in (
        {"$graphLookup": {"from": "c", "startWith": "$p", "connectFromField": "p", "connectToField": "_id", "as": "found"}},
        {"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"n": {"$sum": 1}, "m.n": {"$sum": 1}}}},
    ):
        assert list(db.c.aggregate([search, stage, score, {"$sort": {"_id": 1}}])) == plain, stage


def test_distinct_reads_what_its_transaction_does(tmp_path):
    for engine in ENGINES:
        with Server(tmp_path / engine, engine, options=["--replSet", "rs0", "--replSetInitiate"]) as server:
            db = server.client(replicaSet="rs0", serverSelectionTimeoutMS=10_000).distinct
            with db.client.start_session() as session:
                session.start_transaction()
                db.made.insert_many([{"x": n % 2} for n in range(4)], session=session)
                assert sorted(db.made.distinct("x", session=session)) == [0, 1]
                assert db.made.distinct("x") == []
                session.commit_transaction()
            with db.client.start_session(snapshot=True) as session:
                assert sorted(db.made.distinct("x", session=session)) == [0, 1]
                db.made.drop()
                db.made.insert_one({"x": 7})
                for read in (lambda: list(db.made.find(session=session)), lambda: db.made.distinct("x", session=session)):
                    with pytest.raises(OperationFailure) as error:
                        read()
                    assert error.value.code == 246
            db.client.close()


def test_merged_scans_yield(db):
    """A sort of what two indexes give in order held one view, and its lock, to the end."""
    db.c.insert_many([{"a": n % 2, "b": n, "c": n % 3} for n in range(30_000)])
    db.c.create_index([("a", 1), ("b", 1)])
    db.c.create_index([("c", 1), ("b", 1)])
    db.command("profile", 2)
    query = {"$or": [{"a": 1}, {"c": 2}]}
    last = list(db.c.find(query, sort=[("b", 1)], skip=19_990, limit=20))
    db.command("profile", 0)
    assert [document["b"] for document in last] == [n for n in range(30_000) if n % 2 == 1 or n % 3 == 2][19_990:20_010]
    entry = db.system.profile.find_one({"op": "query", "command.find": "c"})
    assert "SORT_MERGE" in str(db.c.find(query, sort=[("b", 1)]).explain()) and entry["numYield"] > 0


def test_joins_see_what_their_transaction_has_written(tmp_path):
    equal = [{"$match": {"$expr": {"$eq": ["$k", "$$k"]}}}]
    by_expr = {"$lookup": {"from": "inner", "let": {"k": "$k"}, "pipeline": equal, "as": "found"}}
    kept = {"$lookup": {"from": "inner", "let": {"k": "$k"}, "pipeline": [{"$sort": {"_id": -1}}, {"$set": {"of": "$$k"}}], "as": "found"}}
    graph = {"$graphLookup": {"from": "inner", "startWith": "$k", "connectFromField": "next", "connectToField": "k", "as": "found"}}
    for engine in ENGINES:
        with Server(tmp_path / engine, engine, options=["--replSet", "rs0", "--replSetInitiate"]) as server:
            db = server.client(replicaSet="rs0", serverSelectionTimeoutMS=10_000).joins
            db.outer.insert_many([{"_id": n, "k": n} for n in range(20)])
            db.inner.insert_one({"_id": 0, "k": 0})

            def counts(stage, session=None):
                return sum(len(document["found"]) for document in db.outer.aggregate([stage], session=session))

            for index in (None, [("k", 1)]):
                if index:
                    db.inner.create_index(index)
                before = [counts(stage) for stage in (by_expr, kept, graph)]
                assert before == [1, 20, 1]
                with db.client.start_session() as session:
                    session.start_transaction()
                    db.inner.insert_many([{"_id": n, "k": n, "next": n - 1} for n in range(1, 20)], session=session)
                    own = [counts(stage, session) for stage in (by_expr, kept, graph)]
                    assert own == [20, 400, 210]
                    assert [counts(stage) for stage in (by_expr, kept, graph)] == before
                    session.abort_transaction()
            db.client.close()


def test_results_larger_than_a_reply_come_in_batches(db):
    db.big.insert_many([{"_id": i, "pad": "x" * 1_000_000} for i in range(40)])
    assert sum(len(d["pad"]) for d in db.big.aggregate([{"$match": {}}])) == 40_000_000


def test_a_join_of_one_value_a_million_times(client, server):
    """What an array of local values holds twice is looked for once: else a document would have gigabytes gathered, or take for ever."""
    db = client.join_of_one
    client.drop_database(db.name)
    db.few.insert_many([{"_id": n, "l": 1} for n in range(2)] + [{"_id": "many", "l": [1] * 1_000_000}])
    db.foreign.insert_many([{"_id": n, "f": 1} for n in range(2_000)])

    def joined():
        stages = [{"$lookup": {"from": "foreign", "localField": "l", "foreignField": "f", "as": "found"}}, {"$project": {"n": {"$size": "$found"}}}]
        return [document["n"] for document in db.few.aggregate(stages, maxTimeMS=60_000)]

    assert joined() == [2_000] * 3
    db.foreign.create_index("f")
    assert joined() == [2_000] * 3
    # Many values that are not the same: the look-ups can be interrupted.
    db.distinct.insert_one({"l": list(range(10, 1_200_000))})
    stages = [{"$lookup": {"from": "foreign", "localField": "l", "foreignField": "_id", "as": "found"}}]
    with pytest.raises(OperationFailure) as error:
        list(db.distinct.aggregate(stages, maxTimeMS=20))
    assert error.value.code == 50
    client.drop_database(db.name)


def test_a_count_is_of_what_the_plan_finds(db):
    db.near.insert_many([{"p": [0, 0]}, {"p": [50, 50]}, {"q": 1}])
    db.near.create_index([("p", "2dsphere")])
    near = {"near": {"type": "Point", "coordinates": [0, 0]}, "distanceField": "d"}
    assert list(db.near.aggregate([{"$geoNear": {**near, "maxDistance": 1000}}, {"$count": "n"}])) == [{"n": 1}]
    assert list(db.near.aggregate([{"$geoNear": near}, {"$group": {"_id": None, "n": {"$sum": 1}}}])) == [{"_id": None, "n": 2}]
    db.sparse.insert_many([{"_id": 1}, {"_id": 2, "y": 1}, {"_id": 3}])
    db.sparse.create_index("y", sparse=True)
    assert db.sparse.count_documents({}, hint="y_1") == 1
    assert db.sparse.count_documents({}, hint="_id_") == db.sparse.count_documents({}) == 3


def test_merge_into_what_it_reads_beside_new_indexes(db):
    """An index that anybody made ended it half way, whether it was used or not."""
    count = 10_000
    db.c.insert_many([{"_id": n, "n": n} for n in range(count)])
    done = threading.Event()

    def index():
        while not done.is_set():
            db.c.create_index("elsewhere")
            db.c.drop_index("elsewhere_1")

    beside = threading.Thread(target=index)
    beside.start()
    try:
        db.c.aggregate([{"$match": {"n": {"$gte": 0}}}, {"$set": {"n": {"$add": ["$n", count]}}}, {"$merge": "c"}])
    finally:
        done.set()
        beside.join()
    assert db.c.count_documents({"n": {"$gte": count}}) == count
    assert db.command("validate", "c", full=True)["valid"]
