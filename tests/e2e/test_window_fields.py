"""Window functions, filled gaps, buckets and percentiles through pymongo."""

import datetime

import pytest
from pymongo.errors import ExecutionTimeout, OperationFailure


@pytest.fixture
def sales(db):
    db.sales.insert_many(
        [
            {"_id": 0, "state": "CA", "day": 1, "price": 13, "quantity": 120},
            {"_id": 1, "state": "WA", "day": 2, "price": 14, "quantity": 140},
            {"_id": 2, "state": "CA", "day": 3, "price": 12, "quantity": 145},
            {"_id": 3, "state": "WA", "day": 4, "price": 13, "quantity": 104},
            {"_id": 4, "state": "CA", "day": 5, "price": 41, "quantity": 162},
            {"_id": 5, "state": "WA", "day": 6, "price": 43, "quantity": 134},
        ]
    )
    return db.sales


def windows(collection, output, before=(), after=(), **arguments):
    stage = {"$setWindowFields": {"partitionBy": "$state", "sortBy": {"day": 1}, "output": output, **arguments}}
    return list(collection.aggregate([*before, stage, *after]))


def column(collection, output, **arguments):
    found = windows(collection, {"v": output}, **arguments)
    return [d["v"] for d in sorted(found, key=lambda d: (d["state"], d["day"]))]


def code(collection, *pipeline):
    with pytest.raises(OperationFailure) as error:
        list(collection.aggregate(list(pipeline)))
    return error.value.code


def test_windows(sales):
    running = {"$sum": "$quantity", "window": {"documents": ["unbounded", "current"]}}
    assert column(sales, running) == [120, 265, 427, 140, 244, 378]
    assert column(sales, {"$avg": "$price", "window": {"documents": [-1, 0]}}) == [13, 12.5, 26.5, 14, 13.5, 28]
    assert column(sales, {"$max": "$price", "window": {"range": [-2, 0]}}) == [13, 13, 41, 14, 14, 43]
    assert column(sales, {"$push": "$day"}) == [[1, 3, 5]] * 3 + [[2, 4, 6]] * 3
    assert column(sales, {"$rank": {}}, sortBy={"quantity": -1}) == [3, 2, 1, 1, 3, 2]
    assert column(sales, {"$shift": {"output": "$price", "by": 1, "default": -1}}) == [12, 41, -1, 13, 43, -1]
    assert column(sales, {"$expMovingAvg": {"input": "$price", "N": 3}}) == [13, 12.5, 26.75, 14, 13.5, 28.25]
    slope = {"$derivative": {"input": "$price"}, "window": {"documents": [-1, 0]}}
    assert column(sales, slope) == [None, -0.5, 14.5, None, -0.5, 15]
    assert column(sales, {"$integral": {"input": "$price"}}) == [78.0] * 3 + [83.0] * 3
    assert column(sales, {"$covariancePop": ["$price", "$quantity"]})[0] == pytest.approx(548 / 3)
    assert column(sales, {"$median": {"input": "$price", "method": "approximate"}}) == [13.0] * 3 + [14.0] * 3


def test_time_windows(db):
    day = datetime.datetime(2024, 2, 28)
    db.t.insert_many([{"_id": n, "at": day + datetime.timedelta(days=n), "x": 1} for n in range(5)])
    output = {"v": {"$sum": "$x", "window": {"range": [-1, 0], "unit": "day"}}}
    found = db.t.aggregate([{"$setWindowFields": {"sortBy": {"at": 1}, "output": output}}])
    assert [d["v"] for d in found] == [1, 2, 2, 2, 2]


def test_partitions_follow_the_collation(db):
    db.c.insert_many([{"_id": n, "p": p} for n, p in enumerate(["ab", "CD", "AB", "cd", "Ab"])])
    stage = {"$setWindowFields": {"partitionBy": "$p", "sortBy": {"_id": 1}, "output": {"n": {"$documentNumber": {}}, "all": {"$addToSet": "$p"}}}}
    pipeline = [stage, {"$match": {"p": "AB"}}]
    found = db.c.aggregate(pipeline, collation={"locale": "en", "strength": 2})
    assert [(d["_id"], d["n"], len(d["all"])) for d in found] == [(0, 1, 1), (2, 2, 1), (4, 3, 1)]
    assert [d["n"] for d in db.c.aggregate(pipeline)] == [1]


