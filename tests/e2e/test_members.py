"""A replica set of three members on the engines of the build, with real drivers: what clients see, and what every member has."""

import itertools
import os
import shutil
import signal
import threading
import time
from datetime import datetime
from random import Random

import pytest
from bson import ObjectId, Timestamp
from members import ReplicaSet, code_of, database, hold, mongosh, persist, wait
from pymongo import DeleteMany, DeleteOne, InsertOne, MongoClient, ReadPreference, ReplaceOne, UpdateMany, UpdateOne, WriteConcern
from pymongo.errors import AutoReconnect, BulkWriteError, DuplicateKeyError, OperationFailure, PyMongoError, WriteConcernError, WTimeoutError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import Nearest, Secondary
from server import ENGINES, Server, send

TAGS = {"m0": {"tags": {"dc": "east", "rack": "a"}}, "m1": {"tags": {"dc": "west", "rack": "b"}}, "m2": {"tags": {"dc": "west", "rack": "c"}}}


@pytest.fixture(scope="module")
def rs(new_folder):
    """One set for the tests that leave it healthy."""
    with ReplicaSet(new_folder("set"), settings={"getLastErrorModes": {"everywhere": {"rack": 3}, "both": {"dc": 2}}}) as made:
        yield made.initiate(made.config(**TAGS))


@pytest.fixture
def db(rs, request):
    with database(rs, ("t_" + request.node.name.split("[")[0])[:60]) as made:
        yield made


# What drivers see.


def test_drivers_find_every_member(rs, db):
    client = db.client
    wait(lambda: len(client.nodes) == 3, "three members in the driver's view")
    primary = rs.primary
    assert client.primary == ("localhost", primary.port)
    hello = primary.hello()
    assert hello["hosts"] == [each.host for each in rs.members]
    assert (hello["setName"], hello["isWritablePrimary"], hello["secondary"], hello["me"]) == ("rs0", True, False, primary.host)
    assert hello["electionId"] is not None and hello["lastWrite"]["majorityOpTime"]["t"] >= 1
    for each in rs.secondaries:
        hello = each.hello()
        assert (hello["isWritablePrimary"], hello["secondary"], hello["primary"], hello["me"]) == (False, True, primary.host, each.host)
        assert "electionId" not in hello and hello["tags"] == TAGS[f"m{each.number}"]["tags"]


def sources(asked):
    """Who follows whom, as a member tells it."""
    told = asked.direct.admin.command("replSetGetStatus")["members"]
    return [(each["_id"], each["syncSourceHost"]) for each in told if each["stateStr"] == "SECONDARY"]


def test_status_tells_of_every_member(rs, db):
    db.c.insert_one({"_id": 1})
    rs.wait_applied()
    follow = [(each.number, rs.primary.host) for each in rs.secondaries]
    for asked in rs.members:
        # Of the others each knows what they said last.
        wait(lambda asked=asked: sources(asked) == follow, "sources of the log as the members know them")
        status = asked.direct.admin.command("replSetGetStatus")
        assert (status["set"], status["votingMembersCount"], status["majorityVoteCount"], status["writeMajorityCount"]) == ("rs0", 3, 2, 2)
        assert [each["name"] for each in status["members"]] == [each.host for each in rs.members]
        for each in status["members"]:
            assert each["health"] == 1 and each["optime"]["ts"].time > 0 and each["optimeDate"] and each["configVersion"] >= 1
            if each["stateStr"] == "SECONDARY":
                assert each["syncSourceHost"] == rs.primary.host, each
            else:
                assert each["electionTime"].time > 0 and each["electionDate"], each
            assert ("self" in each) == (each["_id"] == asked.number)
            if "self" not in each:
                assert each["lastHeartbeat"] and each["lastHeartbeatRecv"] and each["pingMs"] >= 0 and each["optimeDurable"]


def test_nobody_is_told_to_lag_who_does_not(rs, db):
    """Positions were those of heartbeats, seconds old: monitoring saw a lag while there were writes."""
    primary, secondary = rs.primary, rs.secondaries[0]
    everywhere = db.get_collection("c", write_concern=WriteConcern(w=3))
    for n in range(20):
        with db.client.start_session() as session:
            everywhere.insert_one({"_id": n}, session=session)
            written = session.operation_time
        members = primary.direct.admin.command("replSetGetStatus")["members"]
        assert all(each["optime"]["ts"] >= written for each in members), (written, members)
        members = secondary.direct.admin.command("replSetGetStatus")["members"]
        places = {each["_id"]: each["optime"]["ts"] for each in members}
        assert places[primary.number] >= places[secondary.number]


def test_connections_to_others_are_counted_and_cut(rs, db):
    primary, other = rs.primary, rs.secondaries[0]

    def of(host):
        return primary.direct.admin.command("connPoolStats")["hosts"].get(host, {})

    stats = primary.direct.admin.command("connPoolStats")
    assert set(stats["hosts"]) >= {each.host for each in rs.secondaries}
    assert stats["totalCreated"] == sum(each["created"] for each in stats["hosts"].values())
    (pool,) = stats["pools"].values()
    assert pool["poolCreated"] == stats["totalCreated"]
    # One for heartbeats, one for what consensus says.
    wait(lambda: of(other.host)["inUse"] + of(other.host)["available"] >= 2, "two connections")
    created = of(other.host)["created"]
    primary.direct.admin.command("dropConnections", hostAndPort=[other.host, "nobody.example:1", "malformed"])
    wait(lambda: of(other.host)["created"] >= created + 2, "two connections more")
    # Who was being asked when its connection was cut counts as down until it has answered again.
    told = lambda: [each["stateStr"] for each in primary.direct.admin.command("replSetGetStatus")["members"]]
    wait(lambda: set(told()) == {"PRIMARY", "SECONDARY"}, told)
    assert db.c.with_options(write_concern=WriteConcern(w=3, wtimeout=60_000)).insert_one({}).acknowledged
    assert rs.primary is primary


