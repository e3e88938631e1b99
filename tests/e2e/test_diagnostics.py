"""Commands that tell of a server beside its figures, with the shapes that MongoDB 8.0 gives them."""

import threading
import time

import pytest
from pymongo.errors import OperationFailure
from server import Server, send


def test_a_server_alone_has_no_connections_to_others(client):
    stats = client.admin.command("connPoolStats")
    numbers = ["numClientConnections", "numAScopedConnections", "totalInUse", "totalAvailable", "totalCreated", "totalRefreshing"]
    assert [stats[name] for name in numbers] == [0] * 6
    assert stats["pools"] == stats["hosts"] == stats["replicaSets"] == {}
    assert client.admin.command("dropConnections", hostAndPort=["nobody.example:27017"])["ok"] == 1
    with pytest.raises(OperationFailure) as missing:
        client.admin.command("dropConnections")
    assert missing.value.code == 40414


def test_definitions_are_held_against_the_stable_api(client, db):
    db.sales.create_index("item", name="rare", sparse=True)
    db.sales.create_index("other")
    parameters = {"version": "1", "strict": True, "deprecationErrors": True}
    found = db.command("validateDBMetadata", apiParameters=parameters, db=db.name, collection="sales")
    assert found["apiVersionErrors"] == [
        {
            "ns": f"{db.name}.sales",
            "code": 323,
            "codeName": "APIStrictError",
            "errmsg": "The index with name rare is not allowed in API version 1.",
        }
    ]
    assert found["hasMoreErrors"] is False
    db.sales.drop_index("rare")
    assert db.command("validateDBMetadata", apiParameters=parameters, db=db.name)["apiVersionErrors"] == []
    with pytest.raises(OperationFailure) as unknown:
        db.command("validateDBMetadata", apiParameters={**parameters, "version": "2"})
    assert unknown.value.code == 322


def test_locks_are_seen_while_they_are_held(client, db):
    db.c.insert_many([{"_id": i, "text": "x" * 200} for i in range(20_000)])
    over, seen = threading.Event(), []

    def scan():
        while not over.is_set():
            db.c.count_documents({"text": {"$regex": "y$"}})

    thread = threading.Thread(target=scan)
    thread.start()
    try:
        end = time.monotonic() + 60
        while not seen and time.monotonic() < end:
            locks = client.admin.command("lockInfo")["lockInfo"]
            seen = [each for each in locks if each["resourceId"].endswith(f", {db.name}.c}}")]
    finally:
        over.set()
        thread.join()
    assert set(seen[0]) == {"resourceId", "granted", "pending"}
    (lock,) = seen[0]["granted"]
    # Engines that lock whole collections take another mode.
    assert lock["mode"] in ("IS", "S") and lock["convertMode"] == "NONE"
    with pytest.raises(OperationFailure) as elsewhere:
        db.command("lockInfo")
    assert elsewhere.value.code == 13


def test_the_start_is_told_of(client):
    (start,) = client.local.startup_log.find()
    assert set(start) == {"_id", "hostname", "startTime", "startTimeLocal", "cmdLine", "pid", "buildinfo"}
    status = client.admin.command("serverStatus")
    assert start["pid"] == status["pid"] and start["_id"].startswith(f"{start['hostname']}-")
    assert start["cmdLine"] == client.admin.command("getCmdLineOpts")["parsed"]
    build = client.admin.command("buildInfo")
    assert start["buildinfo"] == {name: build[name] for name in start["buildinfo"]}
    (listed,) = client.local.list_collections(filter={"name": "startup_log"})
    assert listed["options"]["capped"] is True


def test_tools_find_what_the_engine_counts_under_wiredtigers_names(client, db):
    db.c.insert_many([{"_id": i, "text": "x" * 1000} for i in range(2000)])
    status = client.admin.command("serverStatus")
    own, shown = status["tenon"]["common"], status["wiredTiger"]["cache"]
    # The engine that keeps everything in memory has no limit, and writes all of it at checkpoints.
    if status["storageEngine"]["name"] != "inMemory":
        assert shown["maximum bytes configured"] == own["cacheBytesMax"] > 1 << 20
        assert shown["tracked dirty bytes in the cache"] > 0
    assert shown["bytes currently in the cache"] > 0
    # Whatever the engine calls it.
    evictions = shown.get("unmodified pages evicted"), shown.get("modified pages evicted")
    assert evictions == ((own["pagesEvicted"], 0) if "pagesEvicted" in own else (None, None))
    assert ("pagesEvicted" in own) == (status["storageEngine"]["name"] in {"btree", "betree", "mmapv1"})


