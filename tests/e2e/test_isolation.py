"""Transactions of many clients, with kills in between, and what their history shows. `TENON_ISOLATION_SECONDS` runs longer."""

import os
import random
import threading
import time
from collections import Counter

import pytest
from bson.errors import BSONError
from isolation import Txn, check
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from server import ENGINES, Server

MEMBER = ["--replSet", "rs0", "--replSetInitiate"]
SECONDS = float(os.environ.get("TENON_ISOLATION_SECONDS", "6"))
# A history is checked as a whole, which takes memory by the square of its length: long runs have many.
HISTORY_SECONDS = 8
KEYS = 6


def append(key, value):
    return ("append", key, value)


def read(key, *values):
    return ("read", key, list(values))


def history(*txns):
    """Transactions one after another where no times are given, all overlapping."""
    return [Txn(start=0, end=100, operations=list(each), outcome="committed") for each in txns]


def names(txns):
    return [name for name, _ in check(txns)]


@pytest.mark.parametrize(
    ("anomaly", "txns"),
    [
        (None, [[append("x", 1)], [read("x", 1), append("x", 2)], [read("x", 1, 2)]]),
        (None, [[read("x"), append("y", 1)], [read("y"), append("x", 1)], [read("x", 1), read("y", 1)]]),  # write skew
        ("G1b", [[append("x", 1), append("x", 2)], [read("x", 1)], [read("x", 1, 2)]]),
        ("internal", [[append("x", 1), read("x")]]),
        ("from nowhere", [[read("x", 7)]]),
        ("duplicate", [[append("x", 1)], [read("x", 1, 1)]]),
        ("incompatible order", [[append("x", 1)], [append("x", 2)], [read("x", 1, 2)], [read("x", 2)]]),
        ("G0", [[append("x", 1), append("y", 2)], [append("x", 2), append("y", 1)], [read("x", 1, 2)], [read("y", 1, 2)]]),
        ("G1c", [[append("x", 1), read("y", 1)], [append("y", 1), read("x", 1)]]),
        ("G-single", [[append("x", 1), append("y", 1)], [read("x", 1), read("y")], [read("y", 1)]]),
        # Both read nothing and appended: the second did not see the first.
        ("G-single", [[read("x"), append("x", 1)], [read("x"), append("x", 2)], [read("x", 1, 2)]]),
    ],
)
def test_the_checker_knows_each_anomaly(anomaly, txns):
    found = names(history(*txns))
    assert found == [] if anomaly is None else anomaly in found, found


def test_the_checker_knows_aborts_and_time():
    first, second = history([append("x", 1)], [read("x", 1)])
    first.outcome = "aborted"
    assert names([first, second]) == ["G1a"]
    first.outcome = "unknown"
    assert names([first, second]) == []
    # A commit whose answer a crash took was seen by somebody who never committed, and is gone.
    first, second, third, fourth = history([append("x", 1)], [read("x", 1)], [append("x", 2)], [read("x", 2)])
    first.outcome, second.outcome = "unknown", "aborted"
    assert names([first, second, third, fourth]) == []
    second.outcome = "committed"
    assert names([first, second, third, fourth]) == ["incompatible order"]
    # It began behind the other one's end and did not see it.
    first, stale, later = history([append("x", 1)], [read("x")], [read("x", 1)])
    first.end, stale.start = 1, 2
    assert names([first, stale, later]) == ["G-single"]
    stale.start = 0.5
    assert names([first, stale, later]) == []
    first, second, reader = history([append("x", 1)], [append("x", 2)], [read("x", 2)])
    first.end, reader.start = 1, 2
    assert "lost update" in names([first, second, reader])


