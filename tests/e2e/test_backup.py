"""Hot backup: `$backupCursor` names the files, and what is copied while its cursor is open is the state of one moment."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import bson
import pytest
from members import ReplicaSet, mongosh, refused_code, wait
from pymongo import WriteConcern
from pymongo.errors import OperationFailure, PyMongoError
from server import ENGINES, Server, binary

# Checkpoints, and with them purges of the log, beside whatever the tests do.
OPTIONS = ["--syncdelay", "1"]


def begin(client, batch_size=None, **options):
    """Opens a backup in a session of its own, which every `getMore` has to name."""
    cursor = {} if batch_size is None else {"batchSize": batch_size}
    session = client.start_session()
    reply = client.admin.command("aggregate", 1, pipeline=[{"$backupCursor": options}], cursor=cursor, session=session)
    return {**reply["cursor"], "session": session}


def more(client, cursor):
    return client.admin.command("getMore", cursor["id"], collection="$cmd.aggregate", session=cursor["session"])["cursor"]


def end(client, cursor):
    killed = client.admin.command("killCursors", "$cmd.aggregate", cursors=[cursor["id"]])
    assert killed["cursorsKilled"] == [cursor["id"]]


def is_open(client):
    return client.admin.command("serverStatus")["storageEngine"]["backupCursorOpen"]


def copy(cursor, data, target):
    """Copies what the cursor names, as a script would: by path below the data directory, `fileSize` bytes of each."""
    for file in cursor["firstBatch"][1:]:
        assert os.path.isabs(file["filename"])
        to = target / os.path.relpath(file["filename"], cursor["firstBatch"][0]["metadata"]["dbpath"])
        to.parent.mkdir(parents=True, exist_ok=True)
        with open(file["filename"], "rb") as source, open(to, "wb") as copied:
            left = file["fileSize"]
            while left > 0:
                part = source.read(min(left, 1 << 20))
                assert part, f"{file['filename']} is shorter than {file['fileSize']}"
                copied.write(part)
                left -= len(part)


class Writers:
    """Threads that write, and know what was acknowledged.

    `counter` writes documents 0, 1, 2 … and deletes every third one 50 later; `maker` makes and drops collections; `growing`
    updates a few documents to larger and larger values."""

    def __init__(self, client):
        self.client = client
        self.stop = threading.Event()
        self.counted = 0
        self.deleted = 0
        self.kept = set()
        self.grown = 0
        self.errors = []
        self.threads = [threading.Thread(target=self.run, args=(work,)) for work in (self.counter, self.maker, self.growing)]

    def __enter__(self):
        db = self.client.work
        db.counter.create_index("n")
        db.counter.create_index([("text", 1), ("n", -1)], unique=True)
        db.growing.insert_many([{"_id": i, "round": 0} for i in range(10)])
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def run(self, work):
        try:
            while not self.stop.is_set():
                work()
        except PyMongoError as error:
            self.errors.append(error)
            self.stop.set()

    def counter(self):
        n = self.counted
        counter = self.client.work.get_collection("counter", write_concern=WriteConcern(j=n % 2 == 0))
        counter.insert_one({"_id": n, "n": n % 17, "text": f"t{n}", "large": "x" * (60_000 if n % 20 == 0 else 10)})
        self.counted = n + 1
        if n % 3 == 0 and n >= 50:
            counter.delete_one({"_id": n - 50})
            self.deleted = n - 50 + 1

    def maker(self):
        name = f"made{len(self.kept)}"
        database = self.client[f"db{len(self.kept) % 3}"]
        made = database.get_collection(name, write_concern=WriteConcern(j=True))
        made.insert_many([{"_id": i, "a": i % 5} for i in range(50)])
        made.create_index("a")
        database.dropped.insert_one({"_id": 1})
        database.drop_collection("dropped")
        self.kept.add((database.name, name))

    def growing(self):
        round_ = self.grown + 1
        for i in range(10):
            self.client.work.growing.update_one({"_id": i}, {"$set": {"round": round_, "value": os.urandom(5_000 + round_ % 50 * 1_000)}})
        self.grown = round_

    def wait(self, documents, timeout=60):
        until, limit = self.counted + documents, time.monotonic() + timeout
        while self.counted < until:
            assert not self.errors and time.monotonic() < limit, (self.errors, self.counted)
            time.sleep(0.01)


def validate_all(client):
    for database in client.list_database_names():
        for name in client[database].list_collection_names(filter={"type": "collection"}):
            report = client[database].command("validate", name, full=True)
            assert report["valid"], (database, name, report)


def check_copy(directory, target, before):
    """Starts a server on a copy and compares it with what had been acknowledged when the backup began."""
    copied = Server(directory, "btree")
    os.rmdir(copied.data)
    shutil.move(target, copied.data)
    with copied:
        client = copied.client()
        counter, growing = client.work.counter, client.work.growing
        last = counter.find_one(sort=[("_id", -1)])["_id"]
        assert last + 1 >= before["counted"] > 0
        # One moment: the one writer wrote these in this order, so each is there if a later one is.
        ids = {document["_id"] for document in counter.find({}, {"_id": 1})}
        gone = set(range(last + 1)) - ids
        newest = max(gone, default=-1)
        assert newest + 1 >= before["deleted"]
        assert newest + 50 <= last
        assert gone == {n - 50 for n in range(51, newest + 51) if n % 3 == 0}
        assert counter.count_documents({"n": {"$gte": 0}}, hint="n_1") == len(ids)
        rounds = [document["round"] for document in growing.find().sort("_id", 1)]
        assert rounds == sorted(rounds, reverse=True) and max(rounds) - min(rounds) <= 1, rounds
        assert min(rounds) >= before["grown"]
        for database, name in before["kept"]:
            assert client[database][name].count_documents({"a": {"$gte": 0}}, hint="a_1") == 50
        validate_all(client)
        counter.insert_one({"_id": "it goes on", "n": 0, "text": "u"})
        assert not is_open(client)
        assert copied.stop() == 0
    shutil.rmtree(copied.data)


def acknowledged(writers):
    return {"counted": writers.counted, "deleted": writers.deleted, "grown": writers.grown, "kept": set(writers.kept)}


def journal(server):
    return {path.name for path in (server.data / "journal").glob("*.log")}


@pytest.fixture
def own(tmp_path, request):
    """A server on btree of this test's own."""
    with Server(tmp_path / "server", "btree", options=[*OPTIONS, *getattr(request, "param", [])]) as made:
        yield made


