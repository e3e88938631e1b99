"""More work than the server can do at a time: it queues, says so, and those who watch it are answered."""

import resource
import selectors
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import bson
import pytest
from pymongo import CursorType
from pymongo.errors import OperationFailure
from server import Server

MILLION = {"$range": [0, 1_000_000]}
# For hours, in little memory.
SLOW = {"$expr": {"$lt": [{"$reduce": {"input": MILLION, "initialValue": "$_id", "in": {"$size": MILLION}}}, 0]}}


def test_reads_wait_for_a_ticket_and_monitors_do_not(tmp_path):
    """As many reads run as there are tickets; others wait in their order, can be killed, and are refused when too many wait."""
    options = ["--setParameter", "storageEngineConcurrentReadTransactions=5"]
    with Server(tmp_path / "server", "inMemory", options=options) as server, ThreadPoolExecutor(16) as pool:
        client = server.client()
        rows = client.t.rows
        rows.insert_many([{"_id": n} for n in range(3)])

        def outcome(filter, **options):
            try:
                return len(list(rows.find(filter, **options)))
            except OperationFailure as error:
                return error

        def running(comment):
            operations = client.admin.aggregate([{"$currentOp": {}}]) if comment is None else client.admin.command("currentOp")["inprog"]
            return [op["opid"] for op in operations if op.get("command", {}).get("comment") == comment]

        def tickets(side):
            return client.admin.command("serverStatus")["queues"]["execution"][side]

        def until(condition):
            limit = time.monotonic() + 60
            while not condition():
                assert time.monotonic() < limit
                time.sleep(0.01)

        slow = [pool.submit(outcome, SLOW, comment="slow") for _ in range(5)]
        until(lambda: tickets("read")["out"] == 5)
        assert tickets("read")["available"] == 0 and tickets("read")["totalTickets"] == 5
        killed = pool.submit(outcome, {}, comment="to be killed")
        until(lambda: tickets("read")["normalPriority"]["queueLength"] == 1)
        late = outcome({}, max_time_ms=50)
        assert isinstance(late, OperationFailure) and late.code == 50, late
        served = pool.submit(outcome, {}, comment="served")
        until(lambda: tickets("read")["normalPriority"]["queueLength"] == 2)
        # Whoever watches, writes, or runs a transaction does not wait.
        assert client.admin.command("hello")["ok"] == client.admin.command("ping")["ok"] == 1
        rows.insert_one({"_id": 3})
        status = client.admin.command("serverStatus")
        assert status["globalLock"]["currentQueue"]["readers"] == 2
        [operation] = running("to be killed")
        client.admin.command("killOp", op=operation)
        assert killed.result(60).code == 11601
        client.admin.command("setParameter", ticketQueueMax=1)
        refused = outcome({})
        assert refused.code == 462 and refused.has_error_label("SystemOverloadedError"), refused
        assert refused.has_error_label("RetryableError")
        assert tickets("read")["normalPriority"]["refused"] >= 1
        assert not served.done()
        # One more ticket is one more that runs.
        client.admin.command("setParameter", storageEngineConcurrentReadTransactions=6)
        assert served.result(60) == 4
        for operation in running("slow"):
            client.admin.command("killOp", op=operation)
        assert {found.result(60).code for found in slow} == {11601}
        assert outcome({}) == 4
        until(lambda: tickets("read")["out"] == 0)
        with pytest.raises(OperationFailure) as error:
            client.admin.command("setParameter", storageEngineConcurrentReadTransactions=4)
        assert error.value.code == 2


def test_writes_without_a_reply_are_not_refused(tmp_path):
    """Whoever hears of no refusal waits for its turn: nothing that was sent is thrown away."""
    options = ["--setParameter", "storageEngineConcurrentWriteTransactions=5", "--setParameter", "ticketQueueMax=1"]
    with Server(tmp_path / "server", "inMemory", options=options) as server, ThreadPoolExecutor(16) as pool:
        client = server.client()
        rows = client.t.rows
        rows.insert_many([{"_id": n} for n in range(3)])

        def change():
            try:
                rows.update_many(SLOW, {"$set": {"a": 1}}, comment="slow")
            except OperationFailure as error:
                return error.code

        def until(condition):
            limit = time.monotonic() + 60
            while not condition():
                assert time.monotonic() < limit
                time.sleep(0.01)

        def writes():
            return client.admin.command("serverStatus")["queues"]["execution"]["write"]

        slow = [pool.submit(change) for _ in range(5)]
        until(lambda: writes()["out"] == 5)
        slow.append(pool.submit(change))
        until(lambda: writes()["normalPriority"]["queueLength"] == 1)
        with pytest.raises(OperationFailure) as refused:
            rows.insert_one({"_id": "heard"})
        assert refused.value.code == 462
        connections = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(4)]
        for number, connection in enumerate(connections):
            for n in range(25):
                write = bytearray(message({"insert": "logged", "documents": [{"_id": f"{number}.{n}"}], "writeConcern": {"w": 0}, "$db": "t"}))
                write[16] = 2
                connection.sendall(write)
        while not all(each.done() for each in slow):
            for op in client.admin.command("currentOp")["inprog"]:
                if op.get("command", {}).get("comment") == "slow":
                    client.admin.command("killOp", op=op["opid"])
        for connection in connections:
            connection.sendall(message({"ping": 1, "$db": "t"}))
            assert connection.recv(1000)
            connection.close()
        assert client.t.logged.count_documents({}) == 100


