"""Administrative commands, with the fields and types that clients and tools read."""

import json
import threading
import time
import uuid

import pytest
from bson import Int64
from pymongo import DeleteOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure
from server import ENGINES, Server


def test_hello_and_build_info(client):
    hello = client.admin.command("hello")
    assert hello["isWritablePrimary"] is True and hello["maxWireVersion"] == 25
    assert (hello["maxBsonObjectSize"], hello["maxMessageSizeBytes"], hello["maxWriteBatchSize"]) == (16777216, 48000000, 100000)
    assert client.admin.command("isMaster")["ismaster"] is True
    info = client.admin.command("buildInfo")
    assert info["version"].startswith("8.0.") and info["versionArray"][:2] == [8, 0] and "tenonVersion" in info
    assert client.server_info()["version"] == info["version"]


def test_server_status_has_the_types_tools_insist_on(server, client):
    status = client.admin.command("serverStatus")
    assert isinstance(status["uptime"], float) and status["uptime"] == int(status["uptime"])
    assert status["process"] == "mongod" and isinstance(status["pid"], Int64)
    assert status["storageEngine"]["name"] == server.engine
    assert isinstance(status["metrics"]["cursor"]["open"]["total"], Int64)
    assert status["mem"]["resident"] > 0 and status["connections"]["current"] >= 1
    before = status["opcounters"]["insert"]
    client.t_status.c.insert_many([{} for _ in range(7)])
    after = client.admin.command("serverStatus", recordStats=0, locks=0)
    assert after["opcounters"]["insert"] == before + 7
    assert "locks" not in after
    assert after["metrics"]["document"]["inserted"] >= 7
    client.drop_database("t_status")


def test_listing(db, client):
    db.b.insert_one({})
    db.create_collection("a", capped=True, size=256)
    names = [c["name"] for c in db.list_collections()]
    assert names == ["a", "b"]
    [b] = db.list_collections(filter={"name": "b"})
    assert b["type"] == "collection" and b["options"] == {} and b["idIndex"]["key"] == {"_id": 1}
    assert isinstance(b["info"]["uuid"], (uuid.UUID, bytes))
    listed = client.admin.command("listDatabases")
    mine = [d for d in listed["databases"] if d["name"] == db.name]
    assert mine and mine[0]["empty"] is False
    assert db.name in client.list_database_names()
    assert client.admin.command("listDatabases", nameOnly=True, filter={"name": db.name})["databases"] == [{"name": db.name}]


def test_create_drop_rename(db, client):
    db.create_collection("c")
    db.command("create", "c")
    with pytest.raises(OperationFailure) as error:
        db.command("create", "c", capped=True, size=1000)
    assert error.value.code == 48
    db.c.insert_one({"_id": 1})
    db.c.create_index("x")
    db.c.rename("d")
    assert db.list_collection_names() == ["d"]
    assert "x_1" in db.d.index_information() and db.d.find_one() == {"_id": 1}
    db.e.insert_one({"_id": 2})
    with pytest.raises(OperationFailure) as error:
        db.d.rename("e")
    assert error.value.code == 48
    db.d.rename("e", dropTarget=True)
    assert db.e.find_one() == {"_id": 1}
    assert db.command("drop", "e")["nIndexesWas"] == 2
    assert db.command("drop", "e")["ok"] == 1
    db.c.insert_one({})
    assert client.drop_database(db.name) is None
    assert db.name not in client.list_database_names()


def test_coll_mod(db):
    db.c.create_index("t", expireAfterSeconds=100)
    changed = db.command("collMod", "c", index={"name": "t_1", "expireAfterSeconds": 50})
    assert changed["expireAfterSeconds_old"] == 100 and changed["expireAfterSeconds_new"] == 50
    assert db.c.index_information()["t_1"]["expireAfterSeconds"] == 50
    db.command("collMod", "c", index={"keyPattern": {"t": 1}, "hidden": True})
    assert db.c.index_information()["t_1"]["hidden"] is True
    with pytest.raises(OperationFailure) as error:
        db.command("collMod", "c", expireAfterSeconds=100)
    assert error.value.code == 72, "only a time-series or a clustered collection expires by itself"


