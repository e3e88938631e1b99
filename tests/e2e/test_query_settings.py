"""What an operator sets for all queries of one shape: which indexes they may use, and that they are rejected."""

import pytest
from members import ReplicaSet, wait
from pymongo import ReadPreference
from pymongo.errors import OperationFailure
from server import ENGINES, Server


def fill(db):
    db.c.insert_many([{"_id": i, "a": i % 10, "b": i % 100} for i in range(1000)])
    db.c.create_index("a")
    db.c.create_index("b")


def index_of(db, query):
    """The index that the winning plan uses; None for a scan."""
    planner = db.command("explain", query, verbosity="queryPlanner")["queryPlanner"]
    return next((name for name in ["a_1", "b_1"] if name in str(planner["winningPlan"])), None)


def hints(db, *allowed):
    return {"indexHints": {"ns": {"db": db.name, "coll": "c"}, "allowedIndexes": list(allowed)}}


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "inMemory"])
def test_settings_change_plans_and_survive(engine, tmp_path):
    with Server(tmp_path / "db", engine) as server:
        client = server.client()
        db, admin = client.shop, client.admin
        fill(db)
        query = {"find": "c", "filter": {"a": 1, "b": 1}}
        named = {**query, "$db": "shop"}
        natural = index_of(db, query)
        reply = admin.command("setQuerySettings", named, settings=hints(db, "a_1"))
        assert index_of(db, query) == "a_1"
        assert index_of(db, {**query, "hint": "b_1"}) == "a_1", "the operator goes before the client"
        admin.command("setQuerySettings", reply["queryShapeHash"], settings={**hints(db, {"b": 1}), "comment": "tuned"})
        assert index_of(db, query) == "b_1"
        assert {d["_id"] for d in db.c.find({"a": 1, "b": 1})} == {i for i in range(1000) if i % 100 == 1}
        server.stop()
        server.start()
        client = server.client()
        db, admin = client.shop, client.admin
        assert index_of(db, query) == "b_1", "kept"
        explained = db.command("explain", query, verbosity="queryPlanner")
        assert explained["queryShapeHash"] == reply["queryShapeHash"]
        assert explained["queryPlanner"]["querySettings"]["comment"] == "tuned"
        [kept] = admin.aggregate([{"$querySettings": {"showDebugQueryShape": True}}])
        assert kept["representativeQuery"] == named and kept["debugQueryShape"]["command"] == "find"
        admin.command("setQuerySettings", named, settings=hints(db, "gone"))
        assert index_of(db, query) == natural, "none of the allowed indexes is there"
        admin.command("removeQuerySettings", named)
        assert list(admin.aggregate([{"$querySettings": {}}])) == [] and index_of(db, query) == natural


def test_rejected_queries(client, db):
    fill(db)
    admin = client.admin
    db.command("profile", 2)
    query = {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$count": "n"}], "$db": db.name, "cursor": {}}
    hash_ = admin.command("setQuerySettings", query, settings={"reject": True})["queryShapeHash"]
    with pytest.raises(OperationFailure) as error:
        db.c.aggregate([{"$match": {"a": 7}}, {"$count": "n"}])
    assert (error.value.code, error.value.details["codeName"]) == (411, "QueryRejectedBySettings")
    assert list(db.c.aggregate([{"$match": {"a": "x"}}, {"$count": "n"}])) == []
    admin.command("removeQuerySettings", hash_)
    assert list(db.c.aggregate([{"$match": {"a": 7}}, {"$count": "n"}])) == [{"n": 100}]
    db.command("profile", 0)
    entries = [entry for entry in db.system.profile.find({"command.aggregate": "c"}) if "'a': 7" in str(entry["command"])]
    hashes = [entry["queryShapeHash"] for entry in entries]
    assert hashes == [hash_, hash_], "the profiler has the hash that settings are made for"
    for command, settings, expected in [
        ({"find": "c", "filter": {"_id": 1}, "$db": db.name}, {"reject": True}, 7746606),
        ({"count": "c", "$db": db.name}, {"reject": True}, 7746402),
        ({"find": "c", "$db": db.name}, {"reject": False}, 7746604),
        ({"find": "c", "$db": "admin"}, {"reject": True}, 8584900),
    ]:
        with pytest.raises(OperationFailure) as error:
            admin.command("setQuerySettings", command, settings=settings)
        assert error.value.code == expected, command


def test_all_members_go_by_them(tmp_path):
    with ReplicaSet(tmp_path, [ENGINES[0]] * 3) as rs:
        rs.initiate()
        client = rs.client()
        fill(client.shop)
        query = {"find": "c", "filter": {"a": 1}, "$db": "shop"}
        client.admin.command("setQuerySettings", query, settings={"reject": True})

        def is_rejected(member):
            try:
                shop = member.direct.get_database("shop", read_preference=ReadPreference.NEAREST)
                shop.c.find_one({"_id": 1})
                list(shop.c.find({"a": 5}))
            except OperationFailure as error:
                return error.code == 411
            return False

        for member in rs.members:
            wait(lambda member=member: is_rejected(member), "a member that goes by them")
        heir = rs.secondaries[0]
        rs.primary.stop()
        rs.wait_state(heir, "PRIMARY", "SECONDARY")
        new = rs.client()
        with pytest.raises(OperationFailure) as error:
            list(new.shop.c.find({"a": 6}))
        assert error.value.code == 411, "kept by the next primary"
        new.admin.command("removeQuerySettings", query)
        assert len(list(new.shop.c.find({"a": 6}))) == 100