@pytest.mark.parametrize("own", [[], ["--directoryperdb"]], indirect=True)
def test_a_copy_beside_writers_is_one_moment(own, tmp_path):
    client = own.client()
    with_log = 0
    with Writers(client) as writers:
        for round_ in range(4):
            writers.wait(150)
            before = acknowledged(writers)
            cursor = begin(client)
            assert cursor["ns"] == "admin.$cmd.aggregate" and cursor["id"] > 0
            metadata = cursor["firstBatch"][0]["metadata"]
            assert metadata["dbpath"] == str(own.data) and metadata["backupId"].as_uuid().version == 4
            assert is_open(client)
            names = [os.path.relpath(file["filename"], own.data) for file in cursor["firstBatch"][1:]]
            assert names[0] == "storage.bson" and "btree/main.blocks" in names
            segments = {os.path.basename(name) for name in names if name.startswith("journal/")}
            with_log += bool(segments)
            # Checkpoints, and what they make the log drop.
            for _ in range(3):
                writers.wait(60)
                client.admin.command("fsync")
                assert more(client, cursor)["nextBatch"] == []
            assert segments <= journal(own)
            target = tmp_path / "target"
            copy(cursor, own.data, target)
            end(client, cursor)
            assert not is_open(client)
            writers.wait(20)
            client.admin.command("fsync")
            client.admin.command("fsync")
            assert not segments & journal(own), "the log gives up what only the backup needed"
            check_copy(tmp_path / f"copy{round_}", target, before)
    assert not writers.errors
    assert with_log > 0
    validate_all(client)
    assert own.stop() == 0