def test_cluster_parameters_and_default_concerns_are_those_of_all(rs, db):
    primary, other = rs.primary, rs.secondaries[0]

    def on(member):
        (shown,) = member.direct.admin.command("getClusterParameter", "defaultMaxTimeMS")["clusterParameters"]
        return shown["readOperations"]

    db.c.insert_one({"_id": 1})
    rs.wait_applied()
    work = [{"$project": {"n": {"$reduce": {"input": {"$range": [0, 400_000]}, "initialValue": 0, "in": {"$add": ["$$value", 1]}}}}}]
    assert code_of(other.direct.admin.command, "setClusterParameter", {"defaultMaxTimeMS": {"readOperations": 5}}) == 10107
    try:
        primary.direct.admin.command("setClusterParameter", {"defaultMaxTimeMS": {"readOperations": 5}})
        wait(lambda: on(other) == 5, "the parameter on a secondary")
        for member in (primary, other):
            reads = member.direct[db.name].c.with_options(read_preference=ReadPreference.SECONDARY_PREFERRED)

            def is_limited(reads=reads):
                try:
                    list(reads.aggregate(work))
                except OperationFailure as failed:
                    assert failed.code == 50, failed
                    return True
                return False

            # A secondary hears of it by what it applies.
            wait(is_limited, "reads are limited")
            assert list(reads.aggregate(work, maxTimeMS=60_000)) == [{"_id": 1, "n": 400_000}]
        list(db.c.aggregate([*work, {"$out": "d"}])), "what writes is not limited"
        db.c.update_one({}, [{"$set": {"n": work[0]["$project"]["n"]}}])
    finally:
        primary.direct.admin.command("setClusterParameter", {"defaultMaxTimeMS": {"readOperations": 0}})
    assert list(db.c.aggregate(work)) == [{"_id": 1, "n": 400_000}]
    for member in rs.members:
        # What compares the members afterwards has no time of its own.
        unlimited = lambda member=member: list(member.direct[db.name].c.aggregate(work))
        assert wait(unlimited, "reads that are not limited any more") == [{"_id": 1, "n": 400_000}]


def test_mongosh_helpers(rs, db):
    db.c.insert_one({})
    script = """
        print(JSON.stringify([rs.status().members.map(m => m.health), rs.conf().members.length, rs.conf()._id, rs.hello().setName]));
        print(rs.printSecondaryReplicationInfo());
        print(rs.printReplicationInfo());
    """
    said = mongosh(rs.uri(), script)
    assert '[[1,1,1],3,"rs0","rs0"]' in said, said
    for each in rs.secondaries:
        assert f"source: {each.host}" in said, said
    assert "syncedTo" in said and "replLag" in said and "oplog last event time" in said, said


# Reads.


def test_read_preferences_choose_members(rs, db):
    db.c.with_options(write_concern=WriteConcern(w=3)).insert_one({"_id": 1})
    client = db.client
    wait(lambda: len(client.secondaries) == 2, "both secondaries in the driver's view")

    def answered_by(preference):
        cursor = db.c.with_options(read_preference=preference).find()
        assert list(cursor) == [{"_id": 1}]
        return cursor.address[1]

    secondaries = {each.port for each in rs.secondaries}
    assert answered_by(ReadPreference.PRIMARY) == rs.primary.port
    assert answered_by(ReadPreference.PRIMARY_PREFERRED) == rs.primary.port
    assert answered_by(ReadPreference.SECONDARY) in secondaries
    assert answered_by(ReadPreference.SECONDARY_PREFERRED) in secondaries
    assert answered_by(Nearest([{"rack": "c"}])) == rs[2].port
    assert answered_by(Nearest([{"dc": "nowhere"}, {"rack": "b"}])) == rs[1].port
    # The members' last writes are near each other: an idle primary writes a note now and then.
    assert answered_by(Secondary(max_staleness=90)) in secondaries
    impatient = rs.client(serverSelectionTimeoutMS=200)
    nobody = impatient[db.name].c.with_options(read_preference=Nearest([{"dc": "nowhere"}]))
    assert "No replica set member" in code_of(nobody.find_one)


