"""`tenon verify` and `tenon log` on directories of real servers: whole, killed, damaged; and nothing in them is changed."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pymongo import WriteConcern
from server import ENGINES, Server, binary

TENON = Path(os.environ.get("TENON", Path(binary()).with_name("tenon")))


def tenon(*arguments):
    return subprocess.run([str(TENON), *map(str, arguments)], capture_output=True, text=True, timeout=300)


def is_built_in(engine):
    """Whether this build of `tenon` reads the engine's files."""
    return engine in tenon("--version").stdout.split("Storage engines: ")[1].strip().split(", ")


def fingerprint(folder):
    """Every file and folder, with its bytes and the time of its last change."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }


def durable(collection):
    return collection.with_options(write_concern=WriteConcern(j=True))


def fill(server):
    db = server.client().shop
    db.a.create_index([("n", 1)])
    for start in range(0, 3000, 500):
        db.a.insert_many({"_id": start + n, "n": n, "text": "x" * 300} for n in range(500))
    db.a.update_many({"n": {"$lt": 10}}, {"$set": {"changed": True}})
    db.a.delete_one({"_id": 5})
    db.b.insert_one({"_id": "only"})
    db.create_collection("v", viewOn="a", pipeline=[])
    db.gone.insert_one({})
    db.gone.drop()


@pytest.fixture(scope="module", params=[engine for engine in ENGINES if is_built_in(engine)])
def directories(request, new_folder):
    """The data of a server that was killed, and of one that ended in order."""
    folder = new_folder("inspect")
    found = {}
    for name in ["killed", "ended"]:
        server = Server(folder / name, request.param)
        with server:
            fill(server)
            if name == "killed":
                server.client().admin.command("fsync")
                durable(server.client().shop.c).insert_one({"_id": "behind the checkpoint"})
                server.kill()
        found[name] = server.data
    return request.param, found


def copied(directories, tmp_path, name="killed"):
    engine, found = directories
    data = tmp_path / "data"
    shutil.copytree(found[name], data)
    return engine, data


@pytest.mark.parametrize("name", ["killed", "ended"])
def test_whole_directories_are_whole_and_stay_as_they_are(directories, name):
    _, found = directories
    before = fingerprint(found[name])
    done = tenon("verify", "--json", found[name])
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["engine"] == directories[0] and summary["damages"] == 0
    assert summary["collections"] >= 2 and summary["documents"] >= 3000
    assert "everything is whole" in tenon("verify", found[name]).stdout
    assert tenon("log", found[name]).returncode == 0
    assert fingerprint(found[name]) == before


def test_the_log_is_shown(directories):
    _, found = directories
    lines = tenon("log", found["killed"]).stdout.splitlines()
    text = "\n".join(lines)
    assert 'insert shop.b {"_id":"only"}' in text and "put collection shop.a" in text and "put view shop.v" in text
    assert "drop collection shop.gone" in text
    assert all(len(line.split()[1]) == len("2026-01-31T12:00:00.640Z") for line in lines if "T" in line.split()[1]), text
    assert 'delete shop.a {"_id":5}' in text and "update shop.a" in text and "table " not in text, text
    entries = [json.loads(line) for line in tenon("log", "--json", found["killed"]).stdout.splitlines()]
    positions = [entry["seq"] for entry in entries]
    assert positions == list(range(positions[0], positions[0] + len(positions)))
    assert len(lines) == len(entries)
    some = [json.loads(line)["seq"] for line in tenon("log", "--json", "--from", 3, "--to", 5, found["killed"]).stdout.splitlines()]
    assert some == [3, 4, 5]
    inserted = [operation for entry in entries for operation in entry["operations"] if operation["op"] == "insert"]
    assert {"op": "insert", "ns": "shop.b", "record": 1, "document": {"_id": "only"}} in inserted


def test_damage_of_the_log_is_told_with_its_offset(directories, tmp_path):
    _, data = copied(directories, tmp_path)
    entries = [json.loads(line) for line in tenon("log", "--json", data).stdout.splitlines()]
    # In the middle, where later entries prove that it was written.
    hit = next(entry for entry in entries if entry["seq"] == len(entries) // 2)
    file = Path(hit["file"])
    with open(file, "r+b") as out:
        out.seek(hit["offset"] + 60)
        byte = out.read(1)[0]
        out.seek(hit["offset"] + 60)
        out.write(bytes([byte ^ 0xFF]))
    before = fingerprint(data)
    done = tenon("verify", "--json", data)
    assert done.returncode == 1, done.stdout
    damage = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"part": "log", "file": str(file), "offset": hit["offset"]}.items() <= damage[0].items(), damage
    done = tenon("log", "--json", data)
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    told = [line for line in lines if "damage" in line]
    assert [(line["file"], line["offset"]) for line in told] == [(str(file), hit["offset"])]
    # What stands before and behind it is shown.
    shown = {line["seq"] for line in lines if "seq" in line}
    frame = {entry["seq"] for entry in entries if entry["offset"] == hit["offset"]}
    assert shown == {entry["seq"] for entry in entries} - frame
    assert fingerprint(data) == before


def test_damage_of_the_engine_is_told_with_its_file(directories, tmp_path):
    engine, data = copied(directories, tmp_path, "ended")
    files = [path for path in (data / engine).rglob("*") if path.is_file() and path.suffix not in (".log", ".tmp")]
    file = max(files, key=lambda path: path.stat().st_size)
    bytes_there = bytearray(file.read_bytes())
    # What is reserved and was never written means nothing.
    used = len(bytes_there.rstrip(b"\0"))
    # All but the beginning: how much of the rest is in use depends on how many checkpoints there were.
    for offset in range(used // 4, used):
        bytes_there[offset] ^= 0x55
    file.write_bytes(bytes_there)
    before = fingerprint(data)
    done = tenon("verify", "--json", data)
    assert done.returncode == 1, done.stdout + done.stderr
    damages = [json.loads(line) for line in done.stdout.splitlines()][:-1]
    of_engine = [damage for damage in damages if damage["part"] == "engine"]
    assert any(file.name in (damage["file"] or damage["damage"]) for damage in of_engine), damages
    assert fingerprint(data) == before


def test_lost_files_are_told(directories, tmp_path):
    engine, data = copied(directories, tmp_path)
    segment = sorted((data / "journal").glob("*.log"))[0]
    segment.rename(tmp_path / "aside")
    done = tenon("verify", "--json", data)
    assert done.returncode == 1 and '"damages":0' not in done.stdout, done.stdout
    (tmp_path / "aside").rename(segment)
    (data / "storage.bson").rename(tmp_path / "storage.bson")
    done = tenon("verify", data)
    assert done.returncode == 1 and "metadata: " in done.stdout and "storage.bson" in done.stdout
    shutil.rmtree(data / engine)
    (tmp_path / "storage.bson").rename(data / "storage.bson")
    done = tenon("verify", data)
    assert done.returncode == 1 and "engine: " in done.stdout and "are missing" in done.stdout


def test_what_cannot_be_checked(tmp_path):
    done = tenon("verify", tmp_path / "nowhere")
    assert done.returncode == 2 and "there is no directory" in done.stderr
    assert tenon("log", tmp_path).returncode == 1
    done = tenon("log", tmp_path / "nowhere")
    assert done.returncode == 1 and done.stderr.count("No such file") == 1, done.stderr
    with Server(tmp_path / "running") as server:
        durable(server.client().shop.a).insert_one({"_id": 1})
        done = tenon("verify", server.data)
        assert done.returncode == 2 and "a server uses" in done.stderr
        done = tenon("log", server.data)
        assert done.returncode == 0 and "insert shop.a" in done.stdout and "a server uses" in done.stderr


def test_other_layouts(tmp_path):
    """A folder for each database, one of them behind a link; and a server without a log."""
    with Server(tmp_path / "folders", "btree", options=["--directoryperdb"]) as server:
        fill(server)
    folder = next(path for path in (server.data / "btree").rglob("shop") if path.is_dir())
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    before = fingerprint(server.data)
    done = tenon("verify", "--json", server.data)
    assert done.returncode == 0 and json.loads(done.stdout)["documents"] >= 3000, done.stdout
    assert fingerprint(server.data) == before
    with Server(tmp_path / "plain", options=["--nojournal"]) as server:
        fill(server)
    done = tenon("verify", "--json", server.data)
    assert done.returncode == 0 and json.loads(done.stdout)["documents"] >= 3000, done.stdout