class Workload:
    """Clients that append to and read lists, in transactions or, as a control, without."""

    def __init__(self, port, isolated):
        self.port, self.isolated = port, isolated
        self.stop = threading.Event()
        self.txns, self.lock, self.next_value = [], threading.Lock(), 0
        self.failures = []

    def value(self):
        with self.lock:
            self.next_value += 1
            return self.next_value

    def client(self):
        return MongoClient("127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=8000, retryWrites=False)

    def work(self, seed):
        generator = random.Random(seed)
        client = self.client()
        while not self.stop.is_set():
            txn = Txn(start=time.monotonic())
            with self.lock:
                self.txns.append(txn)
            try:
                self.run(client, generator, txn)
            except (PyMongoError, BSONError, ConnectionError):
                client.close()
                client = self.client()
            except Exception as error:
                self.failures.append(error)
                return
        client.close()

    def run(self, client, generator, txn):
        lists = client.t.lists
        steps = [
            (generator.random() < 0.5, f"k{int(generator.random() ** 2 * KEYS)}") for _ in range(generator.randrange(1, 5))
        ]
        if not self.isolated:
            self.run_unisolated(lists, steps, txn)
            return
        with client.start_session() as session:
            session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority"), ReadPreference.PRIMARY)
            try:
                for is_append, key in steps:
                    if is_append:
                        value = self.value()
                        txn.operations.append(append(key, value))
                        lists.update_one({"_id": key}, {"$push": {"v": value}}, session=session)
                    else:
                        document = lists.find_one({"_id": key}, session=session)
                        txn.operations.append(read(key, *document["v"]))
                if generator.random() < 0.05:
                    session.abort_transaction()
                    txn.outcome = "aborted"
                    return
            except OperationFailure:
                # Before it was committed: nothing of it stays.
                txn.outcome = "aborted"
                return
            except ConnectionFailure:
                txn.outcome = "aborted"
                raise
            self.commit(session, txn)

    def commit(self, session, txn):
        for _ in range(3):
            try:
                session.commit_transaction()
                txn.outcome, txn.end = "committed", time.monotonic()
                return
            except ConnectionFailure:
                # The driver has sent it twice. It may have been carried out.
                time.sleep(0.2)
            except OperationFailure as error:
                if error.has_error_label("UnknownTransactionCommitResult"):
                    continue
                if error.has_error_label("TransientTransactionError") and error.code != 251:
                    txn.outcome = "aborted"
                return

    def run_unisolated(self, lists, steps, txn):
        for is_append, key in steps:
            seen = lists.find_one({"_id": key})["v"]
            if is_append:
                value = self.value()
                lists.update_one({"_id": key}, {"$set": {"v": [*seen, value]}})
                txn.operations.append(append(key, value))
            else:
                txn.operations.append(read(key, *seen))
        txn.outcome, txn.end = "committed", time.monotonic()

    def finish(self, threads):
        self.stop.set()
        for thread in threads:
            thread.join(timeout=30)
            assert not thread.is_alive()
        assert not self.failures, self.failures
        client = self.client()
        final = Txn(start=time.monotonic(), outcome="committed")
        final.operations = [read(each["_id"], *each["v"]) for each in client.t.lists.find()]
        final.end = time.monotonic()
        self.txns.append(final)
        client.close()

    def start(self, workers):
        client = self.client()
        client.t.lists.drop()
        client.t.lists.insert_many([{"_id": f"k{n}", "v": []} for n in range(KEYS)])
        client.close()
        threads = [threading.Thread(target=self.work, args=(seed,)) for seed in range(workers)]
        for thread in threads:
            thread.start()
        return threads


@pytest.mark.parametrize("engine", ENGINES)
def test_transactions_are_isolated_across_kills(tmp_path, engine):
    # Without a port of its own the server would have another one after each kill.
    server = Server(tmp_path, engine, options=MEMBER)
    server.start()
    outcomes, kills = Counter(), 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        workload = Workload(server.port, isolated=True)
        threads = workload.start(workers=8)
        end_of_history = min(end, time.monotonic() + HISTORY_SECONDS)
        while time.monotonic() < end_of_history:
            time.sleep(min(1.5, SECONDS / 4))
            server.kill()
            server.start()
            kills += 1
        workload.finish(threads)
        outcomes.update(txn.outcome for txn in workload.txns)
        found = check(workload.txns)
        assert found == [], found[:5]
    print(dict(outcomes), f"{kills} kills")
    assert outcomes["committed"] > 50, outcomes
    assert server.stop() == 0


def test_the_checker_sees_what_is_not_isolated(tmp_path):
    server = Server(tmp_path, "inMemory", options=MEMBER)
    server.start()
    workload = Workload(server.port, isolated=False)
    threads = workload.start(workers=8)
    time.sleep(3)
    workload.finish(threads)
    assert check(workload.txns) != []
    assert server.stop() == 0
