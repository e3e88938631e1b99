"""`tenon restore --backup`: data as they were at a point in time, from a backup's files and the log."""

import os
import shutil
import subprocess
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest
from bson import Timestamp
from members import wait
from pymongo import WriteConcern
from server import ENGINES, Server, binary

MEMBER = ["--replSet", "rs0", "--replSetInitiate"]


def tenon(*arguments):
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def restore(backup, out, *arguments):
    return tenon("restore", "--backup", backup, "--out", out, *arguments)


def optime(time):
    return f"{time.time}:{time.inc}"


@pytest.mark.parametrize("engine", ENGINES)
def test_any_point_after_a_backup_under_load(tmp_path, engine):
    """Transfers between accounts, with what each writer knew at its commits; the sum is always the same."""
    server = Server(tmp_path / "live", engine, options=MEMBER)
    server.start()
    client = server.client(replicaSet="rs0", serverSelectionTimeoutMS=5000)
    accounts = client.bank.accounts
    accounts.insert_many([{"_id": n, "amount": 100} for n in range(20)])
    accounts.create_index("amount")
    stop, replies = threading.Event(), {}

    def work(worker):
        n = 0
        while not stop.is_set():
            n += 1
            with client.start_session() as session:

                def move(session):
                    accounts.update_one({"_id": worker}, {"$inc": {"amount": -1}}, session=session)
                    accounts.update_one({"_id": 19 - worker}, {"$inc": {"amount": 1}}, session=session)
                    client.bank.log.insert_one({"_id": f"{worker} {n}"}, session=session)

                session.with_transaction(move)
                replies[f"{worker} {n}"] = session.operation_time

    writers = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
    for thread in writers:
        thread.start()
    time.sleep(0.7)
    # A copy of the whole directory, held still.
    client.admin.command("fsync", lock=True)
    backup = tmp_path / "backup"
    shutil.copytree(server.data, backup)
    client.admin.command("fsyncUnlock")
    copied = client.admin.command("ping")["operationTime"]
    enough = len(replies) + 60
    time.sleep(1.5)
    wait(lambda: len(replies) > enough, "transfers after the copy")
    stop.set()
    for thread in writers:
        thread.join()
    wall = datetime.now(timezone.utc)
    time.sleep(1.2)
    client.bank.log.insert_one({"_id": "late"})
    # A reply's time can be that of somebody's later write; the log has each transaction's own.
    known = [
        (entry["ts"], change["o"]["_id"])
        for entry in client.local["oplog.rs"].find({"o.applyOps.ns": "bank.log"})
        for change in entry["o"]["applyOps"]
        if change["ns"] == "bank.log"
    ]
    assert {key for _, key in known} == set(replies)
    assert all(time <= replies[key] for time, key in known)
    final = {doc["_id"]: doc["amount"] for doc in accounts.find()}
    client.close()
    server.kill()
    journal = server.data / "journal"
    later = sorted((time.time, time.inc, key) for time, key in known if time > copied)
    assert len(later) > 30
    points = [later[0], later[len(later) // 2], later[-1]]
    for number, (seconds, increment, _) in enumerate(points):
        out = tmp_path / f"out{number}"
        done = restore(backup, out, "--log", journal, "--to-optime", f"{seconds}:{increment}")
        assert done.returncode == 0, done.stderr
        check(out, engine, lambda db: {
            "sum": 2000 == sum(doc["amount"] for doc in db.accounts.find()),
            "index": 20 == len(list(db.accounts.find({"amount": {"$gt": -(10**9)}}).hint("amount_1"))),
            "log": {doc["_id"] for doc in db.log.find()}
            == {key for time, key in known if time <= Timestamp(seconds, increment)},
        })
    out = tmp_path / "by_time"
    done = restore(backup, out, "--log", journal, "--to-time", wall.isoformat().replace("+00:00", "Z"))
    assert done.returncode == 0, done.stderr
    check(out, engine, lambda db: {
        "all": {key for _, key in known} == {doc["_id"] for doc in db.log.find()},
        "amounts": final == {doc["_id"]: doc["amount"] for doc in db.accounts.find()},
    })
    out = tmp_path / "all"
    assert restore(backup, out, "--log", journal, "--to-end").returncode == 0
    check(out, engine, lambda db: {"late": db.log.count_documents({"_id": "late"}) == 1})
    # The backup is as it was, and has a log of its own.
    out = tmp_path / "own"
    assert restore(backup, out, "--to-end").returncode == 0
    check(out, engine, lambda db: {"sum": 2000 == sum(doc["amount"] for doc in db.accounts.find())})
    early = restore(backup, tmp_path / "early", "--log", journal, "--to-optime", f"{points[0][0] - 100}:1")
    assert early.returncode == 1 and "the backup is later than that" in early.stderr and not (tmp_path / "early").exists()
    far = (datetime.now(timezone.utc) + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    beyond = restore(backup, tmp_path / "far", "--log", journal, "--to-time", far)
    assert beyond.returncode == 1 and "does not reach" in beyond.stderr and not (tmp_path / "far").exists()


def check(directory, engine, facts):
    server = Server(directory.parent / (directory.name + "_served"), engine)
    server.data.rmdir()
    directory.rename(server.data)
    server.start()
    client = server.client()
    found = facts(client.bank)
    assert all(found.values()), found
    for name in client.bank.list_collection_names():
        assert client.bank.command("validate", name, full=True)["valid"]
    client.close()
    assert server.stop() == 0


def test_what_cannot_be_restored_is_refused(tmp_path):
    server = Server(tmp_path / "live", "btree")
    server.start()
    client = server.client()
    client.bank.a.insert_one({"_id": 1})
    live = server.data
    running = restore(live, tmp_path / "out", "--to-end")
    assert running.returncode == 1 and "a server uses" in running.stderr
    client.close()
    assert server.stop() == 0
    other = Server(tmp_path / "other", "btree")
    other.start()
    other.client().bank.b.insert_one({"_id": 1})
    assert other.stop() == 0
    strange = restore(live, tmp_path / "out", "--log", other.data / "journal", "--to-end")
    assert strange.returncode == 1 and "is not that of the backup" in strange.stderr
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    for arguments, said in [
        ((live, tmp_path / "full", "--to-end"), "is not empty"),
        ((tmp_path / "full", tmp_path / "out", "--to-end"), "is no data directory"),
        ((live, tmp_path / "out"), "as of when"),
        ((live, tmp_path / "out", "--to-time", "yesterday"), "2026-11-23T21:00:00Z is expected"),
        ((live, tmp_path / "out", "--to-optime", "x:y"), "SECONDS:INCREMENT"),
    ]:
        done = restore(*arguments)
        assert done.returncode == 1 and said in done.stderr, done.stderr
        assert not (tmp_path / "out").exists()


def test_what_lies_on_another_disk_is_taken_along(tmp_path):
    server = Server(tmp_path / "live", ENGINES[0])
    with server:
        server.client().admin.command("fsync")
        server.client().bank.get_collection("a", write_concern=WriteConcern(j=True)).insert_one({"_id": 1})
        server.kill()
    (server.data / "journal").rename(tmp_path / "elsewhere")
    (server.data / "journal").symlink_to(tmp_path / "elsewhere")
    done = restore(server.data, tmp_path / "out", "--to-end")
    assert done.returncode == 0, done.stderr
    check(tmp_path / "out", ENGINES[0], lambda db: {"logged": db.a.count_documents({}) == 1})
