"""Configuration: the book's files, mongod's options, and what is refused."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure
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
    assert "tls" in refused("--dbpath", str(tmp_path), "--tlsMode", "requireTLS")
    assert "nonesuch" in refused("--dbpath", str(tmp_path), "--storageEngine", "nonesuch")


def test_what_is_nearly_right_is_suggested(tmp_path):
    assert "did you mean --dbpath?" in refused("--dbPath", str(tmp_path))
    assert "did you mean --auth?" in refused("--auht")
    assert "did you mean" not in refused("--nonesuch")
    config = tmp_path / "c.yaml"
    config.write_text("storage:\n  dbpath: /x\n")
    assert "did you mean storage.dbPath?" in refused("--config", str(config))
    data = tmp_path / "data"
    data.mkdir()
    assert "did you mean wiredTiger?" in refused("--dbpath", str(data), "--storageEngine", "wiredtiger")
    for parameter, said in [("nonesuch=1", "nonesuch"), ("syncdelay=-5", "syncdelay"), ("logLevel=9", "logLevel"), ("tlsMode=x", "tlsMode")]:
        assert said in refused("--dbpath", str(data), "--port", "0", "--setParameter", parameter)
    assert list(data.iterdir()) == [], "nothing is made for what will not start"


def test_help_has_groups_and_defaults():
    text = subprocess.run([binary(), "--help"], capture_output=True, text=True, check=True).stdout
    for line in ["Network:", "Access control:", "Storage:", "Tenon's own:"]:
        assert f"\n{line}\n" in text
    assert "(default: 27017) [net.port]" in text and "--auth " in text and "disabled, allowTLS, preferTLS, requireTLS" in text
    version = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True).stdout
    with_git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
    built = [line for line in version.splitlines() if line.startswith("Git version: ")]
    assert len(built) == 1 and (with_git.returncode != 0 or len(built[0]) == len("Git version: ") + 40)


def test_whom_a_shell_talks_to(tmp_path):
    with Server(tmp_path, options=["--portFile", str(tmp_path / "port")]) as server:
        client = server.client()
        [line] = [line for line in client.admin.command("getLog", "startupWarnings")["log"] if "Powered by Tenon" in line]
        assert "storage engine btree" in line
        assert len(client.admin.command("buildInfo")["gitVersion"]) == 40
        assert (tmp_path / "port").read_text() == f"{server.port}\n"
        # Each command is logged from level 1 on, and what would have no effect is refused.
        client.admin.command("setParameter", 1, logComponentVerbosity={"command": {"verbosity": 1}})
        client.shop.command("ping")
        client.admin.command("setParameter", 1, logComponentVerbosity={"command": {"verbosity": -1}})
        client.shop.command("count", "c")
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
        logged = [line["attr"]["command"] for line in lines if line["id"] == 51803]
        assert [command for command in logged if "ping" in command] and not [command for command in logged if "count" in command]
        with pytest.raises(OperationFailure, match="storage.journal") as raised:
            client.admin.command("setParameter", 1, logComponentVerbosity={"storage": {"journal": {"verbosity": 2}}})
        assert raised.value.code == 238
    assert not (tmp_path / "port").exists()


def test_on_a_terminal_lines_are_for_people(tmp_path):
    ours, theirs = pty.openpty()
    line = [binary(), "--dbpath", str(tmp_path), "--port", "0", "--nounixsocket"]
    process = subprocess.Popen(line, stdout=theirs, stderr=theirs, close_fds=True)
    os.close(theirs)
    text = ""
    while "Connect with" not in text or not text.endswith("\n"):
        text += os.read(ours, 4096).decode()
    [last] = [line for line in text.splitlines() if "Connect with" in line]
    uri = re.search(r"mongosh '(mongodb://localhost:\d+)'", last).group(1)
    assert MongoClient(uri).admin.command("ping")["ok"] == 1
    assert '{"t"' not in text and re.match(r"\d\d:\d\d:\d\d  ", last)
    process.terminate()
    assert process.wait(60) == 0
    os.close(ours)


def engine_of(server):
    return server.client().admin.command("serverStatus")["storageEngine"]["name"]


def test_btree_is_the_default_and_what_wired_tiger_means(tmp_path):
    assert ENGINES[0] == "btree"
    server = Server(tmp_path / "named", "wiredTiger", options=["--wiredTigerCacheSizeGB", "0.25", "--wiredTigerCollectionBlockCompressor", "zlib"])
    with server:
        assert engine_of(server) == "btree"
        assert server.client().admin.command("serverStatus")["wiredTiger"]["cache"]["maximum bytes configured"] == 1 << 28
        warnings = server.client().admin.command("getLog", "startupWarnings")["log"]
        assert not [line for line in warnings if "no effect" in line]
    with Server(tmp_path / "default", None) as server:
        assert engine_of(server) == "btree"


def test_options_that_cannot_be_honoured_are_warned_of(tmp_path):
    options = ["--wiredTigerDirectoryForIndexes", "--wiredTigerIndexPrefixCompression", "false", "--wiredTigerCacheSizeGB", "0.125"]
    with Server(tmp_path, "btree", options=options) as server:
        warnings = "\n".join(server.client().admin.command("getLog", "startupWarnings")["log"])
        assert "directoryForIndexes has no effect" in warnings and "prefixCompression: false has no effect" in warnings
        assert "the cache has 128 MiB of" in warnings


def test_without_a_choice_the_engine_of_the_data_is_taken(tmp_path):
    with Server(tmp_path, "inMemory") as server:
        server.client().t.c.insert_one({"_id": 1})
    server.engine = None
    with server:
        assert engine_of(server) == "inMemory"
        assert server.client().t.c.find_one() == {"_id": 1}


def test_a_directory_for_each_database(tmp_path):
    server = Server(tmp_path, "btree", options=["--directoryperdb"])
    with server:
        client = server.client()
        for name in ["one", "two"]:
            client[name].c.insert_many([{"_id": i, "pad": "x" * 100} for i in range(1000)])
        client.admin.command("fsync")
    folders = {path.name for path in (server.data / "btree").rglob("*") if path.is_dir()}
    assert {"one", "two"} <= folders, folders
    server.options = []
    with server:
        client = server.client()
        assert [client[name].c.count_documents({}) for name in ["one", "two"]] == [1000, 1000]
        client.one.c.drop()
        client.admin.command("fsync")
        assert client.two.c.count_documents({"pad": "x" * 100}) == 1000


def test_missing_data_directory(tmp_path):
    assert "not found" in refused("--dbpath", str(tmp_path / "none"))


def test_data_directory_remembers_its_engine_and_is_locked(tmp_path):
    server = Server(tmp_path, "btree")
    with server:
        assert "tenond.lock" in refused("--dbpath", str(server.data), "--port", "0", "--storageEngine", "btree", "--nounixsocket")
    text = refused("--dbpath", str(server.data), "--port", "0", "--storageEngine", "inMemory", "--nounixsocket")
    assert "btree" in text and "tenon migrate" in text


@pytest.mark.parametrize("config", sorted(path.name for path in (BOOK / "configs").glob("*.conf")))
def test_the_books_configurations_work_unchanged(tmp_path, config):
    """Run from a directory of their own, as the book does. Only the port is another one, so that tests do not meet."""
    text = (BOOK / "configs" / config).read_text()
    data = tmp_path / text.split('dbPath: "')[1].split('"')[0]
    data.mkdir(parents=True)
    process = subprocess.Popen(
        [binary(), "--config", str(BOOK / "configs" / config), "--port", "0", "--unixSocketPrefix", str(tmp_path)], cwd=tmp_path
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
        client.benchmark.benchmark.insert_many([{"a": i, "pad": "compressible " * 50} for i in range(3000)])
        client.admin.command("fsync")
        assert client.admin.command("getCmdLineOpts")["parsed"]["storage"]["directoryPerDB"] is True
        status = client.admin.command("serverStatus")
        engine = "mmapv1" if config == "mmapv1.conf" else "btree"
        assert status["storageEngine"]["name"] == engine
        if "cacheSizeGB: 8" in text:
            assert status["wiredTiger"]["cache"]["maximum bytes configured"] == 8 << 30
        stats = client.benchmark.command("collStats", "benchmark")
        assert stats["count"] == 3000
        # 3000 documents of 670 bytes and more.
        compressed = engine == "btree" and "blockCompressor: none" not in text
        assert (stats["storageSize"] < 1_000_000) == compressed, stats
        assert (data / engine / "benchmark").is_dir()
        warnings = "\n".join(client.admin.command("getLog", "startupWarnings")["log"])
        assert ("no effect" in warnings) == ("prefixCompression: false" in text), warnings
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