def test_secondaries_refuse_what_they_must(rs, db):
    db.c.with_options(write_concern=WriteConcern(w=3)).insert_one({"_id": 1})
    secondary = rs.secondaries[0]
    topology = secondary.hello()["topologyVersion"]
    # Without a read preference, as clients that mean the primary send it.
    for command in [{"find": "c"}, {"aggregate": "c", "pipeline": [], "cursor": {}}, {"count": "c"}, {"distinct": "c", "key": "_id"}]:
        reply = send(secondary, db.name, command)
        assert (reply["ok"], reply["code"], reply["codeName"]) == (0, 13435, "NotPrimaryNoSecondaryOk"), reply
        assert reply["topologyVersion"] == topology
        reply = send(secondary, db.name, {**command, "$readPreference": {"mode": "secondaryPreferred"}})
        assert reply["ok"] == 1, reply
    for command in [
        {"insert": "c", "documents": [{"_id": 2}]},
        {"update": "c", "updates": [{"q": {}, "u": {"$set": {"x": 1}}}]},
        {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
        {"findAndModify": "c", "query": {}, "update": {"$set": {"x": 1}}},
        {"create": "d"},
        {"createIndexes": "c", "indexes": [{"key": {"x": 1}, "name": "x"}]},
        {"drop": "c"},
        {"dropDatabase": 1},
        {"collMod": "c", "validator": {}},
    ]:
        for preference in [{}, {"$readPreference": {"mode": "secondaryPreferred"}}]:
            reply = send(secondary, db.name, {**command, **preference})
            assert (reply["ok"], reply["code"], reply["codeName"]) == (0, 10107, "NotWritablePrimary"), (command, reply)
            assert reply["topologyVersion"] == topology
            # Which drivers would take for the answer.
            assert "writeConcernError" not in reply, reply
    reply = send(secondary, db.name, {"find": "c", "readConcern": {"level": "linearizable"}, "$readPreference": {"mode": "nearest"}})
    assert reply["code"] == 10107, reply
    # In maintenance it is no SECONDARY, and answers nobody.
    secondary.direct.admin.command("replSetMaintenance", True)
    try:
        assert secondary.state() == "RECOVERING"
        reply = send(secondary, db.name, {"find": "c", "$readPreference": {"mode": "nearest"}})
        assert (reply["code"], reply["codeName"]) == (13436, "NotPrimaryOrSecondary"), reply
        assert code_of(rs.primary.direct.admin.command, "replSetMaintenance", True) == 95
    finally:
        secondary.direct.admin.command("replSetMaintenance", False)
    assert secondary.state() == "SECONDARY"
    assert code_of(secondary.direct.admin.command, "replSetMaintenance", False) == 96
    assert [each["_id"] for each in db.c.find()] == [1]


def test_causal_sessions_read_their_writes_on_secondaries(rs, db):
    for each in rs.secondaries:
        choose = Secondary([TAGS[f"m{each.number}"]["tags"]])
        with db.client.start_session(causal_consistency=True) as session:
            for number in range(20):
                key = f"{each.number}:{number}"
                db.c.insert_one({"_id": key}, session=session)
                for level in ("local", "majority"):
                    found = db.c.with_options(read_preference=choose, read_concern=ReadConcern(level)).find_one({"_id": key}, session=session)
                    assert found, (each.number, number, level)
    # A time at which nothing was written: the primary writes a note for it.
    now = db.client.admin.command("hello")["$clusterTime"]["clusterTime"]
    later = Timestamp(now.time + 2, 1)
    gossip = {"clusterTime": later, "signature": {"hash": bytes(20), "keyId": 0}}
    for each in rs.members:
        command = {"find": "c", "readConcern": {"afterClusterTime": later}, "$clusterTime": gossip, "$readPreference": {"mode": "nearest"}}
        reply = send(each, db.name, command)
        assert reply["ok"] == 1 and reply["operationTime"] >= later, reply
    never = {"find": "c", "readConcern": {"afterClusterTime": Timestamp(now.time + 3600, 1)}, "$readPreference": {"mode": "nearest"}}
    for each in rs.members:
        assert send(each, db.name, never)["code"] == 72
        # Nor does a time that a client says it has seen, when that is years away.
        far = {"clusterTime": Timestamp(2**32 - 1, 1), "signature": gossip["signature"]}
        command = {**never, "readConcern": {"afterClusterTime": far["clusterTime"]}, "$clusterTime": far}
        assert send(each, db.name, command)["code"] == 205


def test_read_concerns_on_every_member(rs, db):
    db.c.with_options(write_concern=WriteConcern(w=3)).insert_many([{"_id": number, "n": 0} for number in range(500)])
    for preference in (ReadPreference.PRIMARY, ReadPreference.SECONDARY):
        for level in ("local", "available", "majority", "snapshot"):
            read = db.c.with_options(read_concern=ReadConcern(level), read_preference=preference)
            assert len(list(read.find({}, batch_size=100))) == 500, (preference, level)
        # One moment, in all batches, while the documents change.
        read = db.c.with_options(read_concern=ReadConcern("snapshot"), read_preference=preference)
        cursor = read.find({}, batch_size=100)
        seen = [next(cursor)]
        db.c.with_options(write_concern=WriteConcern(w=3)).update_many({}, {"$inc": {"n": 1}})
        seen += cursor
        assert len({each["n"] for each in seen}) == 1 and len(seen) == 500, preference
    with db.client.start_session(snapshot=True) as session:
        before = db.c.count_documents({"n": 2}, session=session)
        # Everywhere: who still shows the state of that time could read it.
        db.c.with_options(write_concern=WriteConcern(w=3)).delete_many({})
        later = db.c.count_documents({"n": 2}, session=session)
        assert before == later == 500
        # The state is kept where it was read first.
        elsewhere = db.c.with_options(read_preference=ReadPreference.SECONDARY)
        assert code_of(elsewhere.count_documents, {}, session=session) == 239
    linearizable = db.c.with_options(read_concern=ReadConcern("linearizable"))
    assert linearizable.find_one() is None
    db.c.insert_one({"_id": 1})
    assert linearizable.find_one() == {"_id": 1}


def test_a_moment_that_a_secondary_has_not_come_to_is_waited_for(rs, db):
    """It was refused as a time to come, and had passed a moment later."""
    db.c.insert_one({"_id": 1})
    rs.wait_applied()
    primary, late = rs.primary, rs.secondaries[0]
    find = {"find": "c", "$readPreference": {"mode": "nearest"}}
    # Its state stays as it is until it is unlocked.
    late.direct.admin.command("fsync", lock=True)
    try:
        db.c.insert_one({"_id": 2})
        shown = send(primary, db.name, {**find, "readConcern": {"level": "snapshot"}})
        find["readConcern"] = {"level": "snapshot", "atClusterTime": shown["cursor"]["atClusterTime"]}
        db.c.insert_one({"_id": 3})
        assert send(late, db.name, {**find, "maxTimeMS": 100})["code"] == 50
        replies = []
        waiter = threading.Thread(target=lambda: replies.append(send(late, db.name, {**find, "comment": "waits"})))
        waiter.start()
        running = [{"$currentOp": {}}, {"$match": {"command.comment": "waits"}}]
        wait(lambda: list(late.direct.admin.aggregate(running)), "the read to wait")
        assert not replies, replies
    finally:
        late.direct.admin.command("fsyncUnlock")
    waiter.join()
    rs.wait_applied()
    for reply in (*replies, send(late, db.name, find)):
        assert reply["ok"] == 1 and reply["cursor"]["firstBatch"] == [{"_id": 1}, {"_id": 2}], reply
    never = {**find["readConcern"], "atClusterTime": Timestamp(find["readConcern"]["atClusterTime"].time + 3600, 1)}
    assert send(late, db.name, {**find, "readConcern": never})["code"] == 72


def test_a_primary_that_others_left_answers_no_linearizable_reads(rs, db):
    db.c.with_options(write_concern=WriteConcern(w=3)).insert_one({"_id": 1, "n": 1})
    primary, others = rs.primary, rs.secondaries
    hold(others)
    try:
        find = {"find": "c", "readConcern": {"level": "linearizable"}, "maxTimeMS": 300}
        reply = send(primary, db.name, find)
        assert reply["ok"] == 0 and reply["code"] in (50, 10107, 11602, 189), reply
    finally:
        for each in others:
            each.process.send_signal(signal.SIGCONT)
    rs.wait_healthy()
    assert send(rs.primary, db.name, {"find": "c", "readConcern": {"level": "linearizable"}})["cursor"]["firstBatch"] == [{"_id": 1, "n": 1}]


def test_a_change_of_many_documents_does_not_wait_for_each_of_them(rs, db):
    db.c.with_options(write_concern=WriteConcern(w=3)).insert_many([{"_id": n, "n": 0} for n in range(50)])
    primary, others = rs.primary, rs.secondaries
    hold(others)
    try:
        statement = {"q": {}, "u": {"$inc": {"n": 1}}, "multi": True}
        reply = send(primary, db.name, {"update": "c", "updates": [statement], "maxTimeMS": 1500})
        assert reply["ok"] == 0 and reply["code"] in (50, 11602), reply
        assert primary.direct[db.name].c.count_documents({"n": 1}) == 0, "nobody sees what no majority has"
    finally:
        for each in others:
            each.process.send_signal(signal.SIGCONT)
    rs.wait_healthy()
    # What it had put into the log goes its way: more than the one document for which it would have waited first.
    wait(lambda: db.c.count_documents({"n": 1}) > 1, "more than one document changed")


def bulk_of(random, size):
    """Statements on a few documents, so that many are about what those before them did."""
    number = lambda: random.randrange(6)
    filters = [
        lambda: {"_id": number()},
        lambda: {"_id": {"$in": [number(), number()]}, "n": {"$gt": number()}},
        lambda: {"n": number()},
        lambda: {"u": number()},
        lambda: {"list": number()},
        lambda: {"$expr": {"$eq": ["$n", number()]}},
        lambda: {"t": {"$exists": True}},
    ]
    changes = [
        lambda: {"$inc": {"n": number() - 2}},
        lambda: {"$set": {"u": number()}},
        lambda: {"$unset": {"u": 1}, "$push": {"list": number()}},
        lambda: {"$set": {"t": [number(), number()]}},
        lambda: [{"$set": {"n": {"$add": [{"$ifNull": ["$n", 0]}, 1]}}}],
    ]
    pick = lambda choices: random.choice(choices)()
    kinds = [
        lambda: InsertOne({"_id": number(), "n": number(), "list": [number()]}),
        lambda: UpdateOne(pick(filters), pick(changes), upsert=random.random() < 0.3),
        lambda: UpdateOne(pick(filters), pick(changes), sort={"n": 1, "_id": -1}),
        # A sparse index: what is not in it is not found.
        lambda: UpdateOne({"_id": number()}, pick(changes), hint="u_1"),
        lambda: UpdateMany(pick(filters), pick(changes)),
        lambda: ReplaceOne(pick(filters), {"n": number(), "u": number()}, upsert=random.random() < 0.3),
        lambda: DeleteOne(pick(filters)),
        lambda: DeleteMany({"n": {"$gt": 4}}),
    ]
    return [random.choices(kinds, weights=[3, 6, 2, 2, 2, 2, 2, 1])[0]() for _ in range(size)]


def test_bulks_come_to_what_they_do_on_one_server(rs, db, new_folder):
    """Statements of one command do not wait for each other, unless one is about what another did."""
    seed = int(os.environ.get("BULK_SEED", time.time()))
    print("BULK_SEED", seed)
    random = Random(seed)
    with Server(new_folder("alone")) as alone:
        one = alone.client(retryWrites=False)[db.name]
        several = [db, db.client.get_database(db.name), rs.client(retryWrites=False)[db.name]]
        for each in (one, db):
            each.c.create_index("u", unique=True, sparse=True)
            each.c.create_index("n")
        upserts = lambda found: {place: key if not isinstance(key, ObjectId) else None for place, key in found.items()}

        def outcome(collection, bulk, ordered):
            try:
                done = collection.bulk_write(bulk, ordered=ordered).bulk_api_result
            except BulkWriteError as error:
                done = error.details
            errors = [(each["index"], each["code"]) for each in done["writeErrors"]]
            counts = [done[each] for each in ("nInserted", "nMatched", "nModified", "nRemoved", "nUpserted")]
            return counts, errors, upserts({each["index"]: each["_id"] for each in done["upserted"]})

        def content(collection):
            # Documents get their `_id` from the servers where a filter has none.
            return [{**each, "_id": each["_id"] if isinstance(each["_id"], int) else None} for each in collection.find().sort("_id", 1)]

        for turn in range(60):
            bulk, ordered = bulk_of(random, random.choice([2, 5, 30])), random.random() < 0.5
            expected = outcome(one.c, bulk, ordered)
            found = outcome(several[turn % 3].c, bulk, ordered)
            assert found == expected, (seed, turn, ordered, bulk)
            assert content(db.c) == content(one.c), (seed, turn, ordered, bulk)
            if turn % 10 == 9:
                # `$merge` is such a command, too.
                for each in (one, db):
                    each.source.drop()
                    each.source.insert_many([{"_id": n, "u": n % 4, "n": n} for n in range(12)])
                    matched = {"on": "u", "whenMatched": [{"$set": {"n": {"$add": [{"$ifNull": ["$n", 0]}, "$$new.n"]}}}]}
                    stages = [{"$sort": {"_id": 1}}, {"$unset": "_id"}, {"$merge": {"into": "c", **matched}}]
                    each.source.aggregate(stages)
                assert content(db.c) == content(one.c), (seed, turn)


def test_statements_on_many_documents_see_what_those_before_them_did(rs, db):
    """Each takes effect as a whole before the next one looks for documents, also behind one that fails."""
    db.c.create_index("a")
    db.c.create_index("u", unique=True, sparse=True)
    many = 600
    db.c.insert_many([{"_id": n, "a": 1} for n in range(many)])

    def multi(filter, change):
        return {"q": filter, "u": change, "multi": True}

    # An index that is read while it is changed, by more than the primary has on its way at once.
    updates = [
        multi({"a": {"$gte": 1}}, {"$inc": {"a": 1}}),
        multi({"a": 2}, {"$set": {"a": 3}}),
        {"q": {"_id": -1}, "u": {"$set": {"a": 3}}, "upsert": True},
        multi({"a": 3}, {"$set": {"u": "one"}}),
        multi({"u": "one"}, {"$unset": {"u": 1}, "$set": {"a": 4}}),
        multi({"a": 3}, {"$set": {"a": 5}}),
    ]
    reply = db.command({"update": "c", "updates": updates, "ordered": False})
    # Of the one that fails the first document was changed; it is not counted, as in MongoDB.
    assert [(each["index"], each["code"]) for each in reply["writeErrors"]] == [(3, 11000)], reply
    assert (reply["n"], reply["nModified"]) == (many * 2 + 1 + 1 + many, many * 2 + 1 + many), reply
    assert db.c.count_documents({"a": 5}) == many and db.c.count_documents({"a": 4}) == 1

    deletes = [{"q": {"a": 5, "_id": {"$lt": 500}}, "limit": 0}, {"q": {"a": {"$gt": 0}}, "limit": 0}, {"q": {}, "limit": 0}]
    reply = db.command({"delete": "c", "deletes": deletes})
    assert reply["n"] == many + 1, reply
    assert db.c.count_documents({}) == 0

    bulk = [
        InsertOne({"_id": 1, "a": 1}),
        UpdateMany({"a": 1}, {"$set": {"a": 2}}),
        UpdateOne({"a": 2}, {"$set": {"a": 3}}),
        DeleteMany({"a": 3}),
        InsertOne({"_id": 1}),
    ]
    result = db.c.bulk_write(bulk)
    assert (result.inserted_count, result.modified_count, result.deleted_count) == (2, 2, 1)


# Write concerns.


def test_write_concerns_are_kept(rs, db):
    for concern in [{"w": 1}, {"w": 2}, {"w": 3}, {"w": "majority"}, {"w": "everywhere"}, {"w": "both"}, {"w": 1, "j": True}, {"w": 3, "j": True}]:
        db.c.with_options(write_concern=WriteConcern(**concern)).insert_one({"_id": str(concern)})
        if concern["w"] in (3, "everywhere"):
            for each in rs.members:
                assert each.direct[db.name].c.find_one({"_id": str(concern)}), (concern, each.number)
    for concern, code in [({"w": 4}, 100), ({"w": 50}, 100), ({"w": "nowhere"}, 79)]:
        with pytest.raises(WriteConcernError) as refused:
            db.c.with_options(write_concern=WriteConcern(**concern)).insert_one({"_id": str(concern)})
        assert refused.value.code == code, refused.value.details
        assert db.c.find_one({"_id": str(concern)}), "the write is done all the same"
    refused = send(rs.primary, db.name, {"insert": "c", "documents": [{}], "writeConcern": {"w": 51}})
    assert refused["ok"] == 0 and refused["code"] == 9, refused


def test_a_write_that_no_majority_takes_is_answered_in_its_time(tmp_path):
    """It waited until the primary stepped down, whatever its wtimeout said."""
    with ReplicaSet(tmp_path, election_ms=120_000) as rs:
        rs.initiate()
        primary, others = rs.primary, rs.secondaries
        # Connections from before the set was made know no sessions.
        client = MongoClient("127.0.0.1", primary.port, directConnection=True)
        client.t.c.insert_many([{"_id": number, "n": 0} for number in range(5)])
        rs.wait_applied()
        increment = {"$inc": {"n": 1}}
        impatient = {"writeConcern": {"w": "majority", "wtimeout": 300}}
        hold(others)
        try:
            for command, done in [
                ({"insert": "c", "documents": [{"_id": 5}, {"_id": 6}]}, {"n": 2}),
                # What nobody sees yet is in the way all the same.
                ({"insert": "c", "documents": [{"_id": 5}]}, {"n": 0}),
                ({"insert": "c", "documents": [{"_id": 7, "large": "x" * (5 << 20)}]}, {"n": 1}),
                ({"update": "c", "updates": [{"q": {"_id": 0}, "u": increment}]}, {"n": 1, "nModified": 1}),
                ({"update": "c", "updates": [{"q": {"_id": {"$lt": 3}}, "u": increment, "multi": True}]}, {"n": 3, "nModified": 3}),
                ({"update": "c", "updates": [{"q": {"_id": each}, "u": increment} for each in (1, 2)]}, {"n": 2, "nModified": 2}),
                ({"delete": "c", "deletes": [{"q": {"_id": 4}, "limit": 1}]}, {"n": 1}),
                ({"findAndModify": "c", "query": {"_id": 0}, "update": increment, "new": True}, {"value": {"_id": 0, "n": 3}}),
            ]:
                reply = send(primary, "t", {**command, **impatient})
                assert reply["ok"] == 1 and {name: reply[name] for name in done} == done, reply
                assert reply["writeConcernError"]["code"] == 64, reply
                assert reply["writeConcernError"]["errInfo"]["wtimeout"] is True, reply
                assert ("writeErrors" in reply) == (done == {"n": 0}), reply
            # One session, whose second write need not wait for the first.
            late = client.t.c.with_options(write_concern=WriteConcern("majority", wtimeout=300))
            for number in (10, 11):
                with pytest.raises(WTimeoutError):
                    late.insert_one({"_id": number})
            with client.start_session() as session:
                session.start_transaction(write_concern=WriteConcern("majority", wtimeout=300), read_preference=ReadPreference.PRIMARY)
                client.t.c.insert_one({"_id": 12}, session=session)
                with pytest.raises(PyMongoError) as unknown:
                    session.commit_transaction()
                assert unknown.value.has_error_label("UnknownTransactionCommitResult"), unknown.value
                # Nor for the commit.
                with pytest.raises(WTimeoutError):
                    late.insert_one({"_id": 14}, session=session)
            assert [each["_id"] for each in client.t.c.find()] == [0, 1, 2, 3, 4], "shown before it stays"
            # Who cannot be waited for at all is told so.
            reply = send(primary, "t", {"insert": "c", "documents": [{"_id": 13}], "writeConcern": {"w": 4, "wtimeout": 300}})
            assert (reply["n"], reply["writeConcernError"]["code"]) == (1, 100), reply
            # Of a write that asks for the primary alone wtimeout says nothing, and nothing is acknowledged that may be lost.
            reply = send(primary, "t", {"insert": "c", "documents": [{"_id": 15}], "writeConcern": {"w": 1, "wtimeout": 100}, "maxTimeMS": 1000})
            assert (reply["ok"], reply["code"]) == (0, 50), reply
        finally:
            for each in others:
                each.process.send_signal(signal.SIGCONT)
        rs.wait_healthy()
        found = wait(lambda: len(all_of := list(client.t.c.find({}, {"large": 0}))) == 13 and all_of, "what was written")
        expected = {0: 3, 1: 2, 2: 2, 3: 0}
        assert {each["_id"]: each.get("n") for each in found} == {**expected, **dict.fromkeys([5, 6, 7, 10, 11, 12, 13, 14, 15])}
        assert rs.primary is primary
        rs.check_equal()


def test_a_write_concern_waits_for_members_that_are_down(rs, db):
    """With one of three down: majority goes on, all do not; with two down nothing is acknowledged, and nothing is lost."""
    first, second = rs.secondaries
    first.kill()
    three = db.c.with_options(write_concern=WriteConcern(w=3, wtimeout=300))
    with pytest.raises(WTimeoutError) as late:
        three.insert_one({"_id": "three"})
    assert late.value.code == 64 and late.value.details["errInfo"]["wtimeout"] is True, late.value.details
    assert late.value.details["errInfo"]["writeConcern"]["provenance"] == "clientSupplied", late.value.details
    with pytest.raises(WTimeoutError):
        db.c.with_options(write_concern=WriteConcern(w="everywhere", wtimeout=100)).insert_one({"_id": "mode"})
    db.c.with_options(write_concern=WriteConcern(w="majority")).insert_one({"_id": "majority"})
    db.c.with_options(write_concern=WriteConcern(w=1)).insert_one({"_id": "one"})
    waiter = threading.Thread(target=lambda: db.c.with_options(write_concern=WriteConcern(w=3)).insert_one({"_id": "waits"}))
    waiter.start()
    wait(lambda: db.c.find_one({"_id": "waits"}), "the write to be seen while it waits")
    assert waiter.is_alive(), "it was acknowledged by members that are down"
    first.start()
    waiter.join(60)
    assert not waiter.is_alive()
    primary = rs.primary
    for each in (first, second):
        each.kill()
    alone = MongoClient("127.0.0.1", primary.port, directConnection=True)
    with pytest.raises((OperationFailure, AutoReconnect)):
        # It may be a primary yet that does not know, but it acknowledges nothing.
        alone[db.name].command({"insert": "c", "documents": [{"_id": "alone"}], "writeConcern": {"w": 1}, "maxTimeMS": 2500})
    wait(lambda: primary.state() == "SECONDARY", "a primary without a majority to step down")
    assert alone[db.name].get_collection("c", read_preference=ReadPreference.NEAREST).find_one({"_id": "alone"}) is None
    alone.close()
    first.start()
    second.start()
    rs.wait_healthy()
    assert db.c.count_documents({"_id": {"$in": ["three", "mode", "majority", "one", "waits"]}}) == 5


def test_counts_after_failed_and_unchanged_writes(rs, db):
    """Who learns that there is nothing to do has read it where it stays: the reply says a time that secondaries reach."""
    db.c.insert_one({"_id": 1, "n": 1})
    with pytest.raises(PyMongoError):
        db.c.insert_one({"_id": 1})
    result = db.c.with_options(write_concern=WriteConcern(w=3)).update_one({"_id": 1}, {"$set": {"n": 1}})
    assert (result.matched_count, result.modified_count) == (1, 0)
    for each in rs.members:
        assert each.direct[db.name].c.find_one() == {"_id": 1, "n": 1}


# Leadership changes.


class Background:
    """Work on threads of their own until `stop`; what they raised is raised there."""

    def __init__(self, *work):
        self.ended, self.failures = threading.Event(), []
        self.threads = [threading.Thread(target=self.run, args=(each,)) for each in work]
        for each in self.threads:
            each.start()

    def run(self, work):
        try:
            while not self.ended.is_set():
                work()
        except Exception as error:  # noqa: BLE001
            self.failures.append(error)

    def stop(self):
        self.ended.set()
        for each in self.threads:
            each.join(120)
            assert not each.is_alive()
        if self.failures:
            raise self.failures[0]


def test_increments_happen_once_through_kills_of_the_primary(rs, db):
    db.c.insert_one({"_id": 1, "n": 0})
    counts, unsure = [0, 0], []

    def increment(place):
        client = rs.client(retryWrites=True)

        def work():
            try:
                client[db.name].c.update_one({"_id": 1}, {"$inc": {"n": 1}})
                counts[place] += 1
            except PyMongoError as error:
                # Drivers send a write twice, and leadership may have changed twice.
                unsure.append(error)

        return work

    background = Background(increment(0), increment(1))
    for _ in range(2):
        goal = sum(counts) + 20
        wait(lambda goal=goal: sum(counts) >= goal or background.failures, "increments")
        killed = rs.primary
        killed.kill()
        wait(lambda killed=killed: rs.find_primary(), "another primary")
        killed.start()
        rs.wait_healthy()
    background.stop()
    rs.wait_applied()
    for each in rs.members:
        assert sum(counts) <= each.direct[db.name].c.find_one()["n"] <= sum(counts) + len(unsure), unsure


def insert_once(collection, key):
    def insert():
        try:
            return collection.insert_one({"_id": key}).acknowledged
        except DuplicateKeyError:
            return True

    wait(insert, f"an insert of {key}")


def test_a_change_stream_goes_on_over_failovers(rs, db):
    db.create_collection("c")
    seen, stop = [], threading.Event()
    stream = db.c.watch(max_await_time_ms=200)

    def follow():
        while not stop.is_set() or len(seen) < 60:
            change = stream.try_next()
            if change:
                seen.append(change["fullDocument"]["_id"])

    follower = threading.Thread(target=follow)
    follower.start()
    for number in range(60):
        if number == 20:
            rs.primary.kill()
        if number == 40:
            for each in rs.members:
                if not each.is_running:
                    each.start()
            rs.wait_healthy()
            rs.step_down()
        insert_once(db.c, number)
    stop.set()
    follower.join(60)
    assert not follower.is_alive() and seen == list(range(60)), seen
    # A token of one member is one of all.
    token = stream.resume_token
    stream.close()
    db.c.insert_one({"_id": "later"})
    for preference in (ReadPreference.PRIMARY, ReadPreference.SECONDARY):
        with db.with_options(read_preference=preference).c.watch(resume_after=token) as resumed:
            assert next(resumed)["fullDocument"]["_id"] == "later"


def test_a_stream_is_resumed_on_a_member_that_is_behind(rs, db):
    db.create_collection("c")
    rs.wait_applied()
    secondary = rs.secondaries[0]
    with db.c.watch() as stream:
        # It shows nothing of what is written.
        secondary.direct.admin.command("fsync", lock=True)
        try:
            db.c.insert_one({"_id": 1})
            assert next(stream)["fullDocument"] == {"_id": 1}
            resumed = secondary.direct[db.name].c.watch(resume_after=stream.resume_token, max_await_time_ms=100)
            assert resumed.try_next() is None
        finally:
            secondary.direct.admin.command("fsyncUnlock")
    db.c.insert_one({"_id": 2})
    change = wait(resumed.try_next, "the next event")
    assert change["fullDocument"] == {"_id": 2}
    resumed.close()


def test_transactions_over_failovers(rs, db):
    db.create_collection("a")
    db.create_collection("b")
    with db.client.start_session() as session:
        session.start_transaction()
        db.a.insert_one({"_id": 1}, session=session)
        rs.step_down()
        with pytest.raises(PyMongoError) as lost:
            db.b.insert_one({"_id": 1}, session=session)
        assert lost.value.has_error_label("TransientTransactionError"), lost.value.details
        session.abort_transaction()
    assert db.a.find_one() is None
    # A commit that is sent again to another primary is the one that was.
    with db.client.start_session() as session:
        session.start_transaction()
        db.a.insert_one({"_id": 2}, session=session)
        db.b.insert_one({"_id": 2}, session=session)
        session.commit_transaction()
        rs.step_down()
        session.commit_transaction()
    # The whole of it again and again while leaders change.
    whole = []

    def move():
        with db.client.start_session() as session:

            def body(session, number=len(whole)):
                db.a.insert_one({"n": number}, session=session)
                db.b.insert_one({"n": number}, session=session)

            session.with_transaction(body)
            whole.append(1)

    background = Background(move)
    for kill in (True, False):
        goal = len(whole) + 10
        wait(lambda goal=goal: len(whole) >= goal or background.failures, "transactions")
        if kill:
            killed = rs.primary
            killed.kill()
            wait(rs.find_primary, "another primary")
            killed.start()
            rs.wait_healthy()
        else:
            rs.step_down()
    background.stop()
    numbers = [sorted(each["n"] for each in db[name].find({"n": {"$exists": True}})) for name in "ab"]
    assert numbers[0] == numbers[1] == list(range(len(whole)))
    assert db.a.count_documents({"_id": 2}) == db.b.count_documents({"_id": 2}) == 1


def test_a_higher_priority_takes_over(rs, db):
    chosen = rs.secondaries[0]
    rs.reconfig(lambda config: config["members"][chosen.number].update(priority=5))
    try:
        wait(lambda: rs.find_primary() is chosen, "the member with the highest priority as primary")
        persist(db.c, 1)
        chosen.kill()
        wait(rs.find_primary, "another primary")
        persist(db.c, 2)
        chosen.start()
        wait(lambda: rs.find_primary() is chosen, "it takes over again")
        persist(db.c, 3)
    finally:
        rs.wait_healthy()
        rs.reconfig(lambda config: config["members"][chosen.number].update(priority=1))
    assert db.c.count_documents({}) == 3


# What everybody has.


def test_definitions_arrive_everywhere(rs, db):
    """The fixture compares documents, indexes, options and counts of all members afterwards."""
    db.create_collection("capped", capped=True, size=65536, max=50)
    db.create_collection("checked", validator={"n": {"$type": "int"}}, validationLevel="moderate")
    db.create_collection("folded", collation={"locale": "de", "strength": 1})
    db.create_collection("seen", viewOn="many", pipeline=[{"$match": {"n": 1}}])
    db.capped.insert_many([{"_id": number} for number in range(120)])
    db.checked.insert_one({"_id": 1, "n": 1})
    db.folded.insert_many([{"_id": word} for word in ("Strasse", "Apfel", "äpfel")][:2])
    db.many.insert_many([{"_id": number, "n": number % 7, "tags": ["a", number], "s": f"word{number % 5}"} for number in range(2000)])
    for keys, options in [
        ([("n", 1)], {}),
        ([("tags", 1), ("n", -1)], {"sparse": True}),
        ([("s", 1)], {"collation": {"locale": "de", "strength": 1}}),
        ([("u", 1)], {"unique": True, "partialFilterExpression": {"u": {"$exists": True}}}),
        ([("t", 1)], {"expireAfterSeconds": 3600}),
        ([("n", -1)], {"clustering": True}),
    ]:
        db.many.create_index(keys, **options)
    db.command("collMod", "many", index={"name": "t_1", "expireAfterSeconds": 1})
    db.command("collMod", "many", index={"name": "n_1", "hidden": True})
    db.command("collMod", "checked", validationAction="warn")
    db.many.drop_index("u_1")
    db.old.insert_many([{"_id": number} for number in range(10)])
    db.old.rename("new")
    db.gone.insert_one({})
    db.gone.drop()
    db.many.update_many({"n": 3}, {"$set": {"more": "x" * 100}, "$push": {"tags": "late"}})
    db.many.delete_many({"n": 4})
    db.many.aggregate([{"$match": {"n": 5}}, {"$out": "five"}])
    db.many.insert_many([{"_id": f"expired{number}", "t": datetime(2020, 1, 1)} for number in range(20)])
    for each in rs.members:
        wait(lambda each=each: each.direct[db.name].many.count_documents({"t": {"$exists": True}}) == 0, "expired documents to go")
    rs.wait_applied()
    for each in rs.members:
        there = each.direct[db.name]
        assert sorted(there.list_collection_names()) == sorted(db.list_collection_names())
        assert [found["_id"] for found in there.capped.find()] == list(range(70, 120))
        assert there.seen.count_documents({}) == db.many.count_documents({"n": 1})
        plan = there.command("explain", {"find": "many", "filter": {"tags": 5}, "hint": "tags_1_n_-1"}, verbosity="queryPlanner")
        assert "IXSCAN" in str(plan["queryPlanner"]["winningPlan"])
        carried = list(there.many.find({"n": {"$gte": 3}}).hint("n_-1"))
        assert carried == list(db.many.find({"n": {"$gte": 3}}).hint("n_-1")) and any("more" in found for found in carried)
        assert there.command("validate", "many")["valid"]


def test_a_wiped_member_comes_back_on_another_engine(rs, db):
    db.c.insert_many([{"_id": number, "n": number % 3} for number in range(3000)])
    db.c.create_index("n")
    db.c.create_index([("n", -1)], clustering=True)
    wiped = rs.secondaries[0]
    before, instance = wiped.engine, rs.consensus()[wiped.number]["instance"]
    assert wiped.stop() == 0
    wiped.wipe(next((engine for engine in ENGINES if engine != before), before))
    wiped.start()

    def is_back():
        known = rs.consensus()[wiped.number]
        return known["instance"] != instance and known["votes"] and wiped.state() == "SECONDARY"

    background = Background(lambda: persist(db.c, time.monotonic()))
    try:
        wait(is_back, "the wiped member with a vote")
    finally:
        background.stop()
    assert wiped.direct.admin.command("serverStatus")["storageEngine"]["name"] == wiped.engine
    assert wiped.direct[db.name].c.index_information().keys() == {"_id_", "n_1", "n_-1"}
    carried = wiped.direct[db.name].c.find({"n": 2}).hint("n_-1")
    assert sorted(found["_id"] for found in carried) == list(range(2, 3000, 3))
    assert wiped.direct[db.name].command("validate", "c")["valid"]
    # It can lead as well as any.
    rs.make_primary(wiped)
    persist(db.c, "led by it")


def test_a_copy_of_another_members_directory_is_not_taken_in(rs, db):
    db.c.insert_one({"_id": 1})
    original, copy = rs.secondaries
    for each in (original, copy):
        assert each.stop() == 0
    engine = copy.engine
    copy.wipe(original.engine)
    shutil.copytree(original.data, copy.data, dirs_exist_ok=True)
    original.start()
    copy.start()
    wait(lambda: '"id":8410022' in copy.log.read_text(), "the copy to be told")
    persist(db.c, 2)
    # While both were down, the primary may have given up, and any of the two that are left was elected.
    rs.wait_state(original, "PRIMARY", "SECONDARY")
    votes = rs.consensus()[original.number]["votes"]
    assert copy.stop() == 0
    copy.wipe(engine)
    copy.start()
    assert votes


def test_the_whole_set_stops_and_starts(rs, db):
    db.c.insert_many([{"_id": number} for number in range(100)])
    for each in rs.members:
        assert each.stop() == 0, each.tail()
    for each in rs.members:
        each.start()
    rs.wait_healthy()
    assert rs.primary.direct[db.name].c.count_documents({}) == 100


def test_nothing_acknowledged_is_lost_when_all_are_killed(rs, db):
    acknowledged = []

    def insert(client=rs.client(retryWrites=False, serverSelectionTimeoutMS=500), numbers=itertools.count()):
        try:
            number = next(numbers)
            client[db.name].c.with_options(write_concern=WriteConcern(w=1)).insert_one({"_id": number})
            acknowledged.append(number)
        except PyMongoError:
            pass

    background = Background(insert)
    wait(lambda: len(acknowledged) > 50, "writes")
    for each in rs.members:
        each.process.kill()
    background.stop()
    for each in rs.members:
        each.kill()
    for each in rs.members:
        each.start()
    rs.wait_healthy()
    found = {each["_id"] for each in rs.primary.direct[db.name].c.find()}
    assert set(acknowledged) <= found and len(found) <= len(acknowledged) + 1


def test_each_member_profiles_for_itself(rs, db):
    db.c.with_options(write_concern=WriteConcern(w=3)).insert_one({"_id": 1})
    one, other = rs.secondaries
    secondary = one.direct.get_database(db.name, read_preference=ReadPreference.SECONDARY_PREFERRED)
    assert secondary.command("profile", 2)["was"] == 0
    try:
        assert secondary.c.find_one() == {"_id": 1}
    finally:
        assert secondary.command("profile", 0)["was"] == 2
    assert [entry["op"] for entry in secondary["system.profile"].find({"ns": f"{db.name}.c"})] == ["query"]
    for each in (rs.primary, other):
        others = each.direct.get_database(db.name, read_preference=ReadPreference.SECONDARY_PREFERRED)
        assert others.command("profile", -1)["was"] == 0 and others["system.profile"].count_documents({}) == 0
    # It goes with its database.
    db.client.drop_database(db.name)
    wait(lambda: db.name not in one.direct.list_database_names(), "the database is gone on the secondary")
