"""`$out` and `$merge` that a secondary is asked for: it runs the pipeline, and the primary writes."""

import signal
import threading
from datetime import datetime

import pytest
from bson import SON
from members import ReplicaSet, code_of, wait
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.errors import WriteConcernError
from server import ENGINES, send

NEAREST = {"$readPreference": {"mode": "nearest"}}


@pytest.fixture(scope="module")
def rs(new_folder):
    with ReplicaSet(new_folder("set")) as made:
        yield made.initiate()


@pytest.fixture
def db(rs, request):
    """A database with a collection `c`, which all members show. Afterwards all have the same, and nothing temporary."""
    rs.wait_healthy()
    client = rs.client()
    name = request.node.name.split("[")[0][:60]
    client.drop_database(name)
    docs = [{"_id": number, "k": number % 10, "v": number} for number in range(30)]
    client[name].c.with_options(write_concern=WriteConcern(w=3)).insert_many(docs)
    yield client[name]
    # Who has just been elected removes what it finds, and is the primary meanwhile.
    temporary = lambda: [each for each in client[name].list_collection_names() if each.startswith("tmp.")]
    wait(lambda: not temporary(), temporary)
    rs.wait_healthy()
    rs.check_equal()
    client.drop_database(name)


def run(member, db, pipeline, collection="c", **options):
    return send(member, db.name, {"aggregate": collection, "pipeline": pipeline, "cursor": {}, **options, **NEAREST})


def docs_of(member, db, name):
    """As this member shows them now."""
    return send(member, db.name, {"find": name, "sort": {"_id": 1}, "batchSize": 10000, **NEAREST})["cursor"]["firstBatch"]


def test_merge_does_the_same_as_on_the_primary(rs, db):
    pipeline = [{"$match": {"_id": {"$lt": 8}}}, {"$project": {"k": 1, "new": {"$add": ["$v", 100]}}}]
    there = [{"_id": number, "old": number} for number in range(4, 12)]
    update = [{"$set": {"seen": "$$new.new", "of": "$$name"}}]
    modes = [
        {},
        {"whenMatched": "replace"},
        {"whenMatched": "keepExisting"},
        {"whenMatched": "merge", "whenNotMatched": "discard"},
        {"whenMatched": "replace", "whenNotMatched": "discard"},
        {"whenMatched": update, "let": {"name": {"$concat": ["d", {"$toString": "$_id"}]}}},
        {"whenMatched": update, "let": {"name": "$k"}, "whenNotMatched": "discard"},
        {"whenMatched": "merge", "whenNotMatched": "fail"},
        {"whenMatched": "replace", "whenNotMatched": "fail"},
        {"whenMatched": "fail"},
    ]
    for place, mode in enumerate(modes):
        views, replies = [], []
        for name, member in ((f"p{place}", rs.primary), (f"s{place}", rs.secondaries[place % 2])):
            db[name].with_options(write_concern=WriteConcern(w=3)).insert_many(there)
            reply = run(member, db, [*pipeline, {"$merge": {"into": name, **mode}}])
            replies.append((reply["ok"], reply.get("code"), reply.get("keyValue"), reply.get("cursor", {}).get("firstBatch")))
            views.append(list(db[name].find(sort=[("_id", 1)])))
            if reply["ok"]:
                # It shows at once what it had written.
                assert docs_of(member, db, name) == views[-1], mode
        assert views[0] == views[1] and replies[0] == replies[1], (mode, views, replies)
        assert replies[0][0] == ("fail" not in mode.values()), (mode, replies)
    assert len(list(db.s0.find())) == 12 and db.s0.find_one({"_id": 5}) == {"_id": 5, "old": 5, "k": 5, "new": 105}
    assert db.s5.find_one({"_id": 5}) == {"_id": 5, "old": 5, "seen": 105, "of": "d5"}


