"""Which plan a query runs by, where other values would have another one run."""

import os
import random

from server import Server

COUNT = 6000
# Less than the plan of the other query looks at. What a failed trial and a race look at is not counted.
EXAMINED_MAX = 1500


def test_a_cached_plan_that_works_too_much_is_replaced_within_the_query(client, db):
    db.c.insert_many([{"_id": i, "a": int(i == 5), "b": int(i == 7)} for i in range(COUNT)])
    db.c.create_index("a")
    db.c.create_index("b")
    db.command("profile", 2)
    before = client.admin.command("serverStatus")["metrics"]["query"]["planCache"]["classic"]
    queries = [({"a": 1, "b": 0}, 5), ({"a": 0, "b": 1}, 7)]
    for turn in range(3):
        for query, found in queries:
            assert [d["_id"] for d in db.c.find(query)] == [found]
            assert db.c.count_documents(query) == 1
            assert db.c.distinct("_id", query) == [found]
            assert [d["x"] for d in db.c.aggregate([{"$match": query}, {"$set": {"x": {"$add": ["$_id", 1]}}}])] == [found + 1]
            assert db.c.update_many(query, {"$set": {f"many{turn}": True}}).modified_count == 1
            assert db.c.update_one(query, {"$set": {f"one{turn}": True}}).modified_count == 1
            assert db.c.find_one_and_update(query, {"$set": {f"found{turn}": True}})["_id"] == found
    db.command("profile", 0)
    entries = [entry for entry in db["system.profile"].find() if entry["ns"].endswith(".c")]
    assert len(entries) == 3 * 2 * 7
    for entry in entries:
        examined = entry["keysExamined"] + entry["docsExamined"]
        assert examined <= EXAMINED_MAX, entry
    assert sum(entry.get("replanned", False) for entry in entries) >= 8
    assert all(entry["fromPlanCache"] for entry in entries if "replanned" in entry)
    after = client.admin.command("serverStatus")["metrics"]["query"]["planCache"]["classic"]
    assert after["replanned"] - before["replanned"] >= 8 and after["hits"] > before["hits"]
    assert after["misses"] > before["misses"]
    assert all(d[f"{kind}{turn}"] for d in db.c.find({"_id": {"$in": [5, 7]}}) for kind in ("many", "one", "found") for turn in range(3))
    assert db.c.count_documents({"many0": {"$exists": True}}) == 2


def test_writes_of_many_by_a_cached_plan_write_each_once(db):
    db.c.insert_many([{"_id": i, "a": i % 3, "b": i % 2, "n": 0} for i in range(1200)])
    db.c.create_index("a")
    db.c.create_index("b")
    for expected in range(1, 4):
        assert db.c.update_many({"a": 1, "b": 1}, {"$inc": {"n": 1}}).modified_count == 200
        assert db.c.distinct("n", {"a": 1, "b": 1}) == [expected]
        assert db.c.distinct("n", {"a": {"$ne": 1}}) == [0]
    assert db.c.delete_many({"a": 1, "b": 1}).deleted_count == 200
    assert db.c.count_documents({}) == 1000


def test_variables_of_a_merge_pipeline(db):
    db.s.insert_many([{"_id": i, "n": i} for i in range(50)])
    db.t.insert_many([{"_id": i} for i in range(50)])
    merge = {"into": "t", "let": {"own": "$n", "both": {"$add": ["$n", "$$given"]}}}
    merge["whenMatched"] = [{"$set": {"own": "$$own", "both": "$$both", "given": "$$given", "text": {"$strLenBytes": "$$text"}}}]
    db.s.aggregate([{"$merge": merge}], let={"given": 100, "both": -1, "text": "x" * 100_000})
    expected = [{"_id": i, "own": i, "both": i + 100, "given": 100, "text": 100_000} for i in range(50)]
    assert list(db.t.find().sort("_id", 1)) == expected


def test_large_conditions_find_the_same_with_indexes(db):
    count = 4000
    db.c.insert_many([{"_id": i, "a": i} for i in range(0, 2 * count, 1000)])
    queries = [
        {"$and": [{"a": {"$ne": i}} for i in range(count)]},
        {"$nor": [{"a": i} for i in range(count)]},
        {"$and": [{"a": {"$in": list(range(0, 2 * count, 2))}}, *({"a": {"$gt": i}} for i in range(count - 1000))]},
    ]
    pipeline = [{"$addFields": {f"f{i}": 1}} for i in range(100)] + [{"$match": {"a": {"$in": list(range(count))}}}]
    text = "x" * 100_000
    many = {"$expr": {"$and": [{"$gte": ["$a", "$$text"]}] * 200}}

    def answers():
        found = [sorted(d["_id"] for d in db.c.find(query)) for query in queries]
        found.append(sorted(d["_id"] for d in db.c.aggregate(pipeline)))
        return found + [sorted(d["_id"] for d in db.c.aggregate([{"$match": many}], let={"text": text}))]

    db.c.insert_many([{"_id": -1, "a": "x" * 10}, {"_id": -2, "a": "y"}])
    without = answers()
    assert without[0] == without[1] == [-2, -1, *range(count, 2 * count, 1000)] and without[4] == [-2]
    db.c.create_index("a")
    db.c.create_index([("a", -1), ("b", 1)])
    assert answers() == without


