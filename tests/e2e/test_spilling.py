"""Sorts, groups, buckets and windows that outgrow their memory go on in temporary files, and leave none behind."""

import random
import threading
import time

import pytest
from pymongo.errors import ExecutionTimeout, OperationFailure
from server import Server

SORT = "internalQueryMaxBlockingSortMemoryUsageBytes"
GROUP = "internalDocumentSourceGroupMaxMemoryBytes"
BUCKET_AUTO = "internalDocumentSourceBucketAutoMaxMemoryBytes"
WINDOW = "internalDocumentSourceSetWindowFieldsMaxMemoryBytes"
DENSIFY = "internalDocumentSourceDensifyMaxMemoryBytes"
FREE = "internalQuerySpillingMinAvailableDiskSpaceBytes"
COUNT = 12_000


def documents():
    rng = random.Random(7)
    keys = list(range(COUNT))
    rng.shuffle(keys)
    return [{"_id": n, "k": key, "g": key % 4000, "pad": f"{key}" * 40} for n, key in enumerate(keys)]


@pytest.fixture
def filled(db):
    db.c.insert_many(documents())
    return db.c


@pytest.fixture
def limits(client):
    """Sets parameters; the test's end sets them back."""
    before = {}

    def change(**values):
        for name, value in values.items():
            was = client.admin.command("setParameter", 1, **{name: value})["was"]
            before.setdefault(name, was)

    change(**{SORT: 300_000, GROUP: 300_000, BUCKET_AUTO: 300_000, WINDOW: 300_000, DENSIFY: 300_000, FREE: 0})
    yield change
    for name, value in before.items():
        client.admin.command("setParameter", 1, **{name: value})


def files(server):
    return sorted(path.name for path in (server.data / "_tmp").iterdir())


def code(run):
    with pytest.raises(OperationFailure) as error:
        run()
    return error.value.code


def wait(reached):
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_defaults(client):
    everything = client.admin.command("getParameter", "*")
    assert everything["allowDiskUseByDefault"] is True
    assert {everything[name] for name in (SORT, GROUP, BUCKET_AUTO, WINDOW)} == {100 << 20}
    assert everything[FREE] == 500 << 20


def test_sort(filled, server, limits):
    assert [d["k"] for d in filled.find().sort("k", 1)] == list(range(COUNT))
    assert [d["k"] for d in filled.find().sort("k", -1).skip(5).limit(3000)] == list(range(COUNT - 6, COUNT - 3006, -1))
    # Documents of equal keys stay in their order.
    tied = [(d["t"], d["_id"]) for d in filled.aggregate([{"$set": {"t": {"$mod": ["$g", 3]}}}, {"$sort": {"t": 1}}])]
    assert tied == sorted(tied)
    # A view, and a look-up's own pipeline.
    filled.database.command("create", "v", viewOn="c", pipeline=[{"$set": {"k": {"$multiply": ["$k", 2]}}}])
    assert [d["k"] for d in filled.database.v.find().sort("k", 1)] == list(range(0, 2 * COUNT, 2))
    # Counting a view and asking for its different values goes on on disk, too.
    filled.database.command("create", "w", viewOn="c", pipeline=[{"$set": {"x": 1}}, {"$sort": {"k": 1}}, {"$group": {"_id": "$g", "all": {"$push": "$pad"}}}])
    assert filled.database.w.count_documents({}) == filled.database.command("count", "w")["n"] == 4000
    assert sorted(filled.database.w.distinct("_id")) == list(range(4000))
    joined = [{"$limit": 1}, {"$lookup": {"from": "c", "pipeline": [{"$sort": {"k": -1}}, {"$project": {"k": 1}}], "as": "all"}}]
    assert [d["k"] for d in next(filled.aggregate(joined))["all"]] == list(range(COUNT - 1, -1, -1))
    assert files(server) == []


def test_group(filled, limits, server):
    group = {"$group": {"_id": "$g", "n": {"$sum": 1}, "all": {"$push": "$_id"}, "first": {"$first": "$k"}, "top": {"$topN": {"n": 2, "sortBy": {"k": -1}, "output": "$k"}}}}
    found = {d["_id"]: d for d in filled.aggregate([group])}
    assert len(found) == 4000
    expected = {}
    for document in documents():
        expected.setdefault(document["g"], []).append(document)
    for g, group in expected.items():
        keys = [d["k"] for d in group]
        top = sorted(keys, reverse=True)[:2]
        assert found[g] == {"_id": g, "n": 3, "all": [d["_id"] for d in group], "first": keys[0], "top": top}
    assert files(server) == []


def test_groups_with_an_n_of_their_own(filled, limits, server):
    few = {"$cond": [{"$lt": ["$g", 2000]}, 2, 1]}
    fields = {name: {f"${name}": {"n": few, "input": "$k"}} for name in ("firstN", "lastN", "minN", "maxN")}
    found = {d["_id"]["g"]: d for d in filled.aggregate([{"$group": {"_id": {"g": "$g"}, **fields}}])}
    expected = {}
    for document in documents():
        expected.setdefault(document["g"], []).append(document["k"])
    assert len(found) == 4000
    for g, keys in expected.items():
        n, rising = (2 if g < 2000 else 1), sorted(keys)
        wanted = {"firstN": keys[:n], "lastN": keys[-n:], "minN": rising[:n], "maxN": rising[::-1][:n]}
        assert found[g] == {"_id": {"g": g}, **wanted}
    assert files(server) == []