def test_merge_by_a_unique_index_and_into_another_database(rs, db):
    secondary = rs.secondaries[0]
    other = db.client[f"{db.name}_other"]
    other.drop_collection("d")
    group = {"$group": {"_id": "$k", "sum": {"$sum": "$v"}}}
    into = {"into": {"db": other.name, "coll": "d"}, "on": "k"}
    pipeline = [group, {"$project": {"_id": 0, "k": "$_id", "sum": 1}}, {"$merge": into}]
    assert run(secondary, db, pipeline)["code"] == 51183
    other.d.create_index("k", unique=True)
    for _ in range(2):
        assert run(secondary, db, pipeline)["ok"] == 1
        assert {each["k"]: each["sum"] for each in other.d.find()} == {k: 3 * k + 30 for k in range(10)}
    db.client.drop_database(other.name)


def test_merge_into_the_collection_that_it_reads(rs, db):
    shifted = [{"$set": {"_id": {"$add": ["$_id", 1000]}}}, {"$merge": "c"}]
    assert run(rs.secondaries[1], db, shifted)["ok"] == 1
    assert db.c.count_documents({}) == 60


def test_out_takes_the_place_of_what_was_there(rs, db):
    secondary = rs.secondaries[0]
    db.d.insert_one({"_id": "old"})
    db.d.create_index("u", unique=True, name="kept")
    picked = [{"$match": {"v": {"$gte": 25}}}, {"$set": {"u": "$v"}}, {"$out": "d"}]
    assert run(secondary, db, picked)["ok"] == 1
    expected = [{"_id": number, "k": number % 10, "v": number, "u": number} for number in range(25, 30)]
    assert docs_of(secondary, db, "d") == expected and list(db.d.find(sort=[("_id", 1)])) == expected
    assert "kept" in db.d.index_information()
    # What fails leaves it as it was: in the middle, and before anything is written.
    reply = run(secondary, db, [{"$set": {"u": 1}}, {"$out": "d"}])
    assert reply["code"] == 11000 and reply["keyValue"] == {"u": 1}, reply
    assert run(secondary, db, [{"$set": {"x": {"$divide": [1, {"$subtract": ["$v", 20]}]}}}, {"$out": "d"}])["code"] == 2
    db.create_collection("capped", capped=True, size=4096)
    assert run(secondary, db, [{"$out": "capped"}])["code"] == 17152
    db.create_collection("view", viewOn="c", pipeline=[])
    assert run(secondary, db, [{"$out": "view"}])["code"] == 166
    assert list(db.d.find(sort=[("_id", 1)])) == expected
    # A collection that is not there yet; nothing to write; and what it reads itself.
    assert run(secondary, db, [{"$out": {"db": db.name, "coll": "new"}}])["ok"] == 1
    assert db.new.count_documents({}) == 30
    assert run(secondary, db, [{"$match": {"v": -1}}, {"$out": "new"}])["ok"] == 1
    assert db.new.count_documents({}) == 0 and "new" in db.list_collection_names()
    assert run(secondary, db, [{"$set": {"w": 1}}, {"$out": "c"}])["ok"] == 1
    assert db.c.count_documents({"w": 1}) == 30


def test_out_into_a_time_series_collection(rs, db):
    measured = [{"$project": {"t": {"$add": [datetime(2024, 1, 1), {"$multiply": ["$v", 60000]}]}, "m": "$k", "v": 1}}]
    out = {"$out": {"db": db.name, "coll": "ts", "timeseries": {"timeField": "t", "metaField": "m"}}}
    for secondary in rs.secondaries:
        for _ in range(2):
            reply = run(secondary, db, [*measured, out])
            assert reply["ok"] == 1, reply
            assert db.ts.count_documents({"m": 3}) == 3 and db.ts.count_documents({}) == 30
    (info,) = db.list_collections(filter={"name": "ts"})
    assert info["type"] == "timeseries"