def test_statistics(db):
    db.c.insert_many([{"_id": i, "pad": "x" * 1000} for i in range(100)])
    stats = db.command("collStats", "c")
    assert stats["count"] == 100 and 100_000 < stats["size"] < 110_000 and stats["nindexes"] == 1
    database = db.command("dbStats")
    assert database["objects"] == 100 and database["dataSize"] == float(stats["size"])
    assert db.command("dataSize", f"{db.name}.c")["numObjects"] == 100
    [through_stage] = db.c.aggregate([{"$collStats": {"storageStats": {}, "count": {}}}])
    assert through_stage["count"] == 100 and through_stage["storageStats"]["count"] == 100
    assert {d["name"] for d in db.c.aggregate([{"$indexStats": {}}])} == {"_id_"}


def test_explain(db):
    db.c.insert_many([{"_id": i, "a": i} for i in range(100)])
    db.c.create_index("a")
    explained = db.command("explain", {"find": "c", "filter": {"a": {"$lt": 10}}}, verbosity="executionStats")
    stats = explained["executionStats"]
    assert (stats["nReturned"], stats["totalKeysExamined"], stats["totalDocsExamined"]) == (10, 10, 10)
    assert explained["queryPlanner"]["namespace"] == f"{db.name}.c"
    assert explained["serverInfo"]["version"].startswith("8.0.")
    planner = explained["queryPlanner"]
    assert planner["queryHash"] == planner["planCacheShapeHash"] and len(planner["planCacheKey"]) == 8
    assert len(explained["queryShapeHash"]) == 64
    again = db.command("explain", {"find": "c", "filter": {"a": {"$lt": 99}}}, verbosity="queryPlanner")
    assert again["queryShapeHash"] == explained["queryShapeHash"]
    assert again["queryPlanner"]["planCacheKey"] == planner["planCacheKey"]
    by_id = db.command("explain", {"find": "c", "filter": {"_id": 1}}, verbosity="executionStats")
    stage = by_id["executionStats"]["executionStages"]
    assert (stage["stage"], stage["keyPattern"], stage["docsExamined"]) == ("EXPRESS_IXSCAN", "{ _id: 1 }", 1)
    assert by_id["queryPlanner"]["planCacheShapeHash"] != planner["planCacheShapeHash"]
    for command in [
        {"count": "c", "query": {"a": 1}},
        {"distinct": "c", "key": "a"},
        {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$group": {"_id": "$a"}}], "cursor": {}},
        {"update": "c", "updates": [{"q": {"a": 1}, "u": {"$set": {"b": 1}}}]},
        {"delete": "c", "deletes": [{"q": {"a": 1}, "limit": 0}]},
        {"findAndModify": "c", "query": {"a": 1}, "remove": True},
    ]:
        explained = db.command("explain", command, verbosity="queryPlanner")
        assert "queryPlanner" in explained or "stages" in explained, explained
    assert db.c.count_documents({}) == 100


def test_parameters_and_logs(client):
    admin = client.admin
    assert admin.command("getParameter", featureCompatibilityVersion=1)["featureCompatibilityVersion"] == {"version": "8.0"}
    with pytest.raises(OperationFailure) as error:
        admin.command("getParameter", "foo")
    assert error.value.code == 72
    assert "logLevel" in admin.command("getParameter", "*")
    was = admin.command("setParameter", 1, cursorTimeoutMillis=300_000)["was"]
    assert admin.command("getParameter", 1, cursorTimeoutMillis=1)["cursorTimeoutMillis"] == 300_000
    admin.command("setParameter", 1, cursorTimeoutMillis=was)
    assert admin.command("getLog", "*")["names"] == ["global", "startupWarnings"]
    assert any('"c":"NETWORK"' in line for line in admin.command("getLog", "global")["log"])
    options = admin.command("getCmdLineOpts")
    assert "--storageEngine" in options["argv"] and options["parsed"]["storage"]["engine"]
    assert admin.command("hostInfo")["os"]["type"] == "Linux"
    assert admin.command("connectionStatus", showPrivileges=True)["authInfo"]["authenticatedUsers"] == []
    assert ":" in admin.command("whatsmyuri")["you"]
    assert "find" in admin.command("listCommands")["commands"]


@pytest.mark.parametrize("engine", ENGINES)
def test_slow_operations_are_logged(tmp_path, engine):
    with Server(tmp_path, engine, options=["--slowms", "0"]) as slow:
        collection = slow.client(appname="slow test").t.c
        collection.insert_many([{"a": i} for i in range(100)])
        assert len(list(collection.find({"a": {"$gte": 50}}))) == 50
        lines = [json.loads(line) for line in slow.log.read_text().splitlines()]
    [find] = [line for line in lines if line["msg"] == "Slow query" and "find" in line["attr"]["command"]]
    assert (find["s"], find["c"], find["id"]) == ("I", "COMMAND", 51803)
    attributes = find["attr"]
    assert attributes["ns"] == "t.c" and attributes["planSummary"] == "COLLSCAN" and attributes["appName"] == "slow test"
    assert (attributes["docsExamined"], attributes["nreturned"]) == (100, 50)
    # One engine has nothing finer than a collection to lock.
    mode = "R" if engine == "mmapv1" else "r"
    assert attributes["locks"]["Collection"]["acquireCount"][mode] >= 1 and attributes["durationMillis"] >= 0


def test_top_counts_per_collection(db, client):
    db.c.insert_one({})
    list(db.c.find())
    totals = client.admin.command("top")["totals"]
    mine = totals[f"{db.name}.c"]
    assert mine["insert"]["count"] >= 1 and mine["queries"]["count"] >= 1


def test_validate_and_compact(db):
    db.c.insert_many([{"a": i} for i in range(1000)])
    db.c.create_index("a")
    report = db.command("validate", "c", full=True)
    assert report["valid"] and report["nrecords"] == 1000 and report["keysPerIndex"] == {"_id_": 1000, "a_1": 1000}
    db.command("compact", "c")
    assert db.c.count_documents({}) == 1000


def test_fsync_lock_holds_writes_back(db, server):
    from pymongo import WriteConcern
    from pymongo.errors import ExecutionTimeout, OperationFailure

    admin = server.client().admin
    db.c.insert_one({"_id": 0})
    assert admin.command("fsync", lock=True)["lockCount"] == 1
    try:
        with pytest.raises((ExecutionTimeout, OperationFailure)):
            db.command("insert", "c", documents=[{"_id": 1}], maxTimeMS=50, write_concern=WriteConcern(w=1))
        assert db.c.find_one() == {"_id": 0}
    finally:
        assert admin.command("fsyncUnlock")["lockCount"] == 0
    db.c.insert_one({"_id": 2})
    assert sorted(d["_id"] for d in db.c.find()) == [0, 2]


def test_operations_that_wait_are_shown(db, server):
    db.c.insert_one({"_id": 0})
    admin = server.client().admin
    queue = admin.command("serverStatus")["globalLock"]["currentQueue"]
    assert queue == {"total": 0, "readers": 0, "writers": 0}
    admin.command("fsync", lock=True)
    done = []
    long = "x" * 10_000

    def write():
        server.client()[db.name].command("insert", "c", documents=[{"_id": 1}], comment=long)
        done.append(True)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3000):
            queue = admin.command("serverStatus")["globalLock"]["currentQueue"]
            if queue["writers"]:
                break
            time.sleep(0.02)
        assert queue == {"total": 1, "readers": 0, "writers": 1} and not done
        [shown] = admin.command("currentOp", op="insert")["inprog"]
        assert shown["waitingForLock"] is True and shown["ns"] == f"{db.name}.c"
        assert shown["command"]["$truncated"].startswith('{ insert: "c"')
    finally:
        admin.command("fsyncUnlock")
        writer.join()
    assert done == [True]
    [own] = admin.command("aggregate", 1, pipeline=[{"$currentOp": {}}, {"$match": {"command.aggregate": 1}}], cursor={})["cursor"]["firstBatch"]
    assert own["ns"] == "admin.$cmd.aggregate" and own["waitingForLock"] is False