def test_an_index_sorts_the_partitions(sales):
    sales.create_index([("state", 1), ("day", 1)])
    pipeline = [
        {"$setWindowFields": {"partitionBy": "$state", "sortBy": {"day": 1}, "output": {"n": {"$documentNumber": {}}}}},
        {"$match": {"state": "WA"}},
    ]
    explained = sales.database.command("explain", {"aggregate": "sales", "pipeline": pipeline, "cursor": {}}, verbosity="queryPlanner")
    assert [next(iter(stage)) for stage in explained["stages"]] == ["$cursor", "$_internalSetWindowFields"]
    assert "IXSCAN" in str(explained["stages"][0]) and "SORT" not in str(explained["stages"][0])
    assert [d["n"] for d in sales.aggregate(pipeline)] == [1, 2, 3]
    # What nobody asks for need not be read.
    covered = [pipeline[0], {"$project": {"n": 1, "_id": 0}}]
    assert [d for d in sales.aggregate(covered)] == [{"n": n} for n in (1, 2, 3, 1, 2, 3)]
    dense = [{"$densify": {"field": "day", "range": {"step": 1, "bounds": [0, 2]}}}, {"$project": {"day": 1, "_id": 0}}]
    assert [d["day"] for d in sales.aggregate(dense)] == [0, 1, 2, 3, 4, 5, 6]


def test_inside_other_pipelines(sales, db):
    stage = {"$setWindowFields": {"partitionBy": "$state", "sortBy": {"day": 1}, "output": {"n": {"$documentNumber": {}}}}}
    [facets] = sales.aggregate([{"$facet": {"a": [stage, {"$count": "n"}], "b": [{"$bucketAuto": {"groupBy": "$day", "buckets": 2}}]}}])
    assert facets["a"] == [{"n": 6}]
    assert [b["count"] for b in facets["b"]] == [3, 3]
    db.one.insert_one({"_id": 1})
    [joined] = db.one.aggregate([{"$lookup": {"from": "sales", "pipeline": [stage, {"$match": {"n": 3}}], "as": "last"}}])
    assert sorted(d["_id"] for d in joined["last"]) == [4, 5]
    db.create_collection("numbered", viewOn="sales", pipeline=[stage])
    assert sorted(d["_id"] for d in db.numbered.find({"n": 1})) == [0, 1]
    united = db.one.aggregate([{"$unionWith": {"coll": "sales", "pipeline": [{"$densify": {"field": "day", "range": {"step": 1, "bounds": [0, 9]}}}]}}])
    assert len(list(united)) == 1 + 9
    # Not in an update.
    with pytest.raises(OperationFailure):
        sales.update_many({}, [stage])


def test_fill_and_densify(db):
    db.m.insert_many(
        [
            {"_id": 1, "p": "a", "x": 0, "v": 0},
            {"_id": 2, "p": "a", "x": 4, "v": 8},
            {"_id": 3, "p": "b", "x": 2, "v": 5},
        ]
    )
    pipeline = [
        {"$densify": {"field": "x", "partitionByFields": ["p"], "range": {"step": 2, "bounds": "full"}}},
        {"$fill": {"partitionByFields": ["p"], "sortBy": {"x": 1}, "output": {"v": {"method": "linear"}, "w": {"value": "none"}}}},
        {"$project": {"_id": 0}},
        {"$sort": {"p": 1, "x": 1}},
    ]
    rows = [("a", 0, 0), ("a", 2, 4.0), ("a", 4, 8), ("b", 0, None), ("b", 2, 5), ("b", 4, None)]
    assert list(db.m.aggregate(pipeline)) == [{"p": p, "x": x, "v": v, "w": "none"} for p, x, v in rows]
    days = [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 4)]
    db.d.insert_many([{"t": day} for day in days])
    dense = db.d.aggregate([{"$densify": {"field": "t", "range": {"step": 1, "unit": "day", "bounds": "full"}}}])
    assert [d["t"].day for d in dense] == [1, 2, 3, 4]
    assert code(db.d, {"$densify": {"field": "n", "range": {"step": 1, "bounds": [0, 1_000_000]}}}) == 5897900