def test_one_at_a_time_and_what_ends_it(own):
    client = own.client()
    client.work.c.insert_one({"_id": 1})
    cursor = begin(client, batch_size=0)
    assert cursor["firstBatch"] == []
    with pytest.raises(OperationFailure, match="existing backup cursor must be closed before \\$backupCursor") as error:
        begin(client)
    assert error.value.code == 50886
    with pytest.raises(OperationFailure) as error:
        client.admin.command("fsync", lock=True)
    assert error.value.code == 50884
    client.admin.command("fsync")
    files = more(client, cursor)["nextBatch"]
    assert "metadata" in files[0] and all(file["fileSize"] > 0 for file in files[1:])
    assert more(client, cursor) == {"nextBatch": [], "id": cursor["id"], "ns": "admin.$cmd.aggregate"}
    end(client, cursor)
    with pytest.raises(OperationFailure) as error:
        more(client, cursor)
    assert error.value.code == 43

    # A forgotten one is found and ended by anybody.
    forgotten = begin(own.client())["id"]
    idle = list(client.admin.aggregate([{"$currentOp": {"idleCursors": True}}, {"$match": {"type": "idleCursor"}}]))
    assert [operation["cursor"]["cursorId"] for operation in idle] == [forgotten], idle
    end(client, {"id": forgotten})
    assert not is_open(client)

    session = begin(client)["session"]
    assert is_open(client)
    client.admin.command("endSessions", [session.session_id])
    assert not is_open(client)

    # A driver's own cursor: closing it ends the backup.
    with client.admin.aggregate([{"$backupCursor": {"disableIncrementalBackup": True}}]) as listed:
        assert next(listed)["metadata"]["disableIncrementalBackup"] is True
        assert is_open(client)
    assert not is_open(client)

    client.admin.command("fsync", lock=True)
    with pytest.raises(OperationFailure, match="fsyncLocked") as error:
        begin(client)
    assert error.value.code == 50887
    client.admin.command("fsyncUnlock")
    begin(client)
    assert own.stop() == 0, "an open backup does not keep the server from ending"


@pytest.mark.parametrize("own", [["--setParameter", "cursorTimeoutMillis=6000"]], indirect=True)
def test_an_idle_backup_times_out_and_getmore_keeps_it(own):
    client = own.client()
    cursor = begin(client)
    # Asked for far more often than it has to be, for longer than it would last.
    limit = time.monotonic() + 9
    while time.monotonic() < limit:
        time.sleep(0.5)
        assert more(client, cursor)["nextBatch"] == []
    limit = time.monotonic() + 60
    while is_open(client):
        assert time.monotonic() < limit
        time.sleep(0.2)
    with pytest.raises(OperationFailure) as error:
        more(client, cursor)
    assert error.value.code == 43
    end(client, begin(client))


def test_a_crash_during_a_backup_leaves_nothing_behind(own, tmp_path):
    client = own.client(serverSelectionTimeoutMS=10000)
    with Writers(client) as writers:
        writers.wait(100)
        cursor = begin(client)
        segments = {os.path.basename(file["filename"]) for file in cursor["firstBatch"][1:] if "/journal/" in file["filename"]}
        writers.wait(100)
        client.admin.command("fsync")
        writers.wait(20)
        before = acknowledged(writers)
        own.kill()
    own.start()
    client = own.client()
    assert not is_open(client)
    last = client.work.counter.find_one(sort=[("_id", -1)])["_id"]
    # Every other write waited for the log.
    assert last + 2 >= before["counted"] > 200
    validate_all(client)
    client.work.other.insert_many([{"_id": i} for i in range(100)])
    client.admin.command("fsync")
    client.work.other.insert_one({"_id": 100})
    client.admin.command("fsync")
    assert not segments & journal(own)
    cursor = begin(client)
    target = tmp_path / "target"
    copy(cursor, own.data, target)
    end(client, cursor)
    copied = Server(tmp_path / "copy", "btree")
    os.rmdir(copied.data)
    shutil.move(target, copied.data)
    with copied:
        assert copied.client().work.other.count_documents({}) == 101
        assert copied.client().work.counter.find_one(sort=[("_id", -1)])["_id"] == last
        validate_all(copied.client())


