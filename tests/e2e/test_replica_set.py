"""A replica set of one, with real drivers: transactions, writes that are sent again, and both across kills."""

import json
import os
import random
import socket
import struct
import subprocess
import threading
import time
import uuid
from pathlib import Path

import bson
import pymongo
import pytest
from bson import Binary, Int64, Timestamp
from members import wait
from pymongo import ReadPreference, WriteConcern
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from server import ENGINES, Server, send

CLIENTS = Path(os.environ.get("TENON_CLIENTS", os.path.expanduser("~/.cache/tenon/clients")))
MEMBER = ["--replSet", "rs0", "--replSetInitiate"]


@pytest.fixture(scope="module", params=ENGINES)
def member(request, new_folder):
    made = Server(new_folder("member"), request.param, options=MEMBER)
    made.start()
    yield made
    assert made.process.poll() is None, made.tail()
    assert made.stop() == 0, made.tail()


def connect(server, **options):
    return server.client(replicaSet="rs0", **{"serverSelectionTimeoutMS": 30000, **options})


@pytest.fixture
def db(member, request):
    client = connect(member)
    name = ("t_" + request.node.name.split("[")[0])[:60]
    client.drop_database(name)
    yield client[name]
    for collection in client[name].list_collection_names():
        report = client[name].command("validate", collection, full=True)
        assert report["valid"], report
    client.drop_database(name)


def test_a_driver_finds_the_primary(member):
    client = connect(member)
    assert client.admin.command("hello")["setName"] == "rs0"
    assert client.primary == ("localhost", member.port)
    status = client.admin.command("replSetGetStatus")
    assert [each["stateStr"] for each in status["members"]] == ["PRIMARY"]
    assert client.admin.command("ping", read_preference=ReadPreference.SECONDARY_PREFERRED)["ok"] == 1


def test_a_transaction_through_the_driver(db):
    db.a.insert_one({"_id": 1, "n": 1})
    with db.client.start_session() as session:

        def move(session):
            db.a.update_one({"_id": 1}, {"$inc": {"n": -1}}, session=session)
            db.b.insert_one({"n": 1}, session=session)
            return db.a.count_documents({"n": 0}, session=session), db.a.count_documents({"n": 0})

        assert session.with_transaction(move) == (1, 0)
        assert session.operation_time is not None
        with pytest.raises(DuplicateKeyError), session.start_transaction():
            db.a.insert_one({"_id": 2}, session=session)
            db.a.insert_one({"_id": 1}, session=session)
    assert (db.a.find_one(), db.b.count_documents({})) == ({"_id": 1, "n": 0}, 1)


def test_a_cursor_in_a_transaction_reads_one_moment(db):
    db.c.insert_many([{"_id": number, "n": 0} for number in range(1000)])
    with db.client.start_session() as session, session.start_transaction(read_concern=ReadConcern("snapshot")):
        cursor = db.c.find({}, batch_size=100, session=session).sort("_id")
        seen = [next(cursor)]
        db.c.update_many({}, {"$inc": {"n": 1}})
        db.c.insert_one({"_id": 1000, "n": 1})
        seen += cursor
    assert [each["n"] for each in seen] == [0] * 1000


def test_money_is_neither_made_nor_lost(db):
    """Transfers between accounts, with readers beside: each read of all accounts gives the same sum."""
    accounts, start, moves = 8, 100, 60
    seed = random.randrange(1 << 32)
    print("seed", seed)
    db.accounts.insert_many([{"_id": number, "n": start} for number in range(accounts)])
    failures, done = [], threading.Event()

    def transfer(number):
        choose = random.Random(seed + number)
        try:
            with db.client.start_session() as session:
                for _ in range(moves):
                    source, target = choose.sample(range(accounts), 2)

                    def body(session, source=source, target=target):
                        db.accounts.update_one({"_id": source}, {"$inc": {"n": -1}}, session=session)
                        db.accounts.update_one({"_id": target}, {"$inc": {"n": 1}}, session=session)

                    session.with_transaction(body)
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    def read():
        while not done.is_set():
            with db.client.start_session() as session, session.start_transaction():
                sums = [sum(each["n"] for each in db.accounts.find({}, session=session)) for _ in range(2)]
                if sums != [accounts * start] * 2:
                    failures.append(sums)
                    return

    writers = [threading.Thread(target=transfer, args=(number,)) for number in range(4)]
    reader = threading.Thread(target=read)
    for thread in [*writers, reader]:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert not failures, failures[:3]
    assert sum(each["n"] for each in db.accounts.find()) == accounts * start