def test_a_scan_is_counted_once_however_many_batches_it_has(client, db):
    db.c.insert_many([{"_id": i, "a": i} for i in range(50)])

    def scans():
        counted = client.admin.command("serverStatus")["metrics"]["queryExecutor"]["collectionScans"]
        own = next(db.c.aggregate([{"$collStats": {"queryExecStats": {}}}]))["queryExecStats"]["collectionScans"]
        assert own["total"] == own["nonTailable"]
        return counted["total"], counted["nonTailable"], own["total"]

    before = scans()
    assert len(list(db.c.find({"a": {"$gte": 0}}, batch_size=5))) == 50
    db.c.update_one({"a": 7}, {"$set": {"b": 1}})
    assert db.c.find_one({"_id": 7})["b"] == 1
    of_all, non_tailable, own = (after - earlier for after, earlier in zip(scans(), before))
    assert own == 2
    # The server scans collections of its own, too.
    assert 2 <= of_all < 10 and 2 <= non_tailable < 10


def test_diagnostic_data_have_the_server_and_its_machine(client):
    """As exporters ask: with a string, and for every number in it."""
    data = client.admin.command("getDiagnosticData", "1")["data"]
    assert data["start"] <= data["serverStatus"]["start"] <= data["systemMetrics"]["end"] <= data["end"]
    assert data["serverStatus"]["connections"]["current"] >= 1
    assert "maximum bytes configured" in data["serverStatus"]["wiredTiger"]["cache"]
    system = data["systemMetrics"]
    assert system["cpu"]["user_ms"] > 0 and system["cpu"]["num_logical_cores"] >= 1
    assert 0 < system["memory"]["MemFree_kb"] < system["memory"]["MemTotal_kb"]
    assert system["vmstat"]["pgfault"] > 0
    assert system["netstat"]["Tcp:InSegs"] > 0


def test_what_is_inserted_is_told_nowhere(tmp_path):
    """Drivers send documents beside a command; those that came in it were in the log and in `system.profile`."""
    with Server(tmp_path / "server", options=["--slowms", "0", "--profile", "2"]) as server:
        assert send(server, "shop", {"insert": "c", "documents": [{"secret": "in an insert"}], "comment": "mine"})["n"] == 1
        statements = [{"insert": 0, "document": {"secret": "in a bulk"}}, {"update": 0, "filter": {"a": 1}, "updateMods": {"$set": {"b": 1}}}]
        assert send(server, "admin", {"bulkWrite": 1, "ops": statements, "nsInfo": [{"ns": "shop.c"}]})["nInserted"] == 1
        client = server.client()
        told = [entry["command"] for name in ("shop", "admin") for entry in client[name]["system.profile"].find()]
        log = server.log.read_text()
    assert {"insert": "c", "comment": "mine", "$db": "shop"} in told
    [bulk] = [command for command in told if "bulkWrite" in command]
    assert bulk["ops"] == [{"insert": 0}, statements[1]]
    assert "secret" not in str(told) and "in an insert" not in log and "in a bulk" not in log


def test_what_was_to_be_inserted_is_not_told_of_who_may_not(tmp_path):
    """The text of the error had the documents, and the log and `system.profile` have the text."""
    options = ["--auth", "--slowms", "0", "--profile", "2"]
    with Server(tmp_path / "server", options=options) as server:
        server.client().admin.command("createUser", "root", pwd="s3same", roles=["root"])
        root = server.client(username="root", password="s3same", authSource="admin")
        root.admin.command("createUser", "amy", pwd="s3same", roles=[{"role": "read", "db": "shop"}])
        amy = server.client(username="amy", password="s3same", authSource="admin")
        bulk = {"bulkWrite": 1, "ops": [{"insert": 0, "document": {"hidden": "in a bulk"}}], "nsInfo": [{"ns": "shop.c"}]}
        for database, command in [("shop", {"insert": "c", "documents": [{"hidden": "in an insert"}]}), ("admin", bulk)]:
            with pytest.raises(OperationFailure) as refused:
                amy[database].command(command)
            assert refused.value.code == 13
            assert "hidden" not in str(refused.value)
        told = [entry for name in ("shop", "admin") for entry in root[name]["system.profile"].find()]
        log = server.log.read_text()
    assert "hidden" not in str(told) and "in an insert" not in log and "in a bulk" not in log