def test_many_branches_are_explained_in_one_reply(db):
    """That was larger than a document may be, or took the square of the branches."""
    db.c.insert_many([{"_id": i, "a": i, "b": -i, "c": "here"} for i in range(1000)])
    db.c.create_index([("a", 1), ("b", 1)])
    for count, order in ((14_000, None), (900, [("b", 1)])):
        query = {"$or": [{"a": i, "c": {"$in": ["here", "x" * 60]}} for i in range(count)]}
        cursor = db.c.find(query).sort(order) if order else db.c.find(query)
        explained = cursor.explain()
        assert "stage" in explained["queryPlanner"]["winningPlan"]
        assert explained["executionStats"]["nReturned"] == min(count, 1000)
        assert "command" in explained and "warning" not in explained


def test_no_document_is_read_that_is_not_wanted(server, client, db):
    """Documents are read some at a time, in the order in which they lie, which the counts of reads must not show."""
    count = 3000
    order = [i * 7919 % count for i in range(count)]
    db.c.insert_many([{"_id": i, "n": n, "other": n, "m": [n, n + 0.1, n + 0.2], "far": [n, n + count, n + 2 * count], "even": n % 2 == 0} for i, n in enumerate(order)])
    for key in ("n", "m", "far", "other", [("even", 1), ("n", 1)]):
        db.c.create_index(key)

    def gets():
        engine = client.admin.command("serverStatus")["tenon"]["engine"]
        return engine["reads"]["gets"] if "reads" in engine else None

    def open_cursors():
        return client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]

    open_before = open_cursors()

    def reads(expected, examined, query):
        """Runs a query; checks what it finds, and what it reads on an engine that tells."""
        before = gets()
        assert [document["n"] for document in query()] == expected
        if before is not None:
            assert gets() - before == examined
        assert open_cursors() == open_before

    up, down = list(range(count)), list(range(count))[::-1]
    everything = {"n": {"$gte": 0}}
    for limit in (1, 2, 3, 16, 17, 40, 101, 102, 300, 1000):
        reads(up[:limit], limit, lambda: db.c.find(everything).sort("n", 1).limit(limit))
        reads(down[:limit], limit, lambda: db.c.find(everything).sort("n", -1).limit(limit))
        # What is skipped is read, too: a plan skips behind its fetch.
        reads(up[50 : 50 + limit], 50 + limit, lambda: db.c.find(everything).sort("n", 1).skip(50).limit(limit))
    for batch in (2, 10, 100, 500):
        reads(up, count, lambda: db.c.find(everything).sort("n", 1).batch_size(batch))
    # A cursor that is given up early.
    before = gets()
    cursor = db.c.find(everything).sort("n", 1).batch_size(30)
    assert [next(cursor)["n"] for _ in range(50)] == up[:50]
    cursor.close()
    assert before is None or gets() - before == 60
    # Of points of a unique index each is a look-up, and its document another.
    points = {"_id": {"$in": list(range(0, count, 10))}}
    found = order[::10]
    reads(found[:25], 50, lambda: db.c.find(points).sort("_id", 1).limit(25))
    reads(found[::-1][:60], 120, lambda: db.c.find(points).sort("_id", -1).limit(60))
    for batch in (30, 77, 1000):
        reads(found, 600, lambda: db.c.find(points).sort("_id", 1).batch_size(batch))
    # Two are looked up, and then, as none is there, all others.
    reads(order[:20:10], 6 + 2, lambda: db.c.find({"_id": {"$in": [0, 10, -1, -2, -3, 20]}}).sort("_id", 1).limit(2))
    # Between other ranges, where entries are jumped over.
    some = {"n": {"$in": up[::10]}}
    reads(up[::10][:25], 25, lambda: db.c.find(some).sort("n", 1).limit(25))
    parted = {"n": {"$in": [*range(20), *range(1000, 1020), *range(2000, 2020)]}}
    reads([*range(20), *range(1000, 1015)], 35, lambda: db.c.find(parted).sort("n", 1).limit(35))
    # Inputs of a merge, each of which has been asked for one row more than it gave.
    merged = {"even": {"$in": [True, False]}, "n": {"$gte": 0}}
    hint = [("even", 1), ("n", 1)]
    reads(up[:20], 21, lambda: db.c.find(merged).hint(hint).sort("n", 1).limit(20))
    # A filter on documents: a hundred are wanted, and half of them are not these.
    odd = {"n": {"$gte": 0}, "even": {"$ne": True}}
    reads(up[1::2][:100], 200, lambda: db.c.find(odd).hint("n_1").sort("n", 1).limit(100))
    # Each record has three entries, and is given and read once: side by side, and far apart.
    for field, few in (("m", 64), ("far", 10)):
        several = {field: {"$gte": 0}}
        assert sorted(d["n"] for d in db.c.find(several).hint(f"{field}_1")) == up
        before = gets()
        assert [d["n"] for d in db.c.find(several).hint(f"{field}_1").limit(few)] == up[:few]
        assert before is None or gets() - before == few
        before = gets()
        assert len(list(db.c.find(several).hint(f"{field}_1").batch_size(500))) == count
        assert before is None or gets() - before == count
    # Of a union the second branch finds half of the records again.
    union = {"$or": [{"n": {"$lt": 200}}, {"other": {"$lt": 300}}]}
    before = gets()
    assert sorted(d["n"] for d in db.c.find(union)) == up[:300]
    assert before is None or gets() - before == 300
    # Documents of which a group has only some: from memory, and after updates.
    long = {n: (50, 1500, 4000, 9000, 30_000)[n % 5] for n in range(600)}
    db.long.insert_many([{"_id": i, "n": i * 7 % 600, "text": "x" * long[i * 7 % 600]} for i in range(600)])
    db.long.create_index("n")
    for _ in range(2):
        for batch in (101, 1000):
            reads(list(range(600)), 600, lambda: db.long.find(everything).sort("n", 1).batch_size(batch))
        reads(list(range(150)), 150, lambda: db.long.find(everything).sort("n", 1).limit(150))
        db.long.update_many({}, {"$inc": {"turn": 1}})
    # Writers take few at first.
    before = gets()
    assert db.c.find_one_and_update(everything, {"$set": {"x": 1}}, sort=[("n", 1)])["n"] == 0
    assert before is None or gets() - before <= 4
    assert db.c.update_many({"n": {"$lt": 500}}, {"$set": {"y": 1}}).modified_count == 500
    assert db.c.delete_many({"n": {"$gte": 2500}}).deleted_count == 500
    assert [d["n"] for d in db.c.find({"n": {"$gte": 0}, "y": 1}).sort("n", -1)] == down[2500:]


