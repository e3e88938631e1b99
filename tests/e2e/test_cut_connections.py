"""Writes whose connection breaks, at each byte of the request and of the reply: carried out once."""

import socket
import struct
import threading
import time
import uuid

import bson
import pytest
from bson import Binary, Int64
from pymongo import MongoClient, UpdateOne
from server import ENGINES, Server

MEMBER = ["--replSet", "rs0", "--replSetInitiate"]


def message(command):
    body = bson.encode({**command, "$db": "t"})
    return struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body


def read(stream, count):
    data = b""
    while len(data) < count and (part := stream.recv(count - len(data))):
        data += part
    return data


def read_message(stream):
    header = read(stream, 4)
    return header + read(stream, struct.unpack("<i", header)[0] - 4) if len(header) == 4 else b""


def ask(port, data, send=None, receive=None):
    """Sends a message, or its beginning; reads the reply, or its beginning; and hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(data[:send])
        if send is not None:
            return b""
        return read_message(connection) if receive is None else read(connection, receive)


@pytest.mark.parametrize("engine", ENGINES)
def test_at_every_byte(tmp_path, engine):
    server = Server(tmp_path, engine, options=MEMBER)
    server.start()
    session = {"id": Binary(uuid.uuid4().bytes, 4)}
    write_concern = {"w": 1}
    number = 0

    def increment(**cut):
        nonlocal number
        number += 1
        statement = {"q": {"_id": 1}, "u": {"$inc": {"n": 1}}, "upsert": True}
        command = {"update": "c", "updates": [statement], "lsid": session, "txnNumber": Int64(number), "writeConcern": write_concern}
        data = message(command)
        reply = ask(server.port, data, **cut)
        if cut:
            reply = ask(server.port, data)
        answer = bson.decode(reply[21:])
        assert answer["ok"] == 1 and answer["n"] == 1, (cut, answer)
        return len(data), len(reply)

    increment()
    # The first one's reply tells of the upsert, too.
    request_bytes, reply_bytes = increment()
    for place in range(request_bytes):
        increment(send=place)
    for place in range(reply_bytes):
        increment(receive=place)
    assert server.client().t.c.find_one() == {"_id": 1, "n": number}
    assert server.stop() == 0


class Proxy:
    """Between a driver and the server: cuts the connection of the next command of a name."""

    def __init__(self, port):
        self.port = port
        self.cut = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, socket.create_connection(("127.0.0.1", self.port)) as server:
            try:
                while request := read_message(client):
                    name, side, share = self.cut or (None, None, None)
                    if name is None or name.encode() + b"\0" not in request[:60]:
                        server.sendall(request)
                        # A chain of replies is one more message each; the driver asks for none here.
                        client.sendall(read_message(server))
                        continue
                    self.cut = None
                    if side == "request":
                        server.sendall(request[: int(len(request) * share)])
                        return
                    server.sendall(request)
                    reply = read_message(server)
                    client.sendall(reply[: int(len(reply) * share)])
                    return
            except OSError:
                return


def test_through_a_proxy(tmp_path):
    server = Server(tmp_path, options=MEMBER)
    server.start()
    proxy = Proxy(server.port)
    host, port = proxy.listener.getsockname()
    client = MongoClient(host, port, directConnection=True, serverMonitoringMode="poll", heartbeatFrequencyMS=500)
    collection = client.t.c
    collection.insert_one({"_id": 0, "n": 0})
    n = inserted = 0
    for side in ("request", "reply"):
        for share in (0, 0.02, 0.5, 0.99):
            proxy.cut = ("update", side, share)
            assert collection.update_one({"_id": 0}, {"$inc": {"n": 1}}).modified_count == 1
            proxy.cut = ("findAndModify", side, share)
            assert collection.find_one_and_update({"_id": 0}, {"$inc": {"n": 1}})["n"] == n + 1
            proxy.cut = ("insert", side, share)
            collection.insert_many([{"of": inserted}, {"of": inserted}])
            inserted += 2
            proxy.cut = ("update", side, share)
            collection.bulk_write([UpdateOne({"_id": 0}, {"$inc": {"n": 1}})] * 3)
            with client.start_session() as session:
                with session.start_transaction():
                    collection.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=session)
                    proxy.cut = ("commitTransaction", side, share)
            n += 6
            assert proxy.cut is None
            assert collection.find_one({"_id": 0})["n"] == n, (side, share)
    assert collection.count_documents({"of": {"$exists": True}}) == inserted
    client.close()
    proxy.listener.close()


# A fiftieth of a second for each document, or more.
SLOW = {"$expr": {"$gte": [{"$size": {"$map": {"input": {"$range": [0, 20_000]}, "in": "$$this"}}}, 0]}}


def test_what_writes_goes_on_without_its_client(tmp_path):
    """A job that fires a long update and drops its line, or needs no reply, has it carried out and not half of it."""
    with Server(tmp_path, options=MEMBER) as server:
        client = server.client()
        rows = client.t.rows
        rows.insert_many([{"_id": n} for n in range(300)])

        def running():
            return {op["command"]["comment"] for op in client.admin.command("currentOp")["inprog"] if "comment" in op.get("command", {})}

        def until(condition):
            limit = time.monotonic() + 120
            while not condition():
                assert time.monotonic() < limit
                time.sleep(0.05)

        for comment, flags in [("heard", 0), ("unheard", 2)]:
            change = {"q": {}, "u": {"$set": {comment: 1}}, "multi": True}
            data = bytearray(message({"update": "rows", "updates": [change], "comment": comment}))
            data[16] = flags
            with client.start_session() as session:
                session.start_transaction()
                rows.update_one({"_id": 299}, {"$set": {"held": 1}}, session=session)
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                    connection.sendall(data)
                    until(lambda: comment in running())
                # The server looks each second for clients that are gone.
                time.sleep(3)
                assert comment in running()
                session.abort_transaction()
            until(lambda: comment not in running())
            assert rows.count_documents({comment: 1}) == 300
        rows.insert_many([{"_id": n} for n in range(300, 6000)])
        read = message({"find": "rows", "filter": {"$nor": [SLOW]}, "comment": "read"})
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(read)
            until(lambda: "read" in running())
        until(lambda: "read" not in running())
        # The line that is logged of it, as it was slow, tells how it ended.
        until(lambda: any('"Interrupted"' in line and '"read"' in line for line in server.log.read_text().splitlines()))