def test_what_is_not_there_says_so(client, db):
    for database, command, code in [
        (client.admin, {"nonesuch": 1}, 59),
        (client.admin, {"moveChunk": "c.d"}, 238),
        (client.admin, {"createSearchIndexes": "c", "indexes": []}, 31082),
        (client.admin, {"atlasVersion": 1}, 59),
        (client.admin, {"replSetGetStatus": 1}, 76),
        (db, {"find": "c", "nonesuch": 1}, 40415),
        (db, {"find": "c", "limit": "x"}, 14),
        (db, {"drop": "c", "collectionUUID": uuid.uuid4().bytes}, 40415),
        (db, {"find": 5}, 73),
        (db, {"listDatabases": 1}, 13),
        (db, {"insert": "c", "documents": []}, 16),
        (db, {"insert": "c"}, 40414),
        (db, {"find": "c", "filter": {}, "readConcern": {"level": "snapshot"}}, 123),
        (db, {"insert": "c", "documents": [{}], "writeConcern": {"w": 3}}, 2),
        (db, {"insert": "c", "documents": [{}], "lsid": {"id": uuid.uuid4().bytes}, "txnNumber": Int64(1)}, None),
    ]:
        with pytest.raises(OperationFailure) as error:
            database.command(command)
        assert code is None or error.value.code == code, (command, error.value)
    assert db.list_collection_names() == []