def test_the_disk_is_asked_for_several_documents_at_once(tmp_path):
    seed, count = int(os.environ.get("TENON_SEED", random.randrange(1 << 32))), 60_000
    print("TENON_SEED", seed)
    server = Server(tmp_path / "data", "btree", options=["--wiredTigerCacheSizeGB", "0.02"])
    server.start()
    collection = server.client().test.orders
    rng = random.Random(seed)
    for start in range(0, count, 5000):
        collection.insert_many([order(rng, i) for i in range(start, start + 5000)])
    collection.create_index("at")
    server.stop()
    # Where the file system has no disk below it, everything is in memory.
    is_cold = all([forget(path) for path in (tmp_path / "data").rglob("*") if path.is_file() and path.stat().st_size > 1 << 20])
    server.start()
    collection = server.client().test.orders
    rng = random.Random(seed)
    orders = [order(rng, i) for i in range(count)]
    by_at = sorted(orders, key=lambda order: order["at"])

    def told():
        cache = server.client().admin.command("serverStatus")["tenon"]["engine"]["cache"]
        return cache["pagesExpected"], cache["pagesReadInPart"], cache["rowsFromLastBlock"]

    before = told()
    for start in range(0, count - 500, 1500):
        low = by_at[start]["at"]
        assert list(collection.find({"at": {"$gte": low}}).sort("at", 1).limit(100)) == by_at[start : start + 100]
        ids = sorted(rng.sample(range(count), 100))
        assert list(collection.find({"_id": {"$in": ids}}).sort("_id", -1)) == [orders[i] for i in reversed(ids)]
        near = {"_id": {"$gte": start, "$lt": start + 60}}
        assert list(collection.find(near).hint("_id_").sort("_id", 1)) == orders[start : start + 60]
    after = told()
    assert after[1] > before[1] + 1000 and after[2] > before[2] + 100
    assert not is_cold or after[0] > before[0] + 500
    server.stop()


def forget(path):
    """Has the system's cache drop a file. False where it does not."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            return os.preadv(file.fileno(), [bytearray(1)], path.stat().st_size // 2, os.RWF_NOWAIT) == 0
        except OSError:
            return True


def order(rng, i):
    """One of those whose fields have names, as most documents are; no two have the same time."""
    items = [{"sku": f"{rng.getrandbits(32):08x}", "quantity": rng.randrange(1, 9), "unitPrice": rng.randrange(9999) / 100} for _ in range(rng.randrange(1, 5))]
    address = {"street": f"street {rng.randrange(10_000)}", "city": f"city {rng.randrange(500)}", "postalCode": f"{rng.randrange(99_999):05d}"}
    return {"_id": i, "customer": {"firstName": f"first {rng.randrange(500)}", "lastName": f"last {rng.randrange(500)}"}, "shippingAddress": address, "items": items, "at": rng.getrandbits(30) * 100_000 + i}
