"""Configuration: the book's files, mongod's options, and what is refused."""

import subprocess
from pathlib import Path

import pytest
from pymongo import MongoClient
from server import ENGINES, Server, binary

BOOK = Path(__file__).parents[2] / "book"


def refused(*options):
    done = subprocess.run([binary(), *options], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_unknown_and_contradictory_options_are_named(tmp_path):
    assert "nonesuch" in refused("--nonesuch")
    config = tmp_path / "c.yaml"
    config.write_text(f"storage:\n  dbPath: {tmp_path}\n  nonesuch: 1\n")
    assert "storage.nonesuch" in refused("--config", str(config))
    assert "journal" in refused("--dbpath", str(tmp_path), "--journal", "--nojournal")
    assert "replSet" in refused("--dbpath", str(tmp_path), "--replSet", "rs0")
    assert "nonesuch" in refused("--dbpath", str(tmp_path), "--storageEngine", "nonesuch")


@pytest.mark.parametrize("name", ["wiredTiger", "btree"])
def test_btree_says_plainly_that_it_is_not_built_yet(tmp_path, name):
    text = refused("--dbpath", str(tmp_path), "--storageEngine", name)
    assert name in text and "inMemory" in text


def test_missing_data_directory(tmp_path):
    assert "not found" in refused("--dbpath", str(tmp_path / "none"))


@pytest.mark.skipif(len(ENGINES) < 2, reason="needs two engines in the build")
def test_data_directory_remembers_its_engine_and_is_locked(tmp_path):
    server = Server(tmp_path, "rocksdb")
    with server:
        assert "tenond.lock" in refused("--dbpath", str(server.data), "--port", "0", "--storageEngine", "rocksdb", "--nounixsocket")
    text = refused("--dbpath", str(server.data), "--port", "0", "--storageEngine", "inMemory", "--nounixsocket")
    assert "rocksdb" in text and "mongodump" in text


@pytest.mark.parametrize("config", sorted(path.name for path in (BOOK / "configs").glob("*.conf")))
@pytest.mark.parametrize("engine", ENGINES)
def test_the_books_configurations_work_unchanged(tmp_path, config, engine):
    """Run from a directory of their own, as the book does; the engine is one of this build."""
    text = (BOOK / "configs" / config).read_text()
    data = text.split('dbPath: "')[1].split('"')[0]
    (tmp_path / data).mkdir(parents=True)
    process = subprocess.Popen(
        [binary(), "--config", str(BOOK / "configs" / config), "--storageEngine", engine, "--port", "0", "--unixSocketPrefix", str(tmp_path)],
        cwd=tmp_path,
    )
    try:
        log = tmp_path / "mongodb-server.log"
        port = None
        while port is None:
            assert process.poll() is None, log.read_text() if log.exists() else "no log"
            for line in log.read_text().splitlines() if log.exists() else []:
                if '"msg":"Waiting for connections"' in line:
                    port = int(line.split('"port":')[1].split(",")[0].split("}")[0])
        client = MongoClient("127.0.0.1", port)
        client.benchmark.benchmark.insert_one({"a": 1})
        assert client.admin.command("getCmdLineOpts")["parsed"]["storage"]["directoryPerDB"] is True
        client.close()
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_no_journal_is_said_and_j_refused(tmp_path, engine):
    from pymongo import WriteConcern
    from pymongo.errors import OperationFailure, WriteConcernError

    with Server(tmp_path, engine, options=["--nojournal"]) as server:
        client = server.client()
        with pytest.raises((OperationFailure, WriteConcernError)):
            client.t.get_collection("c", write_concern=WriteConcern(j=True)).insert_one({})
        client.t.c.insert_one({"_id": 1})
        assert client.admin.command("getLog", "startupWarnings")["log"]


def test_fork_and_shutdown(tmp_path):
    server = Server(tmp_path, ENGINES[0])
    pid_file = tmp_path / "pid"
    started = subprocess.run([*server.command(), "--fork", "--pidfilepath", str(pid_file)], capture_output=True, text=True, timeout=60)
    assert started.returncode == 0, started.stdout + started.stderr
    assert "forked process" in started.stdout
    assert int(pid_file.read_text()) > 0
    stopped = subprocess.run([binary(), "--dbpath", str(server.data), "--shutdown"], capture_output=True, text=True, timeout=60)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr


def test_version_and_help():
    assert "tenon" in subprocess.run([binary(), "--version"], capture_output=True, text=True).stdout.lower()
    assert "--dbpath" in subprocess.run([binary(), "--help"], capture_output=True, text=True).stdout


def test_emulated_version(tmp_path):
    with Server(tmp_path, ENGINES[0], options=["--emulate-version", "7.0"]) as server:
        admin = server.client().admin
        assert admin.command("buildInfo")["version"].startswith("7.0.")
        assert admin.command("hello")["maxWireVersion"] == 21