def test_statistics_of_a_view_are_not_its_pipelines(db):
    db.create_collection("v", viewOn="c", pipeline=[{"$match": {"a": 1}}])
    [of_view] = db.v.aggregate([{"$collStats": {"latencyStats": {}}}])
    assert of_view["ns"] == f"{db.name}.v" and "reads" in of_view["latencyStats"]
    for part in ["storageStats", "count"]:
        with pytest.raises(OperationFailure) as refused:
            db.v.aggregate([{"$collStats": {part: {}}}])
        assert refused.value.code == 166, part


def test_a_lock_that_somebody_else_has_is_refused_at_once(client, db):
    """It was tried 17 times: whoever locks by an upsert cannot get what is not free, as the filter tells of more than the key."""
    conflicts = lambda: client.admin.command("serverStatus")["metrics"]["operation"]["writeConflicts"]  # noqa: E731
    db.locks.insert_one({"_id": "L", "until": 100})
    db.locks.create_index("k", unique=True)
    before = conflicts()
    update = {"q": {"_id": "L", "until": {"$lt": 50}}, "u": {"$set": {"until": 60}}, "upsert": True}
    [error] = db.command("update", "locks", updates=[update])["writeErrors"]
    assert error["code"] == 11000
    with pytest.raises(OperationFailure) as refused:
        db.command("findAndModify", "locks", query=update["q"], update=update["u"], upsert=True)
    assert refused.value.code == 11000
    db.locks.update_one({"_id": "L"}, {"$set": {"k": 5}})
    # The key is another one than that of the filter.
    other = {"q": {"k": 77}, "u": {"$set": {"k": 5}}, "upsert": True}
    [error] = db.command("update", "locks", updates=[other])["writeErrors"]
    assert error["code"] == 11000
    # An equality of another field tells more than the key, too.
    held = {"q": {"_id": "L", "until": 50}, "u": {"$set": {"until": 60}}, "upsert": True}
    [error] = db.command("update", "locks", updates=[held])["writeErrors"]
    assert error["code"] == 11000
    # Others of the server have some now and then; one statement that is tried again has 16.
    assert conflicts() - before < 16
    assert db.locks.find_one() == {"_id": "L", "until": 100, "k": 5}


def test_upserts_of_one_key_at_once_all_take_effect(db):
    db.counts.create_index("k", unique=True, sparse=True)
    failed = []

    def count():
        try:
            for number in range(100):
                db.counts.update_one({"_id": number}, {"$inc": {"n": 1}}, upsert=True)
                db.counts.update_one({"k": 1000 + number}, {"$inc": {"n": 1}}, upsert=True)
        except OperationFailure as error:
            failed.append(error)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert [found["n"] for found in db.counts.find()] == [4] * 200


def test_sessions(client, db):
    with client.start_session() as session:
        db.c.insert_one({"_id": 1}, session=session)
        assert db.c.find_one(session=session) == {"_id": 1}


def test_commands_as_the_database_tools_send_them(db, client):
    """The sequences of mongorestore and mongodump, field by field, from their traces."""
    id_index = {"key": {"_id": 1}, "name": "_id_", "ns": f"{db.name}.c", "v": 2}
    db.command({"create": "c", "idIndex": id_index, "capped": True, "size": 100_000})
    db.command(
        {"insert": "c", "ordered": False, "bypassEmptyTsReplacement": True, "writeConcern": {"w": "majority"}, "documents": [{"_id": i} for i in range(300)]}
    )
    built = db.command(
        {"createIndexes": "c", "ignoreUnknownIndexOptions": True, "indexes": [{"key": {"a": 1}, "name": "a_1", "ns": f"{db.name}.c", "unknownOption": 1}]}
    )
    assert (built["numIndexesBefore"], built["numIndexesAfter"]) == (1, 2)
    [listed] = db.command({"listCollections": 1, "filter": {}, "cursor": {}})["cursor"]["firstBatch"]
    assert listed["options"] == {"capped": True, "size": 100_000} and listed["idIndex"]["name"] == "_id_"
    assert db.command({"count": "c"})["n"] == 300
    indexes = db.command({"listIndexes": "c", "cursor": {}})["cursor"]["firstBatch"]
    assert [index["name"] for index in indexes] == ["_id_", "a_1"]
    assert len(list(db.c.find({}).hint([("$natural", 1)]))) == 300
    assert isinstance(client.admin.command("top")["totals"], dict)