def test_many_and_large_documents(rs, db):
    secondary = rs.secondaries[0]
    many = [{"$set": {"n": {"$range": [0, 200]}}}, {"$unwind": "$n"}, {"$set": {"_id": {"$add": [{"$multiply": ["$_id", 1000]}, "$n"]}}}]
    assert run(secondary, db, [*many, {"$out": "many"}])["ok"] == 1
    assert db.many.count_documents({}) == 6000
    assert run(secondary, db, [*many, {"$set": {"again": True}}, {"$merge": "many"}])["ok"] == 1
    assert db.many.count_documents({"again": True}) == 6000
    large = db.get_collection("large", write_concern=WriteConcern(w=3))
    for number, size in enumerate([16 * 1024 * 1024 - 100, 3_000_000, 3_900_000, 9_000_000, 5_000_000]):
        large.insert_one({"_id": number, "s": "x" * size})
    for stage in ({"$out": "copy"}, {"$merge": "copy"}):
        assert run(secondary, db, [stage], "large")["ok"] == 1, stage
    sizes = [{"$project": {"size": {"$strLenBytes": "$s"}}}, {"$sort": {"_id": 1}}]
    assert list(db.copy.aggregate(sizes)) == list(db.large.aggregate(sizes))


def test_drivers_and_write_concerns(rs, db):
    elsewhere = db.get_collection("c", read_preference=ReadPreference.SECONDARY, write_concern=WriteConcern(w=3))
    primary = rs.primary.direct.admin.command("serverStatus")["metrics"]["commands"]["aggregate"]["total"]
    elsewhere.aggregate([{"$match": {"k": 1}}, {"$out": "d"}])
    elsewhere.aggregate([{"$match": {"k": 2}}, {"$merge": "d"}])
    assert rs.primary.direct.admin.command("serverStatus")["metrics"]["commands"]["aggregate"]["total"] == primary
    # All three show it, since the write concern says so.
    for member in rs.members:
        assert len(docs_of(member, db, "d")) == 6
    too_many = elsewhere.with_options(write_concern=WriteConcern(w=5, wtimeout=100))
    for stage in ({"$out": "d"}, {"$merge": "d"}):
        with pytest.raises(WriteConcernError):
            too_many.aggregate([{"$match": {"k": 3}}, stage])
    assert sorted(each["_id"] for each in db.d.find()) == [3, 13, 23]
    with db.client.start_session(causal_consistency=True) as session:
        waits_for_none = elsewhere.with_options(write_concern=WriteConcern(w=1))
        waits_for_none.aggregate([{"$set": {"causal": 1}}, {"$out": "d"}], session=session)
        after = {"readConcern": {"afterClusterTime": session.operation_time}, "$clusterTime": session.cluster_time}
        for member in rs.members:
            assert send(member, db.name, {"count": "d", "query": {"causal": 1}, **after, **NEAREST})["n"] == 30


def test_what_a_secondary_refuses(rs, db):
    secondary = rs.secondaries[0]
    command = SON([("aggregate", "c"), ("pipeline", [{"$out": "d"}]), ("cursor", {})])
    assert send(secondary, db.name, command)["code"] == 13435
    assert run(secondary, db, [{"$out": "d"}], readConcern={"level": "linearizable"})["code"] in (72, 10107)
    assert run(secondary, db, [{"$merge": {"into": {"db": "admin", "coll": "d"}}}])["code"] == 31319
    assert send(secondary, db.name, {"_tenonWriteResults": "begin", "stage": {"$out": "d"}, **NEAREST})["code"] == 10107
    assert "d" not in db.list_collection_names()


def test_who_waits_for_a_primary_that_stands_still_can_be_killed(rs, db):
    secondary, primary = rs.secondaries[0], rs.primary
    replies = []
    command = {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}, "comment": "stands still", **NEAREST}
    asking = threading.Thread(target=lambda: replies.append(send(secondary, db.name, command)))

    def running():
        found = secondary.direct.admin.command({"currentOp": 1, "command.comment": "stands still"})["inprog"]
        return found and found[0]["opid"]

    primary.process.send_signal(signal.SIGSTOP)
    try:
        asking.start()
        secondary.direct.admin.command("killOp", op=wait(running, "the pipeline to run"))
        asking.join(timeout=30)
        assert replies and replies[0]["code"] == 11601, replies
    finally:
        primary.process.send_signal(signal.SIGCONT)
    rs.wait_healthy()
    # What the old primary has begun since, the next one removes.
    rs.primary.direct.admin.command("replSetStepDown", 60, force=True)
    rs.wait_healthy()


