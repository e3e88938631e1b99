"""`tenon dump --oplog` and `tenon restore --oplogReplay`: one moment of all collections, beside writers."""

import os
import random
import subprocess
import threading
import time

import pytest
from bson import Timestamp, decode_file_iter
from server import ENGINES, Server, binary

MEMBER = ["--replSet", "rs0", "--replSetInitiate"]


def tenon(*arguments):
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=200)


class Writers:
    """Threads that write in step: what they leave at any one moment is known."""

    def __init__(self, client):
        self.database = client.shop
        self.client = client
        self.stop = threading.Event()
        self.failures = []
        for name in ("checking", "savings"):
            self.database[name].insert_many([{"_id": n, "amount": 100} for n in range(30)])
        # The largest collections are dumped first: much is written until their partners' turn comes.
        for name in ("checking", "first"):
            self.database[name].insert_many([{"pad": os.urandom(600).hex()} for _ in range(5000)])
        self.database.keys.create_index("k", unique=True)
        self.database.first.insert_one({"_id": 0, "n": 0, "list": []})
        self.database.second.insert_one({"_id": 0, "n": 0, "list": []})
        works = [self.transfer, self.transfer, self.keys, self.steps, self.definitions]
        self.threads = [threading.Thread(target=self.run, args=(work,)) for work in works]

    def run(self, work):
        try:
            while not self.stop.is_set():
                work()
        except Exception as error:
            self.failures.append(error)

    def transfer(self):
        """The sum of all amounts stays, and so does the number of notes of a transaction."""
        one, other = random.randrange(30), random.randrange(30)
        with self.client.start_session() as session:

            def move(session):
                self.database.checking.update_one({"_id": one}, {"$inc": {"amount": -1}}, session=session)
                self.database.savings.update_one({"_id": other}, {"$inc": {"amount": 1}}, session=session)
                notes = [{"text": "x" * 100, "of": random.randrange(1000)} for _ in range(random.randrange(1, 50))]
                of = random.randrange(1 << 60)
                self.database.notes.insert_many([{**note, "of": of, "all": len(notes)} for note in notes], session=session)

            session.with_transaction(move)

    def keys(self):
        """A key goes from document to document, often: the dump can have it twice."""
        n = random.randrange(10)
        self.database.keys.delete_many({"k": n})
        self.database.keys.insert_one({"_id": random.randrange(1 << 60), "k": n})

    def steps(self):
        """The second is as far as the first, or one behind."""
        n = self.database.first.find_one({"_id": 0})["n"] + 1
        change = {"$set": {"n": n}, "$push": {"list": {"$each": [n], "$slice": -5}}}
        self.database.first.update_one({"_id": 0}, change)
        self.database.second.update_one({"_id": 0}, change)

    def definitions(self):
        name = f"short{random.randrange(3)}"
        self.database.drop_collection(name)
        self.database[name].insert_many([{"_id": n, "a": n} for n in range(20)])
        self.database[name].create_index("a")
        self.database[name].update_many({}, {"$inc": {"b": 1}})
        if random.random() < 0.5:
            self.database[name].drop_index("a_1")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        assert self.failures == []


def consistent(database):
    """Is this one moment of what the writers do?"""
    amounts = [account.get("amount", 0) for name in ("checking", "savings") for account in database[name].find()]
    assert sum(amounts) == 6000
    first, second = database.first.find_one({"_id": 0}), database.second.find_one({"_id": 0})
    assert first["n"] - second["n"] in (0, 1)
    for document in (first, second):
        assert document["list"] == list(range(max(1, document["n"] - 4), document["n"] + 1))
    for group in database.notes.aggregate([{"$group": {"_id": "$of", "n": {"$sum": 1}, "all": {"$first": "$all"}}}]):
        assert group["n"] == group["all"]
    keys = [document["k"] for document in database.keys.find()]
    assert len(keys) == len(set(keys))
    assert database.keys.index_information()["k_1"]["unique"]
    for name in database.list_collection_names(filter={"name": {"$regex": "^short"}}):
        # Documents and index are there or not; what was in between is, too.
        assert database[name].count_documents({}) in (0, 20)


def contents(client):
    found = {}
    for database in set(client.list_database_names()) - {"admin", "config", "local"}:
        for name in client[database].list_collection_names():
            documents = sorted(client[database][name].find(), key=lambda document: str(document["_id"]))
            found[f"{database}.{name}"] = (documents, client[database][name].index_information())
    return found