def test_buckets_and_windows(filled, limits, server):
    buckets = list(filled.aggregate([{"$bucketAuto": {"groupBy": "$k", "buckets": 4, "output": {"n": {"$sum": 1}, "first": {"$first": "$k"}}}}]))
    assert [(b["n"], b["first"]) for b in buckets] == [(3000, 0), (3000, 3000), (3000, 6000), (3000, 9000)]
    window = {"$setWindowFields": {"partitionBy": {"$add": ["$g", 1]}, "sortBy": {"k": 1}, "output": {"rank": {"$documentNumber": {}}}}}
    found = list(filled.aggregate([window, {"$match": {"rank": 3}}, {"$count": "n"}]))
    assert found == [{"n": 4000}]
    # One partition, all of which has to be read before its first document can go.
    whole = {"$setWindowFields": {"sortBy": {"k": 1}, "output": {"n": {"$sum": 1}, "next": {"$shift": {"output": "$k", "by": 1000}}}}}
    found = [(d["k"], d["n"], d["next"]) for d in filled.aggregate([whole])]
    assert found == [(k, COUNT, k + 1000 if k + 1000 < COUNT else None) for k in range(COUNT)]
    assert code(lambda: list(filled.aggregate([whole], allowDiskUse=False))) == 292
    assert files(server) == []


def test_steps_of_many_partitions(filled, client, limits, server):
    before = client.admin.command("serverStatus")["metrics"]["query"]["densify"]
    steps = {"$densify": {"field": "k", "partitionByFields": ["g"], "range": {"step": 1000, "bounds": [0, 12_000]}}}
    found = {(d["g"], d["k"]) for d in filled.aggregate([steps])}
    assert found == {(g, k) for g in range(4000) for k in [*range(0, 12_000, 1000), g, g + 4000, g + 8000]}
    after = client.admin.command("serverStatus")["metrics"]["query"]["densify"]
    assert after["spills"] > before["spills"] and after["spilledRecords"] > before["spilledRecords"] + 10_000
    by_key = filled.create_index("k")
    assert code(lambda: list(filled.aggregate([steps], allowDiskUse=False, hint=by_key))) == 6007200
    # With bounds of their own partitions come one after the other.
    steps["$densify"]["range"] = {"step": 2000, "bounds": "partition"}
    index = filled.create_index([("g", 1), ("k", 1)])
    found = sum(1 for _ in filled.aggregate([steps], allowDiskUse=False, hint=index))
    assert found == COUNT + 4000 * 2
    assert files(server) == []


def test_without_the_disk(filled, client, limits):
    group = [{"$group": {"_id": "$g", "all": {"$push": "$pad"}}}]
    refused = {
        "find": lambda **options: list(filled.find(**options).sort("k", 1)),
        "sort": lambda **options: list(filled.aggregate([{"$set": {"x": 1}}, {"$sort": {"k": 1}}], **options)),
        "group": lambda **options: list(filled.aggregate(group, **options)),
        "bucketAuto": lambda **options: list(filled.aggregate([{"$bucketAuto": {"groupBy": "$k", "buckets": 2}}], **options)),
    }
    options = {"find": "allow_disk_use"}
    for name, run in refused.items():
        option = options.get(name, "allowDiskUse")
        assert code(lambda: run(**{option: False})) == 292, name  # noqa: B023
        run(**{option: True})
        run()
    with pytest.raises(OperationFailure, match="Sort exceeded memory limit of 300000 bytes, but did not opt in to external sorting"):
        refused["find"](allow_disk_use=False)
    limits(allowDiskUseByDefault=False)
    for name, run in refused.items():
        assert code(run) == 292, name
        run(**{options.get(name, "allowDiskUse"): True})
    # With a limit the best are held, and they fit.
    assert filled.find(allow_disk_use=False).sort("k", 1).limit(3).to_list()[2]["k"] == 2
    for wrong in [1, "true"]:
        assert code(lambda: filled.database.command("find", "c", allowDiskUse=wrong)) == 14  # noqa: B023
        assert code(lambda: filled.database.command("aggregate", "c", pipeline=[], cursor={}, allowDiskUse=wrong)) == 14  # noqa: B023


def test_too_little_space(filled, limits, server):
    limits(**{FREE: 1 << 60})
    assert code(lambda: list(filled.find().sort("k", 1))) == 14031
    assert code(lambda: list(filled.aggregate([{"$group": {"_id": "$g", "all": {"$push": "$pad"}}}]))) == 14031
    assert files(server) == []
    limits(**{FREE: 0})
    assert len(list(filled.find().sort("k", 1))) == COUNT