def wait_for_lock(db, command):
    def waits():
        running = db.client.admin.command("currentOp", **{f"command.{command}": {"$exists": True}})["inprog"]
        return any(each.get("waitingForLock") for each in running)

    wait(waits)


@pytest.mark.parametrize(
    "command",
    [
        {"collMod": "a", "validationLevel": "moderate"},
        {"createIndexes": "a", "indexes": [{"key": {"n": 1}, "name": "n_1"}]},
        {"aggregate": "b", "pipeline": [{"$out": "a"}], "cursor": {}},
        {"drop": "a"},
        {"dropDatabase": 1},
    ],
    ids=lambda command: next(iter(command)),
)
def test_readers_do_not_stand_behind_who_waits_for_an_idle_transaction(member, db, command):
    """A transaction that had read one document and was forgotten, and one definition: reads waited until it expired."""
    name = next(iter(command))
    db.a.insert_one({"_id": 1})
    db.b.insert_one({"_id": 2})
    answers = []
    with db.client.start_session() as session, session.start_transaction():
        assert db.a.find_one(session=session)
        changes = threading.Thread(target=lambda: answers.append(send(member, db.name, command)))
        changes.start()
        wait_for_lock(db, name)
        for found in [db.a.find_one(max_time_ms=20_000), next(db.a.aggregate([{"$match": {}}], maxTimeMS=20_000))]:
            assert found == {"_id": 1}
        assert db.b.find_one(max_time_ms=20_000) == {"_id": 2}
        assert db.command("count", "a", maxTimeMS=20_000)["n"] == 1
        # Writers wait, as does whoever begins a transaction.
        with pytest.raises(OperationFailure) as late:
            db.command("insert", "a", documents=[{}], maxTimeMS=100)
        assert late.value.code == 50
        with db.client.start_session() as other, pytest.raises(OperationFailure) as late:
            other.start_transaction()
            db.a.find_one(session=other)
        assert late.value.code == 24 and late.value.has_error_label("TransientTransactionError")
        assert not answers
    changes.join()
    [answer] = answers
    assert answer["ok"] == 1, answer
    if "drop" in name:
        assert db.a.find_one() is None


def test_a_definition_whose_client_has_gone_is_given_up(member, db):
    """It kept writers waiting for a transaction although nobody wanted it any more."""
    db.a.insert_one({"_id": 1})
    with db.client.start_session() as session, session.start_transaction():
        assert db.a.find_one(session=session)
        body = bson.encode({"drop": "a", "$db": db.name})
        with socket.create_connection(("127.0.0.1", member.port), timeout=60) as connection:
            connection.sendall(struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body)
            wait_for_lock(db, "drop")
        db.command("insert", "a", documents=[{"_id": 2}], maxTimeMS=40_000)
    assert [each["_id"] for each in db.a.find()] == [1, 2]


def test_causal_reads_and_concerns(db):
    with db.client.start_session(causal_consistency=True) as session:
        db.c.insert_one({"_id": 1}, session=session)
        assert db.c.find_one({"_id": 1}, session=session)
    for level in ["local", "majority", "linearizable"]:
        assert db.c.with_options(read_concern=ReadConcern(level)).find_one({"_id": 1})
    two = db.c.with_options(write_concern=WriteConcern(w=2, wtimeout=100))
    with pytest.raises(PyMongoError) as raised:
        two.insert_one({"_id": 2})
    assert raised.value.details["code"] == 100
    assert db.c.find_one({"_id": 2})
    future = Timestamp(2**31, 1)
    with pytest.raises(OperationFailure) as refused:
        db.command("find", "c", readConcern={"afterClusterTime": future})
    assert refused.value.code == 72


def send_until_answered(server, database, command):
    """As a driver does whose connection breaks, but over restarts: the same command until there is an answer."""
    for _ in range(50):
        try:
            answer = send(server, database, command)
            assert answer["ok"] == 1, answer
            return answer
        except OSError:
            server.process.wait(60)
            server.process.stdout.close()
            server.start()
    raise AssertionError("no answer")