def test_profiler(client, db):
    db.c.insert_many([{"_id": n} for n in range(5)])
    assert db.command("profile", -1)["was"] == 0
    db.command("profile", 2)
    assert db.c.count_documents({"_id": {"$gt": 2}}) == 2
    db.c.update_one({"_id": 1}, {"$set": {"a": 1}})
    assert db.command("profile", 0)["was"] == 2
    db.c.find_one()
    entries = list(db["system.profile"].find({"ns": f"{db.name}.c"}).sort("ts", 1))
    assert [(entry["op"], next(iter(entry["command"]))) for entry in entries] == [("command", "aggregate"), ("update", "q")]
    assert entries[1]["nModified"] == 1 and entries[1]["user"] == "" and entries[0]["millis"] >= 0
    assert db["system.profile"].options()["capped"]
    # Another process does not know of it, and writes held back hold no reader up for long.
    db.command("profile", 2)
    client.admin.command("fsync", lock=True)
    try:
        assert db.c.count_documents({}) == 5
    finally:
        client.admin.command("fsyncUnlock")
    db.command("profile", 0)


def test_statements_of_drivers_are_told(client, db):
    """Drivers send them beside the command: nobody could tell what a slow update looked for."""
    db.c.insert_many([{"_id": n, "a": n % 2} for n in range(10)])
    db.command("profile", 2)
    db.c.bulk_write([UpdateMany({"a": 1}, {"$set": {"b": 1}}), UpdateOne({"_id": 4}, {"$set": {"b": 2}}), DeleteOne({"_id": 9})])
    db.command("profile", 0)
    entries = list(db["system.profile"].find({"op": {"$in": ["update", "remove"]}}).sort("$natural", 1))
    assert [entry["command"]["q"] for entry in entries] == [{"a": 1}, {"_id": 4}, {"_id": 9}]
    assert [(entry["op"], entry["docsExamined"], entry["planSummary"]) for entry in entries] == [
        ("update", 10, "COLLSCAN"),
        ("update", 1, "IDHACK"),
        ("remove", 1, "IDHACK"),
    ]


def test_help_is_told_and_nothing_is_done(client, db):
    db.c.insert_one({"_id": 1})
    for command in ("dropDatabase", "drop", "compact"):
        told = db.command(command, "c" if command != "dropDatabase" else 1, help=True)
        assert told["help"].startswith(f"help for: {command} ")
    assert client.admin.command("shutdown", help=True)["ok"] == 1
    assert db.c.count_documents({}) == 1


def test_reindex_makes_indexes_anew(db):
    db.c.insert_many([{"_id": n, "a": n % 7, "b": str(n)} for n in range(1000)])
    db.c.create_index("a")
    db.c.create_index("b", unique=True)
    done = db.command("reIndex", "c")
    assert (done["nIndexesWas"], done["nIndexes"]) == (3, 3)
    assert [index["name"] for index in done["indexes"]] == ["_id_", "a_1", "b_1"]
    assert db.c.count_documents({"a": 3}, hint="a_1") == 143
    with pytest.raises(DuplicateKeyError):
        db.c.insert_one({"b": "5"})


def test_index_filters(db):
    db.c.insert_many([{"a": n % 10, "b": n % 100} for n in range(1000)])
    db.c.create_index("a")
    db.c.create_index("b")

    def used():
        section = db.c.find({"a": 1, "b": 1}).explain()["queryPlanner"]
        return section["indexFilterSet"], section["winningPlan"]["inputStage"]["indexName"]

    assert used() == (False, "b_1")
    db.command("planCacheSetFilter", "c", query={"a": 0, "b": 0}, indexes=["a_1"])
    assert used() == (True, "a_1")
    assert [entry["indexes"] for entry in db.command("planCacheListFilters", "c")["filters"]] == [["a_1"]]
    db.command("planCacheClearFilters", "c")
    assert used() == (False, "b_1")
    list(db.c.find({"a": 1, "b": 1}))
    assert len(list(db.c.aggregate([{"$planCacheStats": {}}]))) == 1
    db.command("planCacheClear", "c")
    assert list(db.c.aggregate([{"$planCacheStats": {}}])) == []