def test_explain(filled, limits):
    explained = filled.database.command("explain", {"find": "c", "sort": {"k": 1}}, verbosity="executionStats")
    sort = explained["executionStats"]["executionStages"]
    assert (sort["stage"], sort["memLimit"], sort["usedDisk"], sort["spilledRecords"]) == ("SORT", 300_000, True, COUNT)
    assert sort["spills"] > 5 and 0 < sort["spilledDataStorageSize"] < sort["spilledBytes"]
    assert sort["totalDataSizeSorted"] > 1_000_000
    stages = [{"$set": {"h": {"$add": ["$g", 1]}}}, {"$group": {"_id": "$h", "all": {"$push": "$pad"}}}, {"$sort": {"_id": 1}}]
    command = {"aggregate": "c", "pipeline": stages, "cursor": {}}
    explained = filled.database.command("explain", command, verbosity="executionStats")["stages"]
    assert [next(iter(stage)) for stage in explained] == ["$cursor", "$set", "$group", "$sort"]
    assert [stage["nReturned"] for stage in explained] == [COUNT, COUNT, 4000, 4000]
    group, sort = explained[2:]
    assert group["usedDisk"] and group["spills"] > 1 and group["spilledRecords"] > 4000 and group["totalOutputDataSizeBytes"] > 1_000_000
    assert group["numBytesSpilledEstimate"] > group["spilledDataStorageSize"] > 0
    assert sort["usedDisk"] and sort["spilledRecords"] == 4000 and sort["totalDataSizeSortedBytesEstimate"] > 1_000_000
    limits(**{GROUP: 100 << 20})
    explained = filled.database.command("explain", command, verbosity="executionStats")["stages"]
    assert (explained[2]["usedDisk"], explained[2]["spills"]) == (False, 0)
    assert "nReturned" not in filled.database.command("explain", command, verbosity="queryPlanner")["stages"][2]


def test_profile_and_status(filled, client, limits):
    before = client.admin.command("serverStatus")["metrics"]["query"]
    filled.database.command("profile", 2)
    list(filled.find({}, comment="sorted").sort("k", 1).batch_size(COUNT))
    list(filled.aggregate([{"$group": {"_id": "$g", "all": {"$push": "$pad"}}}], comment="grouped"))
    list(filled.find({"_id": 1}, comment="found"))
    filled.database.command("profile", 0)
    profile = filled.database["system.profile"]
    entry = profile.find_one({"command.comment": "sorted", "command.find": "c"})
    assert entry["usedDisk"] is True and entry["hasSortStage"] is True
    assert entry["sortSpills"] > 5 and entry["sortSpilledRecords"] == COUNT
    entry = profile.find_one({"command.comment": "grouped"})
    assert entry["usedDisk"] is True and entry["groupSpills"] > 0 and "sortSpills" not in entry
    assert "usedDisk" not in profile.find_one({"command.comment": "found"})
    after = client.admin.command("serverStatus")["metrics"]["query"]
    assert after["sort"]["spillToDisk"] - before["sort"]["spillToDisk"] > 5
    assert after["sort"]["totalKeysSorted"] - before["sort"]["totalKeysSorted"] == COUNT
    assert after["sort"]["totalBytesSorted"] > before["sort"]["totalBytesSorted"]
    assert after["group"]["spilledRecords"] > before["group"]["spilledRecords"]
    assert after["bucketAuto"] == before["bucketAuto"]


def test_files_go_with_their_operation(filled, client, server, limits):
    # A cursor has its files until it ends, or is killed.
    cursor = filled.find(batch_size=2).sort("k", 1)
    next(cursor)
    assert files(server)
    cursor.close()
    wait(lambda: not files(server))
    with pytest.raises(ExecutionTimeout):
        slow = {"$set": {"x": {"$reduce": {"input": {"$range": [0, 3000]}, "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}}}
        list(filled.aggregate([slow, {"$sort": {"k": 1}}], maxTimeMS=700))
    wait(lambda: not files(server))

    ended = []

    def sort():
        try:
            list(filled.aggregate([slow, {"$sort": {"k": 1}}], comment="to be killed"))
        except OperationFailure as error:
            ended.append(error.code)

    thread = threading.Thread(target=sort)
    thread.start()
    wait(lambda: files(server))
    for operation in client.admin.command("currentOp")["inprog"]:
        if operation.get("command", {}).get("comment") == "to be killed":
            client.admin.command("killOp", op=operation["opid"])
    thread.join()
    assert ended == [11601]
    wait(lambda: not files(server))


def test_a_start_removes_what_a_kill_has_left(server, new_folder):
    with Server(new_folder("killed"), server.engine, options=["--setParameter", f"{SORT}=300000"]) as killed:
        collection = killed.client().t.c
        collection.insert_many(documents())
        cursor = collection.find(batch_size=2).sort("k", 1)
        next(cursor)
        left = files(killed)
        assert left
        (killed.data / "_tmp" / "mine").write_text("x")
        killed.kill()
        assert files(killed) == ["mine", *left]
        killed.start()
        assert files(killed) == ["mine"]