REFUSED = [
    (1, [{"$backupCursor": 1}], 9),
    (1, [{"$backupCursor": {"nonesuch": 1}}], 40415),
    (1, [{"$backupCursor": {"incrementalBackup": True, "thisBackupName": "a"}}], 238),
    (1, [{"$backupCursor": {"thisBackupName": "a"}}], 72),
    (1, [{"$backupCursor": {"disableIncrementalBackup": "yes"}}], 14),
    (1, [{"$backupCursor": {}}, {"$limit": 1}], 238),
    (1, [{"$documents": []}, {"$backupCursor": {}}], 40602),
    (1, [{"$backupCursorExtend": {}}], 238),
    ("c", [{"$backupCursor": {}}], 73),
]


@pytest.mark.parametrize("target,pipeline,code", REFUSED)
def test_what_is_refused(client, target, pipeline, code):
    with pytest.raises(OperationFailure) as error:
        client.admin.command("aggregate", target, pipeline=pipeline, cursor={})
    assert error.value.code == code, error.value
    assert not is_open(client)


def test_engines_without_backups_say_so(client, server):
    if server.engine in ("btree", "betree"):
        end(client, begin(client))
        return
    with pytest.raises(OperationFailure, match="doesn't support backup mode") as error:
        begin(client)
    assert error.value.code == 115
    assert not is_open(client)


def tenon(*arguments, **options):
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)


def test_the_tool_copies_beside_writers(own, tmp_path):
    client = own.client()
    with Writers(client) as writers:
        writers.wait(100)
        before = acknowledged(writers)
        target = tmp_path / "target"
        # As shells complete names.
        done = tenon("backup", "--uri", own.uri(), "--out", f"{target}/")
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert str(target) in done.stdout, done.stdout
        assert not is_open(client)
        again = tenon("backup", "--uri", own.uri(), "--out", target)
        assert again.returncode != 0 and "is there already" in again.stderr, "it does not write over an older copy"
        within = tenon("backup", "--uri", own.uri(), "--out", own.data / "backup")
        assert within.returncode != 0 and "within the server's data directory" in within.stderr, within.stderr
        assert not is_open(client) and not [path for path in own.data.iterdir() if "backup" in path.name]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["server", "target"]
        assert all(path.stat().st_mode & 0o077 == 0 for path in [target, *target.rglob("*")]), "the owner's alone"
        check_copy(tmp_path / "copy", target, before)
    assert not writers.errors


@pytest.mark.parametrize("engine", ENGINES)
def test_a_backup_and_what_the_log_added_are_the_newest_state(tmp_path, engine):
    """Every engine: hot where it can, with writes held back elsewhere; the log is added twice."""
    lock = [] if engine in ("btree", "betree") else ["--lock"]
    with Server(tmp_path / "live", engine, options=["--replSet", "rs0", "--replSetInitiate"]) as live:
        client = live.client(replicaSet="rs0", serverSelectionTimeoutMS=5000)
        rows = client.work.rows
        rows.insert_many([{"_id": n, "n": n % 7} for n in range(500)])
        rows.create_index("n")
        backup = tmp_path / "backup"
        if lock:
            refused = tenon("backup", "--uri", live.uri(), "--out", backup)
            assert refused.returncode != 0 and "--lock" in refused.stderr, refused.stderr
            assert not any(tmp_path.glob("backup*"))
        done = tenon("backup", "--uri", live.uri(), "--out", backup, *lock)
        assert done.returncode == 0, done.stderr
        for round_ in range(2):
            rows.insert_many([{"_id": 1000 * (round_ + 1) + n, "n": n % 7} for n in range(300)])
            rows.delete_many({"_id": {"$lt": 100 * (round_ + 1)}})
            done = tenon("backup", "--uri", live.uri(), "--add-log", backup)
            assert done.returncode == 0, done.stderr
            assert not is_open(client)
        assert not [path for path in (backup / "journal").iterdir() if path.suffix != ".log"]
        expected = sorted(document["_id"] for document in rows.find())
        rows.insert_one({"_id": "after the last"})
    restored = tmp_path / "restored"
    done = tenon("restore", "--backup", backup, "--to-end", "--out", restored)
    assert done.returncode == 0, done.stderr
    again = Server(tmp_path / "again", engine)
    os.rmdir(again.data)
    shutil.move(restored, again.data)
    with again:
        client = again.client()
        assert sorted(document["_id"] for document in client.work.rows.find()) == expected
        validate_all(client)