@pytest.mark.parametrize("engine", ENGINES)
def test_increments_happen_once_across_kills(tmp_path, engine):
    server = Server(tmp_path, engine, options=MEMBER)
    server.start()
    random_kills = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    session = {"id": Binary(uuid.uuid4().bytes, 4)}
    total = 40
    for number in range(total):
        command = {
            "findAndModify": "c",
            "query": {"_id": 1},
            "update": {"$inc": {"n": 1}},
            "upsert": True,
            "new": True,
            "lsid": session,
            "txnNumber": Int64(number),
        }
        killer = None
        if random_kills.randrange(8) == 0:
            killer = threading.Timer(random_kills.random() / 100, server.process.kill)
            killer.start()
        answer = send_until_answered(server, "t", command)
        if killer:
            killer.join()
            # Whether the answer came before the end or not: the one that comes now is the same.
            again = send_until_answered(server, "t", command)
            assert again["value"] == answer["value"], (number, again, answer)
        assert answer["value"]["n"] == number + 1, (number, answer)
    assert connect(server).t.c.find_one() == {"_id": 1, "n": total}
    assert server.stop() == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_transactions_are_whole_or_not_there_after_kills(tmp_path, engine):
    server = Server(tmp_path, engine, options=MEMBER)
    server.start()
    committed = 0
    connect(server).t.create_collection("a")
    connect(server).t.create_collection("b")
    for life in range(4):
        client = connect(server, serverSelectionTimeoutMS=500)
        # The time until the kill is for transactions, not for finding the server.
        wait(lambda: client.admin.command("ping"), "the server to be found")
        killer = threading.Timer(0.3, server.process.kill)
        killer.start()
        try:
            with client.start_session() as session:
                while True:
                    with session.start_transaction():
                        client.t.a.insert_one({"_id": committed}, session=session)
                        client.t.b.insert_many([{"of": committed}, {"of": committed}], session=session)
                    committed += 1
        except PyMongoError:
            pass
        killer.join()
        server.process.wait()
        server.process.stdout.close()
        server.close_clients()
        server.start()
        t = connect(server).t
        there = {each["_id"] for each in t.a.find()}
        assert set(range(committed)) <= there <= set(range(committed + 1)), (life, committed, max(there, default=None))
        assert t.b.count_documents({}) == 2 * len(there)
        # The commit whose answer was lost may have happened.
        committed = len(there)
        for name in ["a", "b"]:
            assert t.command("validate", name, full=True)["valid"]
    assert committed > 0
    assert server.stop() == 0


def test_data_of_a_server_alone_become_a_sets_and_back(tmp_path):
    server = Server(tmp_path)
    server.start()
    server.client().t.c.insert_one({"_id": 1})
    server.client().admin.command("setClusterParameter", {"defaultMaxTimeMS": {"readOperations": 5}})
    assert server.stop() == 0
    server.options = ["--replSet", "rs0"]
    server.start()
    client = server.client(directConnection=True)
    assert client.admin.command("hello")["isreplicaset"] is True
    with pytest.raises(PyMongoError):
        client.t.c.insert_one({"_id": 2})
    client.admin.command("replSetInitiate")
    client.t.c.insert_one({"_id": 2})
    assert server.stop() == 0
    server.start()
    # With a time of its own: a read that says nothing has five milliseconds by now.
    assert connect(server).t.c.count_documents({}, maxTimeMS=60_000) == 2
    assert connect(server).admin.command("replSetGetConfig")["config"]["term"] == 2
    assert server.stop() == 0
    server.options = []
    server.start()
    client = server.client()
    client.t.c.insert_one({"_id": 3})
    assert "setName" not in client.admin.command("hello")
    work = {"$reduce": {"input": {"$range": [0, 400_000]}, "initialValue": 0, "in": {"$add": ["$$value", 1]}}}
    with pytest.raises(OperationFailure) as late:
        client.t.c.aggregate([{"$project": {"n": work}}])
    assert late.value.code == 50, "what was set for the cluster stays"
    assert server.stop() == 0
    server.options = ["--replSet", "other"]
    with pytest.raises(RuntimeError, match="other"):
        server.start()


def test_mongosh_helpers(member):
    program = CLIENTS / "node" / "node_modules" / ".bin" / "mongosh"
    script = """
        const session = db.getMongo().startSession();
        session.startTransaction();
        session.getDatabase("t_shell_set").c.insertOne({ _id: 1 });
        session.commitTransaction();
        print(JSON.stringify([rs.status().ok, rs.conf()._id, rs.hello().isWritablePrimary, rs.config().members.length,
            db.getSiblingDB("t_shell_set").c.countDocuments()]));
        db.getSiblingDB("t_shell_set").dropDatabase();
    """
    uri = f"mongodb://localhost:{member.port}/?replicaSet=rs0"
    done = subprocess.run(
        [str(program), "--quiet", "--norc", uri, "--eval", script], capture_output=True, text=True, timeout=300
    )
    assert '[1,"rs0",true,1,1]' in done.stdout, done.stdout + done.stderr


