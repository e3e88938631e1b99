"""Replica sets under faults; see `set_chaos.py`. TENON_SET_CHAOS_SECONDS runs for longer, with three members and with five."""

import os
import random
import threading
import time

import pytest
from crash.set_chaos import CutSet, run
from histories import Operation, bad_stream, broken_promises, not_linearizable
from members import ReplicaSet, wait
from pymongo import ReadPreference, WriteConcern
from pymongo.errors import PyMongoError
from server import ENGINES

SECONDS = float(os.environ.get("TENON_SET_CHAOS_SECONDS", "12"))
# The short form is for every change, and a set of five takes half of a small machine.
MEMBERS = [3, 5] if "TENON_SET_CHAOS_SECONDS" in os.environ else [3]


@pytest.mark.parametrize("members", MEMBERS)
def test_promises_are_kept_under_faults(tmp_path, members):
    seed = int(os.environ.get("TENON_SEED", random.randrange(1 << 32)))
    print("seed", seed)
    print(run(tmp_path, SECONDS, members, seed))


def test_an_initial_sync_goes_on_over_broken_connections(tmp_path):
    with CutSet(tmp_path, ENGINES[:1] * 3, election_ms=5000) as rs:
        third = rs[2]
        third.stop()
        rs.initiate(rs.config(rs.members[:2]))
        rs.tell()
        client = rs.primary.direct
        for each in range(3):
            client.shop[f"c{each}"].insert_many([{"n": n % 7, "pad": os.urandom(200_000)} for n in range(100)])
            client.shop[f"c{each}"].create_index("n")
        third.start()
        rs.tell()
        rs.reconfig(lambda config: config["members"].append({"_id": 2, "host": third.host}))

        def copied():
            try:
                status = third.direct.admin.command("replSetGetStatus")
            except PyMongoError:
                return 0
            return status.get("initialSyncStatus", {}).get("approxTotalBytesCopied", 0)

        # Until it was cut in the middle, however fast the machine is.
        for _ in range(20):
            wait(lambda: copied() > 0 or third.state() == "SECONDARY", "the copy begins")
            rs.tell(cut=True)
            rs.wait_state(third, "SECONDARY")
            log = third.log.read_text()
            if "Initial sync goes on over another connection" in log:
                break
            rs.wait_healthy()
            third.stop()
            third.wipe()
            third.start()
            rs.tell()
        assert "Initial sync goes on over another connection" in log
        assert "Initial sync failed" not in log
        rs.wait_healthy()
        rs.check_equal()


def write(value, start, end=float("inf")):
    return Operation("write", value, start, end)


def read(value, start, end):
    return Operation("read", value, start, end)


@pytest.mark.parametrize(
    ("history", "is_right"),
    [
        ([], True),
        ([write(1, 0, 1), read(1, 2, 3)], True),
        ([read(None, 0, 1), write(1, 2, 3), read(1, 4, 5), write(2, 6, 7), read(2, 8, 9)], True),
        # While a write goes on, both are right, but not the new one and then the old one.
        ([write(1, 0, 10), read(None, 1, 2), read(1, 3, 4)], True),
        ([write(1, 0, 10), read(1, 1, 2), read(None, 3, 4)], False),
        ([write(1, 0, 1), read(None, 2, 3)], False),
        ([write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)], False),
        ([write(1, 0, 1), write(2, 2, 3), read(2, 4, 5), read(1, 6, 7)], False),
        ([write(1, 0, 9), write(2, 0, 9), read(1, 1, 2), read(2, 3, 4), read(1, 5, 6)], False),
        ([write(1, 0, 9), write(2, 0, 9), read(2, 1, 2), read(1, 3, 4)], True),
        # Nobody knows whether it was done: it may come late, or never, but does not go again.
        ([write(1, 0), read(None, 5, 6), read(1, 7, 8), read(1, 9, 10)], True),
        ([write(1, 0), read(1, 7, 8), read(None, 9, 10)], False),
        ([write(1, 0), write(2, 1, 2), read(2, 3, 4), read(1, 5, 6)], True),
        ([read(7, 0, 1), write(7, 2, 3)], False),
        ([read(7, 0, 1)], False),
    ],
)
def test_the_checker_of_registers(history, is_right):
    assert (not_linearizable(history) is None) == is_right, not_linearizable(history)