def test_the_log_of_a_server_that_is_no_member_is_added_until_a_checkpoint_forgets_it(tmp_path):
    backup = tmp_path / "backup"
    with Server(tmp_path / "live", options=["--syncdelay", "0"]) as live:
        client = live.client()
        add = lambda: tenon("backup", "--uri", live.uri(), "--add-log", backup)
        client.work.c.insert_one({"_id": 0})
        assert tenon("backup", "--uri", live.uri(), "--out", backup).returncode == 0
        for number in (1, 2):
            client.work.c.insert_one({"_id": number})
            done = add()
            assert done.returncode == 0, done.stderr
        client.work.c.insert_one({"_id": 3})
        client.admin.command("fsync")
        refused = add()
        assert refused.returncode != 0 and "make a new backup" in refused.stderr, refused.stderr
        refused = tenon("backup", "--uri", live.uri(), "--add-log", backup, "--lock")
        assert refused.returncode != 0 and "cannot be used with" in refused.stderr, refused.stderr
    check = Server(tmp_path / "check")
    os.rmdir(check.data)
    shutil.copytree(backup, check.data)
    with check:
        assert sorted(document["_id"] for document in check.client().work.c.find()) == [0, 1, 2]
    # Of another server, whose log has segments of these numbers.
    with Server(tmp_path / "other", options=["--syncdelay", "0"]) as other:
        for _ in range(4):
            other.client().work.c.insert_one({})
            refused = tenon("backup", "--uri", other.uri(), "--add-log", backup)
            assert refused.returncode != 0, refused.stdout
            assert "make a new backup" in refused.stderr or "the backup is another server's" in refused.stderr, refused.stderr


def test_a_server_without_a_log_has_none_to_add(tmp_path):
    with Server(tmp_path / "live", options=["--nojournal"]) as live:
        backup = tmp_path / "backup"
        assert tenon("backup", "--uri", live.uri(), "--out", backup).returncode == 0
        refused = tenon("backup", "--uri", live.uri(), "--add-log", backup)
        assert refused.returncode != 0 and "writes no log" in refused.stderr, refused.stderr


@pytest.mark.parametrize("of", ["primary", "secondary"])
def test_a_backup_of_a_member_has_what_was_acknowledged_last(tmp_path, of):
    """A member writes down only now and then what of its log stays. A copy knows no other."""
    with ReplicaSet(tmp_path / "set", 3) as rs:
        rs.initiate()
        collection = rs.client().work.get_collection("c", write_concern=WriteConcern(w=3))
        member = rs.primary if of == "primary" else rs.secondaries[0]
        backup, copies = tmp_path / "backup", []
        collection.insert_one({"_id": 0})
        wait(lambda: member.direct.work.c.find_one({"_id": 0}), "it to be there")
        done = tenon("backup", "--uri", member.uri("directConnection=true"), "--out", backup)
        assert done.returncode == 0, done.stderr
        copies.append(shutil.copytree(backup, tmp_path / "first"))
        collection.insert_one({"_id": 1})
        wait(lambda: member.direct.work.c.find_one({"_id": 1}), "it to be there")
        done = tenon("backup", "--uri", member.uri("directConnection=true"), "--add-log", backup)
        assert done.returncode == 0, done.stderr
        copies.append(shutil.copytree(backup, tmp_path / "second"))
        restored = tmp_path / "third"
        done = tenon("restore", "--backup", backup, "--to-end", "--out", restored)
        assert done.returncode == 0, done.stderr
        copies.append(restored)
    for number, data in enumerate(copies):
        copy = Server(tmp_path / f"copy{number}", engine=member.engine)
        os.rmdir(copy.data)
        shutil.move(data, copy.data)
        with copy:
            found = sorted(document["_id"] for document in copy.client().work.c.find())
            assert found == ([0] if number == 0 else [0, 1]), number