@pytest.mark.parametrize("form", ["folder", "archive"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_dump_beside_writers_is_one_moment(tmp_path, engine, form):
    server = Server(tmp_path / "live", engine, options=MEMBER)
    server.start()
    client = server.client(replicaSet="rs0", serverSelectionTimeoutMS=5000)
    # Large ones of other databases keep the dump busy while the writers write.
    for n in range(3):
        client[f"big{n}"].data.insert_many([{"_id": i, "text": os.urandom(500).hex()} for i in range(4000)])
    out = ["--archive=" + str(tmp_path / "dump")] if form == "archive" else ["--out", tmp_path / "dump", "--gzip"]
    with Writers(client) as writers:
        time.sleep(0.5)
        dumped = tenon("dump", "--port", server.port, "--oplog", "-j", 1, *out)
        while writers.database.first.find_one({"_id": 0})["n"] < 20:
            time.sleep(0.1)
    assert dumped.returncode == 0, dumped.stderr
    entries = int(dumped.stderr.split(" entries of the log")[0].split()[-1])
    assert entries > 20, dumped.stderr

    target = Server(tmp_path / "target", engine)
    target.start()
    source = out if form == "archive" else [tmp_path / "dump", "--gzip"]
    restored = tenon("restore", "--port", target.port, "--oplogReplay", *source)
    assert restored.returncode == 0, restored.stderr
    assert " operations of the log replayed" in restored.stderr
    consistent(target.client().shop)
    assert target.client().big1.data.count_documents({}) == 4000

    # Without writers a dump is all that there is, over what was restored before.
    again = ["--archive=" + str(tmp_path / "again")] if form == "archive" else ["--out", tmp_path / "again"]
    source = again if form == "archive" else [tmp_path / "again"]
    assert tenon("dump", "--port", server.port, "--oplog", *again).returncode == 0
    expected = contents(client)
    for name in target.client().list_database_names():
        if name not in ("admin", "config", "local"):
            target.client().drop_database(name)
    restored = tenon("restore", "--port", target.port, "--oplogReplay", *source)
    assert restored.returncode == 0, restored.stderr
    assert contents(target.client()) == expected


def test_a_log_alone_can_be_replayed_up_to_a_time(tmp_path):
    server = Server(tmp_path / "live", options=MEMBER)
    server.start()
    client = server.client(replicaSet="rs0", serverSelectionTimeoutMS=5000)
    for n in range(10):
        client.shop.orders.insert_one({"_id": n})
    client.shop.orders.create_index("a")
    log = tmp_path / "log"
    # The log as its own collection: what administrators keep beside backups.
    dumped = tenon("dump", "--port", server.port, "--db", "local", "--collection", "oplog.rs", "--out", log)
    assert dumped.returncode == 0, dumped.stderr
    file = log / "local" / "oplog.rs.bson"
    entries = list(decode_file_iter(open(file, "rb")))
    fourth = next(entry["ts"] for entry in entries if entry["op"] == "i" and entry["o"].get("_id") == 3 and entry["ns"] == "shop.orders")
    empty = tmp_path / "empty"
    empty.mkdir()
    for limit, ids, indexes in [
        (["--oplogLimit", f"{fourth.time}:{fourth.inc}"], [0, 1, 2], ["_id_"]),
        ([], list(range(10)), ["_id_", "a_1"]),
    ]:
        target = Server(tmp_path / f"target{len(ids)}")
        target.start()
        restored = tenon("restore", "--port", target.port, "--oplogReplay", "--oplogFile", file, *limit, empty)
        assert restored.returncode == 0, restored.stderr
        orders = target.client().shop.orders
        assert [document["_id"] for document in orders.find(sort=[("_id", 1)])] == ids
        assert sorted(orders.index_information()) == indexes


def test_what_cannot_be_done_is_said(tmp_path):
    alone = Server(tmp_path / "alone")
    alone.start()
    client = alone.client()
    client.shop.orders.insert_one({"_id": 1})
    out = tmp_path / "dump"

    def fails(text, *arguments):
        done = tenon(*arguments)
        assert done.returncode == 1 and text in done.stderr, done.stderr

    fails("no member of a replica set", "dump", "--port", alone.port, "--oplog", "--out", out)
    fails("everything only", "dump", "--port", alone.port, "--oplog", "--db", "shop", "--out", out)
    assert tenon("dump", "--port", alone.port, "--out", out).returncode == 0
    fails("without --oplog", "restore", "--port", alone.port, "--oplogReplay", out)
    archive = "--archive=" + str(tmp_path / "archive")
    assert tenon("dump", "--port", alone.port, archive).returncode == 0
    fails("without --oplog", "restore", "--port", alone.port, "--oplogReplay", "--drop", archive)
    fails("no other choice", "restore", "--port", alone.port, "--oplogReplay", "--db", "shop", out)
    fails("SECONDS", "restore", "--port", alone.port, "--oplogReplay", "--oplogLimit", "soon", out)

    # A log that is no log: nothing of it is taken for one.
    (out / "oplog.bson").write_bytes(b"\x05\x00\x00\x00\x00")
    fails("an entry without ts", "restore", "--port", alone.port, "--oplogReplay", "--drop", out)
    assert [document["_id"] for document in client.shop.orders.find()] == [1]


def test_a_collection_that_is_renamed_meanwhile_ends_the_dump(tmp_path):
    server = Server(tmp_path / "live", options=MEMBER)
    server.start()
    client = server.client(replicaSet="rs0", serverSelectionTimeoutMS=5000)
    client.shop.a.insert_many([{"_id": n, "text": "x" * 2000} for n in range(20000)])
    done = threading.Event()

    def rename():
        n = 0
        client.shop.b.insert_one({})
        while not done.is_set():
            client.shop[f"b{n}" if n else "b"].rename(f"b{n + 1}")
            n += 1

    thread = threading.Thread(target=rename)
    thread.start()
    time.sleep(0.2)
    dumped = tenon("dump", "--port", server.port, "--oplog", "--out", tmp_path / "dump")
    done.set()
    thread.join()
    assert dumped.returncode == 1 and "renamed meanwhile" in dumped.stderr, dumped.stderr
