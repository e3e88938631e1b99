"""`tenon migrate` over every pair of engines: what arrives, that the source stays as it was, and what is refused."""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from bson import Decimal128, Int64, ObjectId, Timestamp
from members import ReplicaSet, code_of
from pymongo import ASCENDING, DESCENDING, MongoClient, WriteConcern
from server import ENGINES, Server, binary

TENON = Path(os.environ.get("TENON", Path(binary()).with_name("tenon")))


def migrate(*arguments):
    line = [str(TENON), "migrate", *map(str, arguments), "--tenond", binary()]
    return subprocess.run(line, capture_output=True, text=True, timeout=600)


def fingerprint(folder):
    """Every file and folder, with its bytes and the time of its last change."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }


def fill(client):
    shop = client.shop
    shop.a.create_index([("n", ASCENDING), ("tags", DESCENDING)], name="compound")
    shop.a.create_index("unique", unique=True, sparse=True)
    shop.a.create_index("n", name="part", partialFilterExpression={"n": {"$gt": 500}})
    shop.a.create_index([("n", DESCENDING)], clustering=True)
    for start in range(0, 3000, 500):
        shop.a.insert_many({"_id": start + n, "n": n, "tags": [n, str(n)], "text": "x" * (n % 400)} for n in range(500))
    shop.a.insert_one({"_id": ObjectId(), "unique": Decimal128("1.10"), "long": Int64(1), "at": datetime.now(timezone.utc)})
    shop.a.insert_one({"_id": "large", "text": "y" * 9_000_000})
    shop.create_collection("compressed", storageEngine={"wiredTiger": {"configString": "block_compressor=zlib"}})
    shop.create_collection("capped", capped=True, size=4096, max=10)
    shop.capped.insert_many({"_id": 100 - n} for n in range(20))
    shop.create_collection("view", viewOn="a", pipeline=[{"$match": {"n": 7}}])
    # A document that expired long ago, and that nobody has removed yet.
    shop.expiring.create_index("at", expireAfterSeconds=10)
    client["other-db"]["a collection/with % signs"].insert_one({"_id": 1})
    client.empty.create_collection("nothing")
    client.admin.command("createUser", "amy", pwd="secret", roles=["root"])
    privilege = {"resource": {"db": "shop", "collection": "a"}, "actions": ["find"]}
    client.shop.command("createRole", "clerk", roles=["read"], privileges=[privilege])
    client.shop.command("createUser", "bob", pwd="word", roles=[{"role": "clerk", "db": "shop"}])


def everything(client):
    found = {}
    for name in client.list_database_names():
        if name in ("local", "config"):
            continue
        for entry in client[name].list_collections():
            if entry["name"] == "system.keys":
                # What a server with access control makes for itself.
                continue
            collection = client[name][entry["name"]]
            documents = [] if entry["type"] == "view" else list(collection.find())
            indexes = {} if entry["type"] == "view" else collection.index_information()
            if not entry["options"].get("capped"):
                documents = sorted(map(repr, documents))
            found[name, entry["name"]] = (entry["type"], entry["options"], indexes, documents)
    return found


@pytest.fixture(scope="module", params=ENGINES)
def source(request, new_folder):
    """A directory of a server that was killed, and what it held."""
    server = Server(new_folder("source"), request.param)
    with server:
        client = server.client()
        fill(client)
        client.admin.command("fsync")
        client.shop.get_collection("late", write_concern=WriteConcern(j=True)).insert_one({"_id": 1})
        held = everything(client)
        server.kill()
    return server.data, held


@pytest.mark.parametrize("engine", ENGINES)
def test_every_pair(source, engine, tmp_path):
    data, held = source
    before = fingerprint(data)
    out = tmp_path / "new"
    done = migrate("--from", data, "--to-engine", engine, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "the same in" in done.stderr
    assert fingerprint(data) == before
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    server = Server(tmp_path / "run", None)
    server.data.rmdir()
    out.rename(server.data)
    with server:
        client = server.client()
        assert client.admin.command("serverStatus")["storageEngine"]["name"] == engine
        assert everything(client) == held and len(held) >= 9
        amy = MongoClient("127.0.0.1", server.port, username="amy", password="secret", authSource="admin")
        assert amy.shop.a.count_documents({}) == 3002
        amy.close()
        (role,) = client.shop.command("rolesInfo", "clerk", showPrivileges=True)["roles"]
        assert role["privileges"][0]["actions"] == ["find"]
        for name in ["a", "capped", "compressed", "late"]:
            assert client.shop.command("validate", name, full=True)["valid"]


def test_from_a_running_server(tmp_path):
    with Server(tmp_path / "source") as server:
        fill(server.client())
        held = everything(server.client())
        done = migrate("--from", f"mongodb://127.0.0.1:{server.port}", "--to-engine", ENGINES[-1], "--out", tmp_path / "new")
        assert done.returncode == 0, done.stderr
        assert everything(server.client()) == held
    copy = Server(tmp_path / "run", None)
    copy.data.rmdir()
    (tmp_path / "new").rename(copy.data)
    with copy:
        assert everything(copy.client()) == held


def test_an_empty_server(tmp_path):
    with Server(tmp_path / "source"):
        pass
    done = migrate("--from", tmp_path / "source" / "data", "--to-engine", ENGINES[-1], "--out", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new" / "storage.bson").is_file()


def test_refusals_leave_nothing_behind(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "out").mkdir()
    # Cannot give way to the new directory, as a mount point cannot.
    (tmp_path / "link").symlink_to("out")
    with Server(tmp_path / "running") as server:
        before = sorted(tmp_path.iterdir())
        running = server.data
        for arguments, reason in [
            (["--from", running, "--to-engine", ENGINES[0], "--out", tmp_path / "out"], "a server uses"),
            (["--from", tmp_path / "foreign", "--to-engine", ENGINES[0], "--out", tmp_path / "out"], "no data directory"),
            (["--from", tmp_path / "none", "--to-engine", ENGINES[0], "--out", tmp_path / "out"], "there is no directory"),
            (["--from", running, "--to-engine", "devnull", "--out", tmp_path / "out"], "has no storage engine devnull"),
            (["--from", running, "--to-engine", ENGINES[0], "--out", tmp_path / "full"], "is not empty"),
            (["--from", f"mongodb://127.0.0.1:{server.port}", "--to-engine", ENGINES[0], "--out", tmp_path / "link"], "name one below it"),
            (["--from", f"mongodb://127.0.0.1:{server.port}/shop", "--to-engine", ENGINES[0], "--out", tmp_path / "out"], "whole servers"),
        ]:
            done = migrate(*arguments)
            assert done.returncode == 1 and reason in done.stderr, (arguments, done.stderr)
            assert sorted(tmp_path.iterdir()) == before and list((tmp_path / "out").iterdir()) == []


def test_damage_ends_it_without_a_directory(tmp_path):
    source = Server(tmp_path / "source")
    with source:
        source.client().shop.a.insert_many({"_id": n, "text": os.urandom(400).hex()} for n in range(5000))
    file = max((path for path in (source.data / ENGINES[0]).rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    for offset in range(len(content) // 4, len(content) // 2):
        content[offset] ^= 0x55
    file.write_bytes(content)
    done = migrate("--from", source.data, "--to-engine", ENGINES[-1], "--out", tmp_path / "new")
    assert done.returncode == 1 and done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_member_that_was_killed_brings_all_that_its_log_has(tmp_path):
    """What a member knows to stay is written down now and then; what a majority has acknowledged since is in the log
    alone, and the other members may be gone."""
    with ReplicaSet(tmp_path / "set", ENGINES[:1] * 3) as members:
        members.initiate()
        client = members.client(w="majority")
        client.shop.a.insert_one({"_id": -1})
        primary = members.primary
        primary.direct.admin.command("fsync")
        client.shop.a.insert_many({"_id": n} for n in range(500))
        # Its end would wait for a server.
        client.close()
        for member in members.running:
            member.kill()
        before = fingerprint(primary.data)
        done = migrate("--from", primary.data, "--to-engine", ENGINES[-1], "--out", tmp_path / "new")
        assert done.returncode == 0, done.stderr
        assert "a member of a replica set" in done.stderr and fingerprint(primary.data) == before
    copy = Server(tmp_path / "run", None)
    copy.data.rmdir()
    (tmp_path / "new").rename(copy.data)
    with copy:
        assert copy.client().shop.a.count_documents({}) == 501


def test_documents_that_are_refused_otherwise_come_along(tmp_path):
    """A validator that is younger than they are, and timestamps in whose place servers put their time."""
    with Server(tmp_path / "source") as server:
        shop = server.client().shop
        shop.command("insert", "a", documents=[{"_id": 1, "n": "text", "t": Timestamp(0, 0)}], bypassEmptyTsReplacement=True)
        shop.command("collMod", "a", validator={"n": {"$type": "int"}})
    done = migrate("--from", server.data, "--to-engine", ENGINES[-1], "--out", tmp_path / "new")
    assert done.returncode == 0, done.stderr


def test_a_directory_within_the_source_is_refused(tmp_path):
    with Server(tmp_path / "source"):
        pass
    before = fingerprint(tmp_path)
    for out in ["data/new", "data/journal/new"]:
        done = migrate("--from", tmp_path / "source" / "data", "--to-engine", ENGINES[-1], "--out", tmp_path / "source" / out)
        assert done.returncode == 1 and "is within" in done.stderr
    assert fingerprint(tmp_path) == before


def test_nobody_else_reads_or_writes_meanwhile(tmp_path):
    """Each server that it starts is looked at by a stranger while it is there."""
    with Server(tmp_path / "source") as server:
        server.client().shop.a.insert_many({"_id": n, "text": "x" * 1000} for n in range(20000))
        server.client().admin.command("createUser", "amy", pwd="secret", roles=["root"])
    line = [str(TENON), "migrate", "--from", server.data, "--to-engine", ENGINES[-1], "--out", tmp_path / "new", "--tenond", binary()]
    refused = set()
    with subprocess.Popen(list(map(str, line)), stderr=subprocess.PIPE, text=True) as running:
        while running.poll() is None:
            for log in (tmp_path / "new.migrating").glob("*/server.log"):
                with contextlib.suppress(OSError, ValueError, StopIteration):
                    lines = log.read_text().splitlines()
                    listening = next(line for line in lines if "Waiting for connections" in line)
                    port = json.loads(listening)["attr"]["port"]
                    if log.parent.name not in refused:
                        with MongoClient("127.0.0.1", port, serverSelectionTimeoutMS=2000) as stranger:
                            for command in ["find", "insert"]:
                                options = {"documents": [{"_id": 0}]} if command == "insert" else {}
                                code = code_of(stranger.shop.command, command, "a", **options)
                                # Or it has ended.
                                assert code == 13 or isinstance(code, str), code
                                refused |= {log.parent.name} if code == 13 else set()
            time.sleep(0.01)
        assert running.returncode == 0, running.stderr.read()
    assert refused == {"source", "target"}


@pytest.fixture
def latin1(tmp_path):
    """A server whose replies have Latin-1 for `caf#`, as those of a MongoDB with an old database."""

    def pump(source, target, changes):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                target.sendall(changes(data))
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                behind = socket.create_connection(("127.0.0.1", server.port))
                for pair in [(client, behind, bytes), (behind, client, lambda data: data.replace(b"caf#", b"caf\xe9"))]:
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    with Server(tmp_path / "source") as server, socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        server.client().shop.people.insert_many([{"_id": 1}, {"_id": 2, "name": "caf#"}, {"_id": 3}])
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_text_that_is_not_utf8_comes_along_as_it_is_asked_for(latin1, tmp_path):
    line = ["--from", f"mongodb://127.0.0.1:{latin1}", "--to-engine", ENGINES[-1], "--out", tmp_path / "new"]
    stopped = migrate(*line)
    assert stopped.returncode == 1 and "field 'name' of the document with _id 2" in stopped.stderr
    assert "--invalidUtf8" in stopped.stderr and not (tmp_path / "new").exists()
    for how, expected in [("skip", [{"_id": 1}, {"_id": 3}]), ("replace", [{"_id": 1}, {"_id": 2, "name": "caf\ufffd"}, {"_id": 3}])]:
        done = migrate(*line, "--invalidUtf8", how)
        assert done.returncode == (1 if how == "skip" else 0) and "document with _id 2" in done.stderr, done.stderr
        told = "1 left out for text" if how == "skip" else "was replaced in 1"
        assert told in done.stderr and ("but for 1 left out" in done.stderr) == (how == "skip"), done.stderr
        copy = Server(tmp_path / how, None)
        copy.data.rmdir()
        (tmp_path / "new").rename(copy.data)
        with copy:
            assert list(copy.client().shop.people.find().sort("_id", 1)) == expected


def test_measurements_and_users_with_text_that_is_not_utf8_come_along(latin1, tmp_path):
    texts = ["a", "caf#", "z"]
    with MongoClient("127.0.0.1", latin1) as client:
        client.shop.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
        begin = datetime(2024, 1, 1, 12)
        rows = [{"_id": n, "t": begin + timedelta(seconds=n), "m": "a", "v": text} for n, text in enumerate(texts)]
        client.shop.x.insert_many(rows)
        client.admin.command("createUser", "bob", pwd="b", roles=[], customData={"city": "caf#"})
    line = ["--from", f"mongodb://127.0.0.1:{latin1}", "--to-engine", ENGINES[-1], "--out", tmp_path / "new"]
    stopped = migrate(*line)
    assert stopped.returncode == 1 and "admin.system.users" in stopped.stderr and "--invalidUtf8" in stopped.stderr
    assert "restoring" not in stopped.stderr
    expected = {"skip": (["a", "z"], []), "replace": (["a", "caf\ufffd", "z"], [{"city": "caf\ufffd"}])}
    for how, (values, users) in expected.items():
        done = migrate(*line, "--invalidUtf8", how)
        assert done.returncode == (1 if how == "skip" else 0) and "the same in" in done.stderr, done.stderr
        copy = Server(tmp_path / how, None)
        copy.data.rmdir()
        (tmp_path / "new").rename(copy.data)
        with copy:
            client = copy.client()
            assert [found["v"] for found in client.shop.x.find().sort("t", 1)] == values
            assert [user.get("customData") for user in client.admin["system.users"].find()] == users


def test_text_that_is_not_utf8_is_exported(latin1):
    line = [TENON, "export", "--port", str(latin1), "--db", "shop", "--collection", "people", "--sort", '{"_id": 1}']
    done = subprocess.run(line, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and "the first time: field 'name' of the document with _id 2" in done.stderr, done.stderr
    exported = [json.loads(line) for line in done.stdout.splitlines()]
    assert exported == [{"_id": 1}, {"_id": 2, "name": "caf\ufffd"}, {"_id": 3}]
