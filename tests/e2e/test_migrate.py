"""`tenon migrate` over every pair of engines: what arrives, that the source stays as it was, and what is refused."""

import hashlib
import os
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest
from bson import Decimal128, Int64, ObjectId
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
    with Server(tmp_path / "running") as server:
        before = sorted(tmp_path.iterdir())
        running = server.data
        for arguments, reason in [
            (["--from", running, "--to-engine", ENGINES[0], "--out", tmp_path / "out"], "a server uses"),
            (["--from", tmp_path / "foreign", "--to-engine", ENGINES[0], "--out", tmp_path / "out"], "no data directory"),
            (["--from", tmp_path / "none", "--to-engine", ENGINES[0], "--out", tmp_path / "out"], "there is no directory"),
            (["--from", running, "--to-engine", "devnull", "--out", tmp_path / "out"], "has no storage engine devnull"),
            (["--from", running, "--to-engine", ENGINES[0], "--out", tmp_path / "full"], "is not empty"),
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