def test_bucket_auto(db):
    db.n.insert_many([{"_id": n, "x": n} for n in range(1, 101)])
    buckets = list(db.n.aggregate([{"$bucketAuto": {"groupBy": "$x", "buckets": 5, "granularity": "R5"}}]))
    assert [(b["_id"]["min"], b["_id"]["max"], b["count"]) for b in buckets] == [(0.63, 25.0, 24), (25.0, 63.0, 38), (63.0, 100.0, 37), (100.0, 160.0, 1)]
    [all_of_them] = db.n.aggregate([{"$bucketAuto": {"groupBy": "$x", "buckets": 1, "output": {"sum": {"$sum": "$x"}}}}])
    assert all_of_them == {"_id": {"min": 1, "max": 100}, "sum": 5050}


def test_percentiles(db):
    db.n.insert_many([{"_id": n, "x": n} for n in range(20_001)])
    spec = {"input": "$x", "p": [0, 0.5, 0.99, 1], "method": "approximate"}
    [found] = db.n.aggregate([{"$group": {"_id": None, "v": {"$percentile": spec}, "m": {"$median": {"input": "$x", "method": "approximate"}}}}])
    assert found["v"] == pytest.approx([0, 10_000, 19_800, 20_000], abs=20)
    assert found["v"][0] == 0 and found["v"][3] == 20_000
    assert found["m"] == pytest.approx(10_000, abs=20)
    [exact] = db.n.aggregate([{"$limit": 1}, {"$project": {"v": {"$percentile": {"input": [3, 1, 2], "p": [0.5], "method": "approximate"}}}}])
    assert exact["v"] == [2.0]
    assert code(db.n, {"$group": {"_id": None, "v": {"$median": {"input": "$x", "method": "discrete"}}}}) == 2


def test_sample_rate(db):
    db.n.insert_many([{"_id": n} for n in range(4000)])
    assert db.n.count_documents({"$sampleRate": 0}) == 0
    assert db.n.count_documents({"$sampleRate": 1}) == 4000
    assert 1600 < len(list(db.n.find({"$sampleRate": 0.5}))) < 2400
    for wrong in [-1, 2, "x"]:
        with pytest.raises(OperationFailure):
            db.n.count_documents({"$sampleRate": wrong})


def test_bounds(db):
    db.n.insert_many([{"_id": n, "pad": "x" * 4000} for n in range(30_000)])
    sliding = {"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"n": {"$sum": 1, "window": {"documents": [-2, 2]}}}}}
    # A narrow window over 120 MB holds a few documents: the index on `_id` sorts.
    assert [d["n"] for d in db.n.aggregate([sliding, {"$project": {"n": 1}}, {"$limit": 4}])] == [3, 4, 5, 5]
    assert sum(d["n"] for d in db.n.aggregate([sliding, {"$project": {"n": 1}}])) == 5 * 30_000 - 6
    # One over all of them has to hold them.
    gathering = {"$setWindowFields": {"output": {"v": {"$push": "$pad"}}}}
    assert code(db.n, gathering) in (146, 292)
    # And one that takes long ends in time.
    slow = {"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"v": {"$push": "$_id", "window": {"documents": ["unbounded", "current"]}}}}}
    with pytest.raises(ExecutionTimeout):
        db.n.aggregate([{"$project": {"pad": 0}}, slow, {"$group": {"_id": None, "n": {"$sum": {"$size": "$v"}}}}], maxTimeMS=200).to_list()


def test_errors(sales):
    assert code(sales, {"$setWindowFields": {"output": {"v": {"$sum": 1, "window": {"documents": [-1, 0]}}}}}) == 5339901
    assert code(sales, {"$setWindowFields": {"sortBy": {"day": 1}, "output": {"v": {"$mergeObjects": "$x"}}}}) == 9
    assert code(sales, {"$fill": {"output": {}}}) == 6050203
    assert code(sales, {"$bucketAuto": {"groupBy": "$x", "buckets": 0}}) == 40243