def test_without_a_primary_nothing_is_written(rs, db):
    primary, secondary = rs.primary, rs.secondaries[0]
    before = db.c.count_documents({})
    for each in rs.members:
        if each is not secondary:
            each.stop()
    try:
        reply = wait(lambda: (said := run(secondary, db, [{"$set": {"x": 1}}, {"$merge": "c"}]))["code"] in (189, 6) and said)
        assert "x" not in docs_of(secondary, db, "c")[0], reply
    finally:
        for each in rs.members:
            if not each.is_running:
                each.start()
    rs.wait_healthy()
    assert primary.is_running and db.c.count_documents({}) == before


def test_users_write_by_their_own_rights(new_folder):
    key = new_folder("key") / "key"
    key.write_text("aSharedSecret456")
    key.chmod(0o600)
    with ReplicaSet(new_folder("set"), engines=[ENGINES[0]] * 3, options=["--keyFile", str(key)]) as rs:
        system = {"username": "__system", "authSource": "local", "password": "aSharedSecret456", "directConnection": True}
        member = MongoClient("127.0.0.1", rs[0].port, **system)
        member.admin.command("replSetInitiate", rs.config())
        primary = wait(lambda: next((each for each in rs.members if each.hello()["isWritablePrimary"]), None))
        root = MongoClient("127.0.0.1", primary.port, directConnection=True)
        root.admin.command("createUser", "root", pwd="r", roles=["root"])
        root.close()
        hosts = ",".join(each.host for each in rs.members)
        root = MongoClient(f"mongodb://root:r@{hosts}/?replicaSet=rs0", w=3)
        reads = {"resource": {"db": "shop", "collection": ""}, "actions": ["find"]}
        inserts = {"resource": {"db": "shop", "collection": "d"}, "actions": ["insert", "update", "remove"]}
        root.admin.command("createRole", "writer", privileges=[reads, inserts], roles=[])
        root.admin.command("createUser", "reader", pwd="r", roles=[{"role": "read", "db": "shop"}])
        root.admin.command("createUser", "writer", pwd="r", roles=["writer"])
        root.shop.c.insert_many([{"_id": number} for number in range(5)])
        rs_secondary = next(each for each in rs.members if each is not primary)

        def as_user(name):
            client = MongoClient("127.0.0.1", rs_secondary.port, username=name, password="r", directConnection=True)
            return client, client.shop.get_collection("c", read_preference=ReadPreference.NEAREST)

        wait(lambda: as_user("writer")[1].find_one())
        for stage in ({"$out": "d"}, {"$merge": "d"}):
            client, collection = as_user("reader")
            assert code_of(collection.aggregate, [stage]) == 13, stage
            client.close()
        assert root.shop.d.count_documents({}) == 0
        client, collection = as_user("writer")
        collection.aggregate([{"$out": "d"}])
        collection.aggregate([{"$set": {"x": 1}}, {"$merge": "d"}])
        assert root.shop.d.count_documents({"x": 1}) == 5
        assert code_of(collection.aggregate, [{"$merge": "e"}]) == 13
        # Nor does the way between members lead around what holds users' writes off.
        root.admin.command({"setUserWriteBlockMode": 1, "global": True})
        for stage in ({"$out": "d"}, {"$merge": "d"}):
            assert code_of(collection.aggregate, [stage]) == 371, stage
        assert root.shop.d.count_documents({"x": 1}) == 5
        root.admin.command({"setUserWriteBlockMode": 1, "global": False})
        collection.aggregate([{"$out": "d"}])
        assert root.shop.d.count_documents({"x": 1}) == 0
        for each in (client, root, member):
            each.close()