def test_users_writes_are_held_off(tmp_path):
    """Nobody changes data but the server and who has the privilege, on every member, also after a restart."""
    options = ["--auth", "--replSet", "rs", "--replSetInitiate"]
    server = Server(tmp_path, options=options)
    with server:
        server.client().admin.command("createUser", "root", pwd="pw", roles=["root"])

        def as_user(name):
            return server.client(username=name, password="pw", authSource="admin", directConnection=True)

        root = as_user("root")
        root.admin.command("createUser", "amy", pwd="pw", roles=["readWriteAnyDatabase", "dbAdminAnyDatabase"])
        root.admin.command("createUser", "mover", pwd="pw", roles=["readWriteAnyDatabase", "restore"])
        root.t.c.insert_one({"_id": 1})
        root.t.c.create_index("n")
        # What was let in before gets no further.
        early = as_user("amy")
        one, two = early.start_session(), early.start_session()
        for number, session in enumerate((one, two)):
            session.start_transaction()
            early.t.c.insert_one({"_id": f"early {number}"}, session=session)
        root.admin.command("setUserWriteBlockMode", 1, **{"global": True})
        for write in [lambda: early.t.c.insert_one({"_id": "later"}, session=one), two.commit_transaction]:
            with pytest.raises(OperationFailure) as error:
                write()
            assert error.value.code == 371, error.value
        one.end_session()
        two.end_session()

        def check():
            amy, mover, root = as_user("amy"), as_user("mover"), as_user("root")
            refused = [
                lambda: amy.t.c.insert_one({"_id": 2}),
                lambda: amy.t.c.update_one({"_id": 1}, {"$set": {"n": 1}}),
                lambda: amy.t.c.delete_one({"_id": 1}),
                lambda: amy.t.c.find_one_and_update({"_id": 1}, {"$set": {"n": 1}}),
                lambda: amy.t.new.insert_one({"_id": 1}),
                lambda: amy.t.create_collection("new"),
                lambda: amy.t.create_collection("view", viewOn="c"),
                lambda: amy.t.c.create_index("m"),
                lambda: amy.t.c.drop_index("n_1"),
                lambda: amy.t.c.drop(),
                lambda: amy.t.c.rename("d"),
                lambda: amy.t.c.aggregate([{"$out": "copy"}]),
                lambda: amy.t.c.aggregate([{"$merge": "c"}]),
                lambda: amy.t.command("collMod", "c", validator={}),
                lambda: amy.drop_database("t"),
            ]
            for number, write in enumerate(refused):
                with pytest.raises((OperationFailure, BulkWriteError)) as error:
                    write()
                code = error.value.code if error.value.code != 65 else error.value.details["writeErrors"][0]["code"]
                assert code == 371, (number, error.value)
            # What finds nothing changes nothing.
            assert amy.t.c.update_one({"_id": 9}, {"$set": {"n": 1}}).matched_count == 0
            assert amy.t.c.delete_one({"_id": 9}).deleted_count == 0
            assert amy.t.c.find_one() == {"_id": 1} and amy.t.list_collection_names() == ["c"]
            assert root.admin.command("serverStatus")["repl"]["userWriteBlockMode"] == 2
            root.admin.command("createUser", "new", pwd="pw", roles=[])
            root.admin.command("dropUser", "new")
            mover.t.c.insert_one({"_id": "moved"})
            mover.t.c.delete_one({"_id": "moved"})

        check()
    with Server(tmp_path, options=options, port=server.port) as server:
        with pytest.raises(OperationFailure) as error:
            as_user("amy").t.c.insert_one({"_id": 2})
        assert error.value.code == 371
        with pytest.raises(OperationFailure) as error:
            as_user("amy").admin.command("setUserWriteBlockMode", 1, **{"global": False})
        assert error.value.code == 13
        as_user("root").admin.command("setUserWriteBlockMode", 1, **{"global": False})
        as_user("amy").t.c.insert_one({"_id": 2})
        assert as_user("root").admin.command("serverStatus")["repl"]["userWriteBlockMode"] == 1
    with Server(tmp_path / "standalone", "inMemory") as server:
        with pytest.raises(OperationFailure) as error:
            server.client().admin.command("setUserWriteBlockMode", 1, **{"global": True})
        assert error.value.code == 20
