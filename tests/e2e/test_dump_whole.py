"""`tenon dump`, `restore` and `import`: what arrives is what was there, or it is told that it is not."""

import fcntl
import os
import signal
import struct
import subprocess
import termios
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from bson import Timestamp, encode
from members import wait
from server import Server, binary


def tenon(*arguments, **options):
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


@pytest.fixture(scope="module")
def server(new_folder):
    with Server(new_folder("server"), options=["--setParameter", "enableTestCommands=1"]) as server:
        yield server


@pytest.fixture
def shop(server):
    client = server.client()
    for name in client.list_database_names():
        if name not in ("admin", "config", "local"):
            client.drop_database(name)
    return client.shop


def test_empty_timestamps_stay_empty(server, shop, tmp_path):
    document = {"_id": 1, "t": Timestamp(0, 0)}
    shop.command("insert", "ts", documents=[document], bypassEmptyTsReplacement=True)
    assert shop.ts.find_one() == document
    assert tenon("dump", "--uri", server.uri(), "--out", tmp_path).returncode == 0
    done = tenon("restore", "--uri", server.uri(), "--drop", tmp_path)
    assert done.returncode == 0 and shop.ts.find_one() == document, done.stderr
    text = '{"_id": %d, "t": {"$timestamp": {"t": 0, "i": 0}}}'
    for number, mode in enumerate(["insert", "upsert"]):
        done = tenon("import", "--uri", server.uri(), "--db", "shop", "--collection", "in", "--mode", mode, input=text % number)
        assert done.returncode == 0 and shop["in"].find_one({"_id": number})["t"] == Timestamp(0, 0), (mode, done.stderr)


def test_empty_timestamps_stay_empty_whichever_version_is_announced(new_folder):
    document = {"_id": 1, "t": Timestamp(0, 0)}
    options = ["--emulate-version", "7.0", "--setParameter", "enableTestCommands=1"]
    folder = new_folder("dump")
    with Server(new_folder("older"), options=options) as older:
        shop = older.client().shop
        shop.command("insert", "ts", documents=[document], bypassEmptyTsReplacement=True)
        assert tenon("dump", "--uri", older.uri(), "--out", folder).returncode == 0
        done = tenon("restore", "--uri", older.uri(), "--drop", folder)
        assert done.returncode == 0 and shop.ts.find_one() == document, done.stderr
        text = '{"_id": 1, "t": {"$timestamp": {"t": 0, "i": 0}}}'
        done = tenon("import", "--uri", older.uri(), "--db", "shop", "--collection", "in", input=text)
        assert done.returncode == 0 and shop["in"].find_one() == document, done.stderr
        # A server that does not know the field refuses it once, and has the documents all the same.
        unknown = {"failCommands": ["insert"], "errorCode": 40415}
        older.client().admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=unknown)
        done = tenon("restore", "--uri", older.uri(), "--drop", folder)
        assert done.returncode == 0 and shop.ts.count_documents({}) == 1, done.stderr


def test_who_ends_a_dump_does_not_wait_for_a_reply_that_is_late(server, shop, tmp_path):
    """The cursor was to be killed behind the reply that did not come."""
    shop.a.insert_many({"_id": n, "text": "x" * 1000} for n in range(40000))
    admin = shop.client.admin
    late = {"failCommands": ["getMore"], "blockConnection": True, "blockTimeMS": 100_000}
    admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=late)
    cursors = lambda: admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
    before = cursors()
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    line = [program, "dump", "--uri", server.uri(), "--db", "shop", "--out", tmp_path]
    try:
        with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
            wait(lambda: any("getMore" in op.get("command", {}) for op in admin.aggregate([{"$currentOp": {}}])), "it to wait")
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 1 and "stopped" in process.stderr.read()
        wait(lambda: cursors() <= before, "the cursor to be killed")
    finally:
        admin.command("configureFailPoint", "failCommand", mode="off")


def test_documents_that_a_validator_refuses_are_restored_where_that_is_asked_for(server, shop, tmp_path):
    shop.a.insert_many([{"_id": 1, "n": "text"}, {"_id": 2, "n": 1}])
    shop.command("collMod", "a", validator={"n": {"$type": "int"}})
    assert tenon("dump", "--uri", server.uri(), "--out", tmp_path).returncode == 0
    done = tenon("restore", "--uri", server.uri(), "--drop", tmp_path)
    assert done.returncode == 1 and "failed validation" in done.stderr and shop.a.count_documents({}) == 1
    done = tenon("restore", "--uri", server.uri(), "--drop", "--bypassDocumentValidation", tmp_path)
    assert done.returncode == 0 and shop.a.count_documents({}) == 2, done.stderr