def test_a_set_that_is_lost_begins_anew_from_a_backup(tmp_path):
    """On another machine the copy was no member of its set, and no configuration could be forced on it: it could only be dumped."""
    with ReplicaSet(tmp_path / "lost", [ENGINES[0]] * 3) as lost:
        lost.initiate()
        lost.client().work.get_collection("c", write_concern=WriteConcern(w=3)).insert_one({"_id": 0})
        member, id_of_set = lost.secondaries[0], lost.conf()["settings"]["replicaSetId"]
        done = tenon("backup", "--uri", member.uri("directConnection=true"), "--out", tmp_path / "backup")
        assert done.returncode == 0, done.stderr
    with ReplicaSet(tmp_path / "new", [member.engine] * 2) as rs:
        first, second = rs.members
        assert first.stop() == 0
        shutil.rmtree(first.data)
        shutil.copytree(tmp_path / "backup", first.data)
        first.start()
        assert first.state() == "REMOVED", "its set, and not this server, is in the configuration"
        force = f"""
            cfg = rs.conf()
            cfg.members = [{{_id: 0, host: "{first.host}"}}]
            print(JSON.stringify(rs.reconfig(cfg, {{force: true}})))"""
        said = mongosh(f"mongodb://{first.host}/?directConnection=true", force)
        assert '"ok":1' in said, said
        wait(lambda: first.state() == "PRIMARY", "it to lead alone")
        assert rs.conf()["settings"]["replicaSetId"] != id_of_set, "it is another set"
        first.direct.work.c.insert_one({"_id": 1})
        rs.reconfig(lambda config: config["members"].append({"_id": 1, "host": second.host}))
        rs.wait_healthy()
        assert [document["_id"] for document in second.direct.work.c.find()] == [0, 1]
        rs.check_equal()
        # Two members of the lost set that come back after all are that set again, and no members of this one.
        returned = [each for each in lost.members if each is not member]
        try:
            for each in returned:
                each.start()
            wait(lambda: sorted(each.state() for each in returned) == ["PRIMARY", "SECONDARY"], lost.states)
            for each in returned:
                added = rs.conf()
                added["version"] += 1
                added["members"].append({"_id": 2, "host": each.host})
                code, said = refused_code(rs.primary.direct.admin.command, "replSetReconfig", added)
                assert code == 103 and each.host in said and "replica set IDs do not match" in said, (code, said)
                assert [document["_id"] for document in each.direct.work.c.find()] == [0]
        finally:
            for each in returned:
                each.stop()
        rs.check_equal()


def test_a_log_that_has_moved_on_is_not_added(own, tmp_path):
    client = own.client()
    client.work.c.insert_one({"_id": 1})
    target = tmp_path / "target"
    assert tenon("backup", "--uri", own.uri(), "--out", target).returncode == 0
    segments = target / "journal"
    segments.mkdir(exist_ok=True)
    for segment in segments.iterdir():
        segment.unlink()
    (segments / "0000000000000000.log").write_bytes(b"one that the server gave up long ago")
    client.work.c.insert_one({"_id": 2})
    refused = tenon("backup", "--uri", own.uri(), "--add-log", target)
    assert refused.returncode != 0 and "make a new backup" in refused.stderr, refused.stderr
    assert not is_open(client)
    refused = tenon("backup", "--uri", own.uri(), "--add-log", tmp_path / "nothing")
    assert refused.returncode != 0 and "is this a backup?" in refused.stderr, refused.stderr


def test_a_tool_that_is_killed_leaves_no_backup(own, tmp_path):
    client = own.client()
    client.work.c.insert_many([{"_id": n, "value": os.urandom(100_000)} for n in range(300)])
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    target = tmp_path / "target"
    command = [program, "backup", "--uri", own.uri(), "--out", str(target)]
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    unfinished = tmp_path / "target.unfinished"
    while not unfinished.exists() and killed.poll() is None:
        time.sleep(0.001)
    killed.kill()
    killed.wait()
    if not target.exists():
        refused = tenon("backup", "--uri", own.uri(), "--out", target)
        assert refused.returncode != 0 and str(unfinished) in refused.stderr, refused.stderr
        shutil.rmtree(unfinished)
    client.admin.command("ping")