def test_node_driver(member):
    script = """
        const { MongoClient } = require("mongodb");
        (async () => {
            const client = new MongoClient(process.env.TENON_URI);
            const c = client.db("t_node_set").collection("c");
            await c.deleteMany({});
            const session = client.startSession();
            const seen = await session.withTransaction(async () => {
                await c.insertMany([{ _id: 1 }, { _id: 2 }], { session });
                await c.updateOne({ _id: 2 }, { $set: { a: 1 } }, { session });
                return [await c.countDocuments({}, { session }), await c.countDocuments({})];
            });
            session.startTransaction();
            await c.insertOne({ _id: 3 }, { session });
            await session.abortTransaction();
            await session.endSession();
            await c.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } });
            console.log(JSON.stringify([seen, await c.find().sort({ _id: 1 }).toArray()]));
            await client.db("t_node_set").dropDatabase();
            await client.close();
        })();
    """
    environment = {
        **os.environ,
        "NODE_PATH": str(CLIENTS / "node" / "node_modules"),
        "TENON_URI": f"mongodb://localhost:{member.port}/?replicaSet=rs0",
    }
    done = subprocess.run(["node", "-e", script], env=environment, capture_output=True, text=True, timeout=300)
    assert json.loads(done.stdout) == [[2, 0], [{"_id": 1, "n": 1}, {"_id": 2, "a": 1}]], done.stdout + done.stderr


def authenticated(server, user, password, command):
    """One command by a user, with a session of our own in it."""
    client = connect(server, username=user, password=password)
    client.admin.command("ping")
    pool = next(iter(client._topology._servers.values())).pool  # noqa: SLF001
    with pool.checkout() as connection:
        return connection.command("admin", command, check=False)


def test_sessions_of_users_are_their_own(tmp_path):
    """Access control and transactions together: nobody goes on with another user's transaction."""
    server = Server(tmp_path, options=[*MEMBER, "--auth"])
    server.start()
    first = connect(server)
    first.admin.command("createUser", "amy", pwd="a", roles=["root"])
    amy = connect(server, username="amy", password="a")
    amy.admin.command("createUser", "bob", pwd="b", roles=[{"role": "readWrite", "db": "t"}])
    bob = connect(server, username="bob", password="b")
    with amy.start_session() as session:
        session.start_transaction()
        amy.t.c.insert_one({"_id": 1}, session=session)
        # The same session and number, of somebody else: another session, which has no such transaction.
        lsid, number = session.session_id, session._transaction_id  # noqa: SLF001
        answer = authenticated(server, "bob", "b", {"commitTransaction": 1, "lsid": lsid, "txnNumber": number, "autocommit": False})
        assert answer["code"] == 251, answer
        session.commit_transaction()
    with bob.start_session() as session, session.start_transaction():
        bob.t.c.insert_one({"_id": 2}, session=session)
    with pytest.raises(OperationFailure) as refused, bob.start_session() as session, session.start_transaction():
        bob.other.c.insert_one({"_id": 2}, session=session)
    assert refused.value.code == 13
    assert bob.t.c.count_documents({}) == 2
    assert server.stop() == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_collections_are_made_in_transactions(tmp_path, engine):
    """Committed ones are whole after kill -9, aborted ones leave nothing, and a stream tells them in order."""
    server = Server(tmp_path, engine, options=MEMBER)
    server.start()
    client = connect(server)
    db = client.shop
    with db.watch(show_expanded_events=True) as stream, client.start_session() as session:
        with session.start_transaction():
            db.create_collection("orders", session=session)
            db.orders.create_index("number", unique=True, session=session)
            db.orders.insert_many([{"number": n} for n in range(20)], session=session)
            db.made_by_insert.insert_one({"_id": 1}, session=session)
            assert db.orders.find_one({"number": 7}, session=session)
            assert db.list_collection_names() == []
        with pytest.raises(RuntimeError), session.start_transaction():
            db.create_collection("never", session=session)
            db.never.insert_one({}, session=session)
            raise RuntimeError("the transaction is aborted")
        events = [next(stream) for _ in range(4)]
        assert [event["operationType"] for event in events] == ["create", "createIndexes", "insert", "insert"]
        assert len({event["txnNumber"] for event in events}) == 1
    server.kill()
    server.start()
    client = connect(server)
    db = client.shop
    assert sorted(db.list_collection_names()) == ["made_by_insert", "orders"]
    assert sorted(db.orders.index_information()) == ["_id_", "number_1"]
    assert db.orders.count_documents({}) == db.orders.estimated_document_count() == 20
    assert db.command("validate", "orders", full=True)["valid"]
    with pytest.raises(DuplicateKeyError):
        db.orders.insert_one({"number": 7})
    client.close()
    assert server.stop() == 0


