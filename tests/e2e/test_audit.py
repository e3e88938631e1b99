"""The audit log, and what the server's log tells of collections and indexes."""

import json

import bson
import pytest
from disks import file_system_of
from members import ReplicaSet, wait
from pymongo.errors import OperationFailure, PyMongoError
from server import Server

PASSWORD = "s3same"


def events(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def found(all_events, action, **wanted):
    """The events of an action whose `param` has these fields."""
    return [event for event in all_events if event["atype"] == action and all(event["param"].get(name) == value for name, value in wanted.items())]


def as_user(server, name="amy"):
    return server.client(username=name, password=PASSWORD, authSource="admin")


def test_who_did_what_is_written_down(tmp_path):
    audit = tmp_path / "audit.json"
    options = ["--auth", "--auditDestination", "file", "--auditFormat", "JSON", "--auditPath", str(audit), "--replSet", "rs", "--replSetInitiate"]
    with Server(tmp_path / "server", options=options) as server:
        server.client().admin.command("createUser", "root", pwd=PASSWORD, roles=["root"])
        root = as_user(server, "root")
        root.admin.command("createRole", "auditor", privileges=[{"resource": {"db": "shop", "collection": ""}, "actions": ["find"]}], roles=[])
        root.admin.command("createUser", "amy", pwd=PASSWORD, roles=["auditor", {"role": "readWrite", "db": "own"}], customData={"n": 1})
        root.admin.command("updateUser", "amy", pwd=PASSWORD, customData={"n": 2})
        root.shop.goods.insert_one({"_id": 1, "name": "a lamp"})
        root.shop.goods.create_index("name")
        root.shop.create_collection("lamps", viewOn="goods", pipeline=[{"$match": {"name": "a lamp"}}])
        root.shop.goods.rename("things")
        root.shop.things.drop_index("name_1")
        with root.start_session() as session, session.start_transaction():
            root.shop.create_collection("in_a_transaction", session=session)
        root.shop.lamps.drop()
        root.drop_database("shop")
        root.admin.command("logApplicationMessage", "the shop is closed")
        amy = as_user(server)
        with pytest.raises(OperationFailure) as refused:
            amy.own.command("insert", "x", documents=[])
        amy.own.x.insert_one({"_id": 1})
        for forbidden in [lambda: amy.shop.things.insert_one({"secret": 1}), lambda: amy.admin.command("createUser", "eve", pwd=PASSWORD, roles=[])]:
            with pytest.raises(OperationFailure) as refused:
                forbidden()
            assert refused.value.code == 13
        amy.close()
        with pytest.raises(PyMongoError):
            server.client(username="amy", password="wrong", authSource="admin").admin.command("ping")
        root.admin.command("dropUser", "amy")
        root.admin.command("dropRole", "auditor")
        status = root.admin.command("serverStatus")
        counted = status["security"]["authentication"]["mechanisms"]["SCRAM-SHA-256"]
        assert counted["authenticate"]["received"] > counted["authenticate"]["successful"] > 0
        assert counted["speculativeAuthenticate"]["successful"] > 0 and counted["clusterAuthenticate"]["received"] == 0
        assert status["tenon"]["audit"]["lost"] == 0
        # Drivers' connections come and go beside the test, and each is an event.
        counts = lambda: (root.admin.command("serverStatus")["tenon"]["audit"]["events"], len(events(audit)))
        wait(lambda: len(set(counts())) == 1, counts)
        log = server.log.read_text()
    seen = events(audit)
    assert PASSWORD not in audit.read_text()
    [startup, *_, shutdown] = seen
    assert startup["atype"] == "startup" and startup["param"]["options"]["auditLog"]["path"] == str(audit)
    assert shutdown["atype"] == "shutdown" and shutdown["users"] == []
    [created] = found(seen, "createUser", user="amy")
    assert created["users"] == [{"user": "root", "db": "admin"}] and {"role": "root", "db": "admin"} in created["roles"]
    assert created["local"] == {"ip": "127.0.0.1", "port": server.port} and created["remote"]["ip"] == "127.0.0.1"
    assert created["remote"]["port"] > 0 and created["result"] == 0 and created["ts"]["$date"].startswith("20")
    roles = [{"role": "auditor", "db": "admin"}, {"role": "readWrite", "db": "own"}]
    assert created["param"] == {"user": "amy", "db": "admin", "roles": roles, "customData": {"n": 1}}
    assert found(seen, "updateUser")[0]["param"] == {"user": "amy", "db": "admin", "passwordChanged": True, "customData": {"n": 2}}
    assert len({event["uuid"]["$binary"]["base64"] for event in seen}) == len(seen)
    for action, param in [
        ("createCollection", {"ns": "shop.goods"}),
        ("createCollection", {"ns": "shop.lamps", "viewOn": "goods", "pipeline": [{"$match": {"name": "a lamp"}}]}),
        ("createCollection", {"ns": "shop.in_a_transaction"}),
        ("renameCollection", {"old": "shop.goods", "new": "shop.things"}),
        ("dropIndex", {"ns": "shop.things", "indexName": "name_1"}),
        ("dropCollection", {"ns": "shop.things"}),
        ("dropDatabase", {"ns": "shop"}),
        ("dropUser", {"user": "amy", "db": "admin"}),
        ("dropRole", {"role": "auditor", "db": "admin"}),
        ("applicationMessage", {"msg": "the shop is closed"}),
    ]:
        [event] = found(seen, action, **param)
        assert event["param"] == param and event["users"] == [{"user": "root", "db": "admin"}], (action, event)
    builds = found(seen, "createIndex", ns="shop.goods", indexName="name_1")
    assert [build["param"]["indexBuildState"] for build in builds] == ["IndexBuildStarted", "IndexBuildSucceeded"]
    assert found(seen, "createCollection", ns="own.x")[0]["users"] == [{"user": "amy", "db": "admin"}]
    assert {check["param"]["command"] for check in found(seen, "authCheck")} == {"insert", "createUser"}
    assert all(check["result"] == 13 for check in found(seen, "authCheck"))
    attempts = found(seen, "authenticate", user="amy")
    assert {attempt["result"] for attempt in attempts} == {0, 18}
    assert all(attempt["users"] == ([] if attempt["result"] else [{"user": "amy", "db": "admin"}]) for attempt in attempts)
    [left] = found(seen, "logout", initialUsers=[{"user": "amy", "db": "admin"}])[:1]
    assert left["param"]["updatedUsers"] == []
    assert found(seen, "clientMetadata")[0]["param"]["clientMetadata"]["driver"]["name"].startswith("PyMongo")
    # The server's log tells of collections and indexes, too, and of the connection that it was.
    lines = [json.loads(line) for line in log.splitlines()]
    told = {(line["msg"], line["attr"].get("ns")) for line in lines if line["ctx"].startswith("conn") and "attr" in line}
    for line in [("A collection was created", "shop.goods"), ("An index was built", "shop.goods"), ("A view was dropped", "shop.lamps"), ("A collection was dropped", "shop.things")]:
        assert line in told, line


def test_what_was_allowed_is_written_when_asked_for_and_filtered(tmp_path):
    audit = tmp_path / "audit.bson"
    filter = '{"atype": "authCheck", "param.ns": {"$regex": "^shop[.]"}}'
    options = ["--auth", "--auditDestination", "file", "--auditFormat", "BSON", "--auditPath", str(audit), "--auditFilter", filter]
    with Server(tmp_path / "server", "inMemory", options=options) as server:
        server.client().admin.command("createUser", "root", pwd=PASSWORD, roles=["root"])
        root = as_user(server, "root")
        root.shop.goods.insert_one({"_id": 1})
        assert bson.decode_all(audit.read_bytes()) == []
        root.admin.command("setParameter", auditAuthorizationSuccess=True)
        root.shop.goods.find_one({"_id": 1})
        root.other.goods.find_one({"_id": 1})
        [event] = bson.decode_all(audit.read_bytes())
        assert (event["param"]["command"], event["param"]["ns"], event["result"]) == ("find", "shop.goods", 0)
        assert event["param"]["args"]["filter"] == {"_id": 1}
        # Rotation.
        root.admin.command("logRotate", "audit")
        root.shop.goods.find_one({"_id": 2})
        [event] = bson.decode_all(audit.read_bytes())
        assert event["param"]["args"]["filter"] == {"_id": 2}
        [former] = tmp_path.glob("audit.bson.*")
        assert len(bson.decode_all(former.read_bytes())) == 1
        with pytest.raises(OperationFailure) as refused:
            root.admin.command("logRotate", "nonsense")
        assert refused.value.code == 4


def test_who_writes_users_by_hand_is_told_of_whatever_the_command(tmp_path):
    """`applyOps` made a root, and no event told of it."""
    audit = tmp_path / "audit.json"
    with Server(tmp_path / "server", options=["--auth", "--auditDestination", "file", "--auditPath", str(audit)]) as server:
        server.client().admin.command("createUser", "root", pwd=PASSWORD, roles=["root", "__system"])
        admin = as_user(server, "root").admin
        eve = {**admin["system.users"].find_one(), "_id": "admin.eve", "user": "eve"}
        insert = {"op": "i", "ns": "admin.system.users", "o": eve}
        changed = {"op": "u", "ns": "shop.goods", "o2": {"_id": 1}, "o": {"$set": {"a": 1}}}
        admin.command("applyOps", [insert])
        with pytest.raises(OperationFailure) as failed:
            admin.command("applyOps", [insert, changed])
        admin.command("bulkWrite", 1, ops=[{"delete": 0, "filter": {"_id": eve["_id"]}}], nsInfo=[{"ns": "admin.system.users"}])
        told = found(events(audit), "directAuthMutation")
    assert [(event["param"], event["result"]) for event in told] == [
        ({"ns": "admin.system.users", "operation": operation}, result)
        for operation, result in [("applyOps", 0), ("applyOps", failed.value.code), ("bulkWrite", 0)]
    ]
    assert all(event["users"] == [{"user": "root", "db": "admin"}] for event in told)


def test_what_commands_refuse_by_themselves_is_told_of(tmp_path):
    """Who was refused another one's cursor or operation was in no event."""
    audit = tmp_path / "audit.json"
    with Server(tmp_path / "server", options=["--auth", "--auditDestination", "file", "--auditPath", str(audit)]) as server:
        server.client().admin.command("createUser", "root", pwd=PASSWORD, roles=["root"])
        root = as_user(server, "root")
        root.admin.command("createUser", "amy", pwd=PASSWORD, roles=[{"role": "readWrite", "db": "shop"}])
        root.shop.goods.insert_many([{"_id": n} for n in range(10)])
        cursor = bson.Int64(root.shop.command("find", "goods", batchSize=1)["cursor"]["id"])
        amy = as_user(server)
        amy.shop.goods.find_one()
        refused = [
            ("shop", {"getMore": cursor, "collection": "goods"}),
            ("shop", {"killCursors": "goods", "cursors": [cursor]}),
            ("admin", {"killOp": 1, "op": 12345}),
            ("admin", {"shutdown": 1}),
        ]
        for database, command in refused:
            with pytest.raises(OperationFailure) as failed:
                amy[database].command(command)
            assert failed.value.code == 13, command
        told = found(events(audit), "authCheck")
    assert [(event["param"]["command"], event["result"]) for event in told] == [(next(iter(command)), 13) for _, command in refused]


def test_a_full_disk_tears_no_event(tmp_path):
    """What there is no room for is missing, told and counted; what comes later can be read."""
    with file_system_of(tmp_path / "disk", "64k") as disk:
        audit = disk / "audit.bson"
        options = ["--auditDestination", "file", "--auditFormat", "BSON", "--auditPath", str(audit)]
        with Server(tmp_path / "server", "inMemory", options=options) as server:
            client = server.client()

            def lost():
                return client.admin.command("serverStatus")["tenon"]["audit"]["lost"]

            while not lost():
                client.admin.command("logApplicationMessage", "x" * 1500)
            assert "could not be written to the audit log" in server.log.read_text()
            kept = bson.decode_all(audit.read_bytes())
            client.admin.command("logRotate", "audit")
            [former] = disk.glob("audit.bson.*")
            assert bson.decode_all(former.read_bytes())[: len(kept)] == kept
            former.unlink()
            client.admin.command("logApplicationMessage", "room again")
            assert bson.decode_all(audit.read_bytes())[-1]["param"] == {"msg": "room again"}


@pytest.mark.parametrize(
    "options, reason",
    [
        (["--auditPath", "x"], "need auditLog.destination"),
        (["--auditDestination", "file"], "needs auditLog.path"),
        (["--auditDestination", "syslog"], "file, console"),
        (["--auditDestination", "console", "--auditFormat", "BSON"], "is for auditLog.destination file"),
        (["--auditDestination", "console", "--auditFilter", '{"atype": {"$nonsense": 1}}'], "auditLog.filter"),
        (["--auditDestination", "file", "--auditPath", "/nonexistent/audit.json"], "cannot be opened"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_made(tmp_path, options, reason):
    server = Server(tmp_path / "server", "inMemory", options=options)
    with pytest.raises(Exception) as refused:
        server.__enter__()
    assert reason in str(refused.value) or reason in server.log.read_text()
    assert not list((tmp_path / "server").rglob("*.wal"))


def test_followers_tell_of_collections(tmp_path):
    """Secondaries write down what they do for others, of no connection."""
    with ReplicaSet(tmp_path, engines=["inMemory"] * 3) as rs:
        rs.initiate()
        rs.wait_healthy()
        client = rs.client()
        client.shop.goods.insert_one({"_id": 1})
        client.shop.goods.drop()
        rs.wait_applied()
        for member in rs.secondaries:
            lines = [json.loads(line) for line in member.log.read_text().splitlines()]
            told = [(line["msg"], line["ctx"]) for line in lines if line.get("attr", {}).get("ns") == "shop.goods" and line["c"] == "STORAGE"]
            assert told == [("A collection was created", "storage"), ("A collection was dropped", "storage")], told