def orders(history):
    """All orders of a history's operations that time allows, one by one: what the quick checker is held against."""
    pending = [each for each in history if each.kind == "write" or each.end < float("inf")]

    def extend(left, value):
        if all(each.end == float("inf") for each in left):
            return True
        first_end = min(each.end for each in left)
        for place, each in enumerate(left):
            if each.start <= first_end and (each.kind == "write" or each.value == value):
                if extend(left[:place] + left[place + 1 :], each.value):
                    return True
        return False

    return extend(pending, None)


def test_the_checker_of_registers_agrees_with_trying_every_order():
    seed = int(os.environ.get("TENON_SEED", random.randrange(1 << 32)))
    print("seed", seed)
    rng = random.Random(seed)
    verdicts = set()
    for _ in range(4000):
        times = rng.sample(range(100), 12)
        history = []
        for number in range(6):
            start, end = sorted(times[2 * number : 2 * number + 2])
            if rng.random() < 0.5:
                history.append(write(number, start, end if rng.random() < 0.8 else float("inf")))
            else:
                history.append(read(rng.choice([None, *range(6)]), start, end))
        written = {each.value for each in history if each.kind == "write"}
        history = [each for each in history if each.kind == "write" or each.value is None or each.value in written]
        verdict = not_linearizable(history) is None
        assert verdict == orders(history), history
        verdicts.add(verdict)
    assert verdicts == {True, False}


def test_the_checkers_of_sessions_and_streams():
    assert broken_promises([("wrote", 1), ("read", 1), ("lost", 2), ("read", 1), ("read", 2), ("read", 2)]) is None
    assert "had been written" in broken_promises([("wrote", 1), ("wrote", 2), ("read", 1)])
    assert "had been read" in broken_promises([("lost", 1), ("read", 1), ("read", 0)])
    found = {(0, 1), (1, 2), (0, 3)}
    assert bad_stream([(0, 1), (1, 2), (0, 3)], found) is None
    assert "never seen" in bad_stream([(0, 1), (0, 3)], found)
    assert "twice" in bad_stream([(0, 1), (1, 2), (1, 2), (0, 3)], found)
    assert "not there" in bad_stream([(0, 1), (1, 2), (0, 3), (0, 4)], found)
    assert "behind" in bad_stream([(0, 3), (1, 2), (0, 1)], found)


def test_what_is_not_promised_is_seen_to_break(tmp_path):
    """Plain reads of secondaries, taken for linearizable and for a session's, are neither: the checkers see what real servers do."""
    with ReplicaSet(tmp_path, 3) as rs:
        rs.initiate()
        history, events, numbers = [], [], iter(range(1 << 30))
        db = rs.client().t
        db.registers.insert_one({"_id": 0, "v": None})
        rs.wait_applied()
        ended = threading.Event()

        def work(is_writer):
            collection = db.get_collection("registers", write_concern=WriteConcern(w=1), read_preference=ReadPreference.SECONDARY)
            while not ended.is_set():
                operation = Operation("write" if is_writer else "read", next(numbers) if is_writer else None, time.monotonic())
                if is_writer:
                    history.append(operation)
                    collection.update_one({"_id": 0}, {"$set": {"v": operation.value}})
                    operation.end = time.monotonic()
                    events.append(("wrote", operation.value))
                    seen = collection.find_one({"_id": 0})["v"]
                    events.append(("read", -1 if seen is None else seen))
                else:
                    operation.value = collection.find_one({"_id": 0})["v"]
                    operation.end = time.monotonic()
                    history.append(operation)

        threads = [threading.Thread(target=work, args=(each == 0,)) for each in range(3)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 60
        while time.monotonic() < end and not (not_linearizable(list(history)) and broken_promises(list(events))):
            time.sleep(0.2)
        ended.set()
        for thread in threads:
            thread.join()
        assert not_linearizable(history), "no stale read in a minute"
        assert broken_promises(events)