def test_cursors_that_wait_for_data_hold_no_ticket(tmp_path):
    options = ["--setParameter", "storageEngineConcurrentReadTransactions=5"]
    with Server(tmp_path / "server", "inMemory", options=options) as server, ThreadPoolExecutor(16) as pool:
        client = server.client()
        log = client.t.create_collection("log", capped=True, size=1 << 20)
        log.insert_one({"_id": 0})

        def follow():
            cursor = log.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(60_000)
            next(cursor)
            return next(cursor)["_id"]

        followers = [pool.submit(follow) for _ in range(12)]
        started = {"$match": {"op": "getmore", "active": True}}
        limit = time.monotonic() + 60
        while len(list(client.admin.aggregate([{"$currentOp": {}}, started]))) < 12:
            assert time.monotonic() < limit
            time.sleep(0.05)
        assert log.count_documents({}) == 1, "reads go on beside them"
        log.insert_one({"_id": 1})
        assert [follower.result(60) for follower in followers] == [1] * 12


def message(body):
    body = bson.encode(body)
    return struct.pack("<iiiiIB", 21 + len(body), 7, 0, 2013, 0, 0) + body


class Crowd:
    """Connections that each send the next request once they have their reply, from one thread."""

    def __init__(self, port, count):
        self.selector = selectors.DefaultSelector()
        self.replies = 0
        self.codes = {}
        for number in range(count):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setblocking(False)
            self.selector.register(connection, selectors.EVENT_READ, [number, b""])

    def run(self, body, replies, meanwhile):
        """Sends `body(number)` again and again, until there were so many replies; all are in at the end."""
        for key in list(self.selector.get_map().values()):
            key.fileobj.sendall(message(body(key.data[0])))
        waiting = len(self.selector.get_map())
        while waiting:
            for key, _ in self.selector.select(60):
                key.data[1] += key.fileobj.recv(65536)
                received = key.data[1]
                if len(received) < 4 or len(received) < struct.unpack_from("<i", received)[0]:
                    continue
                reply = bson.decode(received[21:])
                key.data[1] = b""
                code = reply.get("code", 0)
                self.codes[code] = self.codes.get(code, 0) + 1
                self.replies += 1
                if self.replies < replies:
                    key.fileobj.sendall(message(body(key.data[0])))
                else:
                    waiting -= 1
                if self.replies % 1000 == 0:
                    meanwhile()

    def close(self):
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()