@pytest.mark.parametrize(("engine", "command"), [("btree", "aggregate"), ("inMemory", "fsync")])
def test_a_tool_that_is_stopped_while_it_is_answered_holds_nothing(tmp_path, engine, command):
    """What takes the server's files is waited for, however long its checkpoint takes, so that it can be given back."""
    with Server(tmp_path / "server", engine, options=["--setParameter", "enableTestCommands=1"]) as server:
        client = server.client()
        client.t.c.insert_one({"_id": 1})
        slow = {"failCommands": [command], "blockConnection": True, "blockTimeMS": 2000}
        client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=slow)
        program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
        line = [program, "backup", "--uri", server.uri(), "--out", str(tmp_path / "backup"), "--lock"]
        stopped = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait(lambda: client.admin.command("currentOp", **{f"command.{command}": 1})["inprog"], "the command")
        stopped.send_signal(signal.SIGINT)
        _, errors = stopped.communicate(timeout=300)
        assert stopped.returncode == 1 and "stopped" in errors, errors
        assert not (tmp_path / "backup").exists()
        assert not is_open(client) and client.admin.command("currentOp").get("fsyncLock") is not True
        client.t.c.with_options(write_concern=WriteConcern(wtimeout=30_000)).insert_one({"_id": 2})
        assert tenon(*line[1:]).returncode == 0


def test_a_lock_that_is_of_no_use_is_let_go(tmp_path):
    """Whatever goes wrong behind the lock, writes go on."""
    with Server(tmp_path / "server", "inMemory") as server:
        server.client().t.c.insert_one({"_id": 1})
        (server.data / "gone").symlink_to(tmp_path / "nowhere")
        done = tenon("backup", "--uri", server.uri(), "--out", tmp_path / "backup", "--lock")
        assert done.returncode != 0 and "listing the data directory" in done.stderr, done.stderr
        server.client().t.c.with_options(write_concern=WriteConcern(wtimeout=30_000)).insert_one({"_id": 2})
        assert not (tmp_path / "backup").exists() and "lockCount" not in server.client().admin.command("serverStatus")
        (server.data / "gone").unlink()
        done = tenon("backup", "--uri", server.uri(), "--out", tmp_path / "backup", "--lock")
        assert done.returncode == 0, done.stderr


def read_message(connection):
    """The body of a request and its number; None at the end."""
    header = connection.recv(16, socket.MSG_WAITALL)
    if len(header) < 16:
        return None
    length, number, _, _ = struct.unpack("<4i", header)
    return number, bson.decode(connection.recv(length - 16, socket.MSG_WAITALL)[5:])


def test_files_that_are_named_late_are_copied(tmp_path):
    """A batch has 16 MB: of very many files the names come in several. This server gives one at a time."""
    data = tmp_path / "data"
    data.mkdir()
    names = [f"file{number}" for number in range(5)]
    for name in names:
        (data / name).write_text(name)
    listed = [{"metadata": {"dbpath": str(data)}}, *({"filename": str(data / name), "fileSize": len(name)} for name in names)]
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        left = list(listed)
        while request := read_message(connection):
            number, body = request
            reply = {"ok": 1.0, "maxWireVersion": 25}
            if next(iter(body)) in ("aggregate", "getMore"):
                batch = {"firstBatch" if "aggregate" in body else "nextBatch": left[:1]}
                reply["cursor"] = {"id": bson.Int64(7), "ns": "admin.$cmd.aggregate", **batch}
                del left[:1]
            encoded = bson.encode(reply)
            connection.sendall(struct.pack("<4iIB", 21 + len(encoded), 1, number, 2013, 0, 0) + encoded)

    thread = threading.Thread(target=serve)
    thread.start()
    done = tenon("backup", "--uri", f"mongodb://127.0.0.1:{listener.getsockname()[1]}", "--out", tmp_path / "backup")
    thread.join()
    listener.close()
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_text() for path in (tmp_path / "backup").iterdir()} == {name: name for name in names}