def test_streamed_hellos_tell_each_state_once(tmp_path):
    with Server(tmp_path, options=MEMBER) as server:
        admin = server.client().admin
        admin.command("ping")
        with socket.create_connection(("127.0.0.1", server.port)) as connection:

            def ask(document, flags=0):
                section = struct.pack("<ib", flags, 0) + bson.encode(document)
                connection.sendall(struct.pack("<iiii", 16 + len(section), 1, 0, 2013) + section)

            def answer():
                length = struct.unpack("<i", connection.recv(16, socket.MSG_WAITALL)[:4])[0]
                return bson.decode(connection.recv(length - 16, socket.MSG_WAITALL)[5:])

            ask({"hello": 1, "$db": "admin"})
            known = answer()["topologyVersion"]
            patience_ms, begun = 400, time.monotonic()
            ask({"hello": 1, "$db": "admin", "topologyVersion": known, "maxAwaitTimeMS": patience_ms}, flags=1 << 16)
            admin.command("replSetStepDown", 2, force=True)
            told, is_new = [], lambda each: each["topologyVersion"]["counter"] > known["counter"]
            while not told or not (told[-1]["isWritablePrimary"] and is_new(told[-1])):
                told.append(answer())
            # More than one time of patience besides, in the last state.
            told += [answer(), answer()]
            elapsed_ms = (time.monotonic() - begun) * 1000
            states = [each["topologyVersion"]["counter"] for each in told]
            assert states == sorted(states) and states[0] >= known["counter"], states
            assert not next(filter(is_new, told))["isWritablePrimary"]
            # Each state is told when it comes, and then once each time that nothing has happened for so long; the one
            # that was known, too, where the step down took longer than that.
            assert len(told) <= len(set(states) - {known["counter"]}) + elapsed_ms // patience_ms, states


def test_a_member_profiles_for_itself(db):
    db.c.insert_many([{"_id": n} for n in range(5)])
    log = db.client.local["oplog.rs"]
    assert db.command("profile", 2)["was"] == 0
    try:
        before = log.count_documents({})
        assert db.c.count_documents({"_id": {"$gt": 2}}) == 2
        assert db.c.find_one({"_id": 1}, comment="seen") == {"_id": 1}
        assert log.count_documents({}) == before
        with pytest.raises(OperationFailure) as refused:
            db["system.profile"].drop()
        assert refused.value.code == 20
    finally:
        assert db.command("profile", 0)["was"] == 2
    profile = db["system.profile"]
    found = profile.find_one({"op": "query", "command.comment": "seen"})
    assert found["ns"] == f"{db.name}.c" and found["nreturned"] == 1
    assert [entry["op"] for entry in profile.find({"ns": f"{db.name}.c"}).sort("$natural", -1).limit(2)] == ["query", "command"]
    assert profile.count_documents({}) == len(list(profile.find())) == profile.estimated_document_count()
    assert profile.options()["capped"]
    assert db.command("validate", "system.profile")["nrecords"] == profile.count_documents({})
    tail = profile.find(cursor_type=pymongo.CursorType.TAILABLE_AWAIT).max_await_time_ms(60_000)
    seen = [tail.next() for _ in range(profile.count_documents({}))]
    writer = threading.Thread(target=lambda: (db.command("profile", 2), db.c.find_one({"_id": 3}, comment="late"), db.command("profile", 0)))
    writer.start()
    while seen[-1].get("command", {}).get("comment") != "late":
        seen.append(tail.next())
    writer.join()
    tail.close()
    profile.drop()
    assert "system.profile" not in db.list_collection_names()


def test_a_capped_collection_is_made_of_another(db):
    with db.client.watch(full_document="default") as stream:
        db.c.insert_many([{"_id": n, "x": "x" * 1000} for n in range(100)])
        db.c.create_index("x")
        assert db.command("convertToCapped", "c", size=20_000)["ok"] == 1
        db.c.insert_one({"_id": 100, "x": "x" * 1000})
        assert [document["_id"] for document in db.c.find()] == list(range(82, 101))
        assert db.c.options()["capped"] and list(db.c.index_information()) == ["_id_"]
        events = [stream.next() for _ in range(100)]
        while events[-1]["operationType"] != "rename":
            events.append(stream.next())
        assert events[-1]["to"] == {"db": db.name, "coll": "c"}
    db.command("cloneCollectionAsCapped", "c", toCollection="d", size=5000)
    assert [document["_id"] for document in db.d.find()] == [97, 98, 99, 100]