def test_thousands_of_active_clients_need_few_threads(tmp_path):
    """Each has a request under way all the time: all are answered, in little memory, and monitors beside them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(3000, hard // 3)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 500)), hard))
    with Server(tmp_path / "server", "btree") as server:
        client = server.client()
        rows = client.t.rows
        rows.insert_many([{"_id": n, "n": 0} for n in range(100)])
        before = client.admin.command("serverStatus")["mem"]["resident"]
        threads = []

        def look():
            status = client.admin.command("serverStatus")
            threads.append(status["extra_info"]["threads"])
            assert status["mem"]["resident"] < before + 400

        crowd = Crowd(server.port, count)

        def update(number):
            return {"update": "rows", "updates": [{"q": {"_id": number % 100}, "u": {"$inc": {"n": 1}}}], "$db": "t"}

        def find(number):
            return {"find": "rows", "filter": {"_id": number % 100}, "$db": "t"}

        crowd.run(update, 5 * count, look)
        assert crowd.codes == {0: crowd.replies} or set(crowd.codes) == {0, 462}, crowd.codes
        assert sum(row["n"] for row in rows.find()) == crowd.codes[0], "each was done once"
        crowd.replies, crowd.codes = 0, {}
        crowd.run(find, 5 * count, look)
        assert crowd.codes == {0: crowd.replies}
        assert max(threads) < 600 < count, threads
        crowd.close()
        assert rows.count_documents({}) == 100


def test_who_waits_for_news_needs_no_thread(tmp_path):
    """Hundreds of drivers' monitors, change streams and tails wait, and all hear of what they wait for."""
    count = 250
    member = ["--replSet", "rs0", "--replSetInitiate"]
    with Server(tmp_path / "server", "btree", options=member, open_files=4000) as server:
        client = server.client(replicaSet="rs0")
        client.t.create_collection("log", capped=True, size=100_000)
        client.t.log.insert_one({"_id": 0})
        client.t.rows.insert_one({"_id": 0})
        topology = client.admin.command("hello")["topologyVersion"]

        class Waiting:
            def __init__(self):
                self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=60)
                self.stream = self.socket.makefile("rb")

            def ask(self, command, flags=0):
                body = bson.encode(command)
                self.socket.sendall(struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, flags, 0) + body)

            def answer(self):
                (length,) = struct.unpack("<i", self.stream.read(4))
                message = self.stream.read(length - 4)
                self.more_to_come = struct.unpack("<i", message[12:16])[0] & 2
                return bson.decode(message[17:])

            def close(self):
                self.stream.close()
                self.socket.close()

        def open_cursor(waiting, command):
            waiting.ask({**command, "$db": "t"})
            reply = waiting.answer()
            assert reply["ok"] == 1, reply
            collection = command.get("find") or command["aggregate"]
            waiting.ask({"getMore": bson.Int64(reply["cursor"]["id"]), "collection": collection, "maxTimeMS": 600_000, "$db": "t"})

        waits = [Waiting() for _ in range(3 * count)]
        monitors, streams, tails = waits[:count], waits[count : 2 * count], waits[2 * count :]
        for each in monitors:
            each.ask({"hello": 1, "topologyVersion": topology, "maxAwaitTimeMS": 600_000, "$db": "admin"}, flags=1 << 16)
        for each in streams:
            open_cursor(each, {"aggregate": "rows", "pipeline": [{"$changeStream": {}}], "cursor": {}})
        for each in tails:
            open_cursor(each, {"find": "log", "filter": {"_id": {"$gt": 0}}, "tailable": True, "awaitData": True})

        def status():
            return client.admin.command("serverStatus")

        def running(name):
            return sum(name in op.get("command", {}) for op in client.admin.command("currentOp")["inprog"])

        limit = time.monotonic() + 60
        while status()["connections"]["awaitingTopologyChanges"] < count or running("getMore") < 2 * count:
            assert time.monotonic() < limit
            time.sleep(0.05)
        assert status()["extra_info"]["threads"] < 120
        # One of each is ended, by its client or by an operator.
        waits.pop(0).close()
        operations = client.admin.command("currentOp")["inprog"]
        doomed = next(op for op in operations if op.get("command", {}).get("getMore") and op["ns"] == "t.rows")
        client.admin.command("killOp", op=doomed["opid"])
        client.t.log.insert_one({"_id": 1})
        client.t.rows.insert_one({"_id": 1})
        config = client.admin.command("replSetGetConfig")["config"]
        client.admin.command("replSetReconfig", {**config, "version": config["version"] + 1})
        killed = 0
        for each in streams:
            reply = each.answer()
            if reply["ok"] == 0:
                killed += 1
                assert reply["code"] == 11601, reply
            else:
                assert [event["documentKey"] for event in reply["cursor"]["nextBatch"]] == [{"_id": 1}]
        assert killed == 1
        assert [each.answer()["cursor"]["nextBatch"] for each in tails] == [[{"_id": 1}]] * count
        for each in monitors[1:]:
            reply = each.answer()
            assert reply["topologyVersion"]["counter"] > topology["counter"] and each.more_to_come
        # The chains of the monitors wait on.
        client.admin.command("replSetReconfig", {**config, "version": config["version"] + 2})
        for each in monitors[1:]:
            assert each.answer()["setVersion"] == config["version"] + 2
        for each in waits:
            each.close()
        limit = time.monotonic() + 60
        while (now := status())["connections"]["current"] > 20 or now["metrics"]["cursor"]["open"]["pinned"] > 0:
            assert time.monotonic() < limit, now["metrics"]["cursor"]
            time.sleep(0.05)
