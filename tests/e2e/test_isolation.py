"""Transactions of many clients, with kills in between, and what their history shows. `TENON_ISOLATION_SECONDS` runs longer."""

import os
import time
from collections import Counter

import pytest
from isolation import Txn, check
from list_workload import Workload, append, read
from pymongo import MongoClient
from server import ENGINES, Server

MEMBER = ["--replSet", "rs0", "--replSetInitiate"]
SECONDS = float(os.environ.get("TENON_ISOLATION_SECONDS", "6"))
# A history is checked as a whole, which takes memory by the square of its length: long runs have many.
HISTORY_SECONDS = 8


def connection(server):
    return lambda: MongoClient("127.0.0.1", server.port, directConnection=True, serverSelectionTimeoutMS=8000, retryWrites=False)


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


@pytest.mark.parametrize("engine", ENGINES)
def test_transactions_are_isolated_across_kills(tmp_path, engine):
    # Without a port of its own the server would have another one after each kill.
    server = Server(tmp_path, engine, options=MEMBER)
    server.start()
    outcomes, kills = Counter(), 0
    end = time.monotonic() + SECONDS
    # On a machine with much to do it takes longer until there is something to look at.
    while (left := end - time.monotonic()) > 0 or outcomes["committed"] <= 50 and left > -120:
        workload = Workload(connection(server), isolated=True)
        threads = workload.start(workers=8)
        end_of_history = time.monotonic() + min(max(left, 3), HISTORY_SECONDS)
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
    workload = Workload(connection(server), isolated=False)
    threads = workload.start(workers=8)
    time.sleep(3)
    workload.finish(threads)
    assert check(workload.txns) != []
    assert server.stop() == 0