@pytest.mark.parametrize("command", ["insert", "create", "createIndexes", "drop"])
def test_what_too_few_members_have_is_not_restored(server, shop, tmp_path, command):
    shop.a.insert_many({"_id": n, "n": n} for n in range(10))
    shop.a.create_index("n")
    assert tenon("dump", "--uri", server.uri(), "--out", tmp_path).returncode == 0
    shop.a.drop() if command != "drop" else None
    admin = shop.client.admin
    error = {"code": 91, "errmsg": "it is going down"}
    admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data={"failCommands": [command], "writeConcernError": error})
    try:
        done = tenon("restore", "--uri", server.uri(), *(["--drop"] if command == "drop" else []), tmp_path)
    finally:
        admin.command("configureFailPoint", "failCommand", mode="off")
    assert done.returncode == 1 and "it is going down" in done.stderr, done


def test_restore_asks_for_a_majority_or_for_what_it_is_told(server, shop, tmp_path):
    shop.a.insert_one({"_id": 1})
    assert tenon("dump", "--uri", server.uri(), "--out", tmp_path).returncode == 0
    for options, refused in [((), False), (("--writeConcern", "majority"), False), (("--writeConcern", "7"), True)]:
        done = tenon("restore", "--uri", server.uri(), "--drop", *options, tmp_path)
        assert (done.returncode == 1) == refused, done
    assert "write concern of 0" in tenon("restore", "--uri", server.uri(), "--writeConcern", "0", tmp_path).stderr


def test_names_longer_than_those_of_files(server, shop, tmp_path):
    """The whole folder was refused for one of the first, and the measurements were passed over in silence."""
    plain = ["漢" * 31, "ж" * 50, "a" * 241]
    series = ["m" * 228, "n" * 15, "漢" * 26]
    for name in plain:
        shop[name].insert_one({"_id": name})
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for name in series:
        shop.create_collection(name, timeseries={"timeField": "at", "metaField": "of"})
        shop[name].insert_many({"at": start + timedelta(seconds=n), "of": 1, "n": n} for n in range(10))
    assert tenon("dump", "--uri", server.uri(), "--out", tmp_path).returncode == 0
    shop.client.drop_database("shop")
    done = tenon("restore", "--uri", server.uri(), tmp_path)
    assert done.returncode == 0, done.stderr
    assert [shop[name].find_one()["_id"] for name in plain] == plain
    assert [shop[name].count_documents({"of": 1}) for name in series] == [10, 10, 10]
    # What tells of the measurements is lost.
    for path in (tmp_path / "shop").glob("n*.metadata.json"):
        path.unlink()
    shop.client.drop_database("shop")
    done = tenon("restore", "--uri", server.uri(), tmp_path)
    assert done.returncode == 1 and "time series shop." + series[1] in done.stderr
    assert tenon("restore", "--uri", server.uri(), "--drop", "--nsExclude", "shop." + series[1], tmp_path).returncode == 0


def test_files_with_another_name_are_another_collection(server, shop, tmp_path):
    shop.a.insert_one({"_id": 1, "is": "old"})
    assert tenon("dump", "--uri", server.uri(), "--out", tmp_path).returncode == 0
    shop.a.update_one({}, {"$set": {"is": "new"}})
    for path in (tmp_path / "shop").glob("a.*"):
        path.rename(path.with_name(path.name.replace("a.", "copy.", 1)))
    done = tenon("restore", "--uri", server.uri(), "--drop", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (shop.a.find_one()["is"], shop.copy.find_one()["is"]) == ("new", "old")


def test_options_of_indexes_that_servers_no_longer_know(server, shop, tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "a.bson").write_bytes(encode({"_id": 1, "n": 1}))
    (folder / "a.metadata.json").write_text('{"indexes": [{"key": {"n": 1}, "name": "n_1", "safe": true, "v": 1}]}')
    done = tenon("restore", "--uri", server.uri(), tmp_path)
    assert done.returncode == 0 and "n_1" in shop.a.index_information(), done.stderr


def test_a_pipe_whose_other_end_does_nothing_does_not_hold_a_tool(server, shop):
    """It could be ended by SIGKILL alone."""
    shop.a.insert_many({"_id": n, "text": os.urandom(8000).hex()} for n in range(200))
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    for command in ["restore", "dump"]:
        line = [program, command, "--uri", server.uri(), "--archive"]
        read, write = os.pipe()
        with subprocess.Popen(line, stdin=read, stdout=write, stderr=subprocess.PIPE, text=True) as process:
            # It has been started, and listens to signals, when it has read, or written all that the pipe takes.
            if command == "restore":
                os.write(write, b"\x6d\xe2\x99\x81")
            wait(lambda: is_full_or_empty(read, command == "dump"), "it to wait")
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 1 and "stopped" in process.stderr.read()
        os.close(read)
        os.close(write)


def is_full_or_empty(pipe, full):
    held = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"0000"))[0]
    return held > 60000 if full else held == 0
