"""Transactions of many clients on lists, and the history of what they did and saw, for `isolation.check`."""

import random
import threading
import time

from bson.errors import BSONError
from isolation import Txn
from pymongo import ReadPreference, WriteConcern
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern

KEYS = 6


def append(key, value):
    return ("append", key, value)


def read(key, *values):
    return ("read", key, list(values))


class Workload:
    """Clients that append to and read lists, in transactions or, as a control, without."""

    def __init__(self, connect, isolated, always_writes=False):
        # `always_writes`: what only reads is answered by one server, and may be of a moment that is over.
        self.client, self.isolated, self.always_writes = connect, isolated, always_writes
        self.stop = threading.Event()
        self.txns, self.lock, self.next_value = [], threading.Lock(), 0
        self.failures = []

    def value(self):
        with self.lock:
            self.next_value += 1
            return self.next_value

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
        if self.always_writes:
            steps[-1] = (True, steps[-1][1])
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
            thread.join(timeout=60)
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
        threads = [threading.Thread(target=self.work, args=(seed,), daemon=True) for seed in range(workers)]
        for thread in threads:
            thread.start()
        return threads
