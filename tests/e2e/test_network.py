"""Compression, Unix sockets, many connections, orderly ends."""

import resource
import signal
import socket

from urllib.parse import quote_plus

import pytest
from pymongo import MongoClient
from server import ENGINES, Server


@pytest.mark.parametrize("compressor", ["snappy", "zlib", "zstd"])
def test_compression(server, compressor):
    client = server.client(compressors=compressor)
    collection = client.t_compression.c
    collection.drop()
    collection.insert_many([{"_id": i, "pad": "abc" * 1000} for i in range(1000)])
    assert sum(len(d["pad"]) for d in collection.find()) == 3_000_000
    assert client.admin.command("hello", compression=["none", compressor])["compression"] == [compressor]
    client.drop_database("t_compression")


def test_compressors_are_those_of_the_configuration(tmp_path):
    for names, taken in [("zstd, snappy", ["snappy", "zstd"]), ("disabled", None)]:
        with Server(tmp_path / names[:4], ENGINES[0], options=["--networkMessageCompressors", names]) as server:
            hello = server.client().admin.command("hello", compression=["snappy", "zlib", "zstd"])
            assert hello.get("compression") == taken


def test_unix_socket(tmp_path):
    server = Server(tmp_path, ENGINES[0], options=["--unixSocketPrefix", str(tmp_path)])
    command = server.command
    server.command = lambda: [part for part in command() if part != "--nounixsocket"]
    with server:
        path = tmp_path / f"mongodb-{server.port}.sock"
        client = MongoClient(f"mongodb://{quote_plus(str(path))}", serverSelectionTimeoutMS=5000)
        assert client.admin.command("ping")["ok"] == 1
        client.close()
    assert not path.exists()


def test_ten_thousand_idle_connections(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = min(10_000, hard * 7 // 10)
    with Server(tmp_path, ENGINES[0]) as server:
        admin = server.client().admin
        before = admin.command("serverStatus")["mem"]["resident"]
        idle = []
        try:
            for _ in range(wanted):
                idle.append(socket.create_connection(("127.0.0.1", server.port)))
            while admin.command("serverStatus")["connections"]["current"] < wanted:
                pass
            assert admin.command("serverStatus")["mem"]["resident"] - before < 300
        finally:
            for connection in idle:
                connection.close()
        while admin.command("serverStatus")["connections"]["current"] > 100:
            pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("engine", ENGINES)
def test_orderly_shutdown_and_restart(tmp_path, engine):
    server = Server(tmp_path, engine)
    with server:
        server.client().t.c.insert_many([{"_id": i} for i in range(1000)])
        server.client().t.c.create_index("x")
        assert server.stop() == 0
    with server:
        client = server.client()
        assert client.t.c.count_documents({}) == 1000
        assert "x_1" in client.t.c.index_information()
        client.t.c.insert_one({"_id": "after"})
        client.admin.command("shutdown")
        assert server.process.wait(60) == 0
        server.process.stdout.close()
        server.process = None
    with server:
        assert server.client().t.c.count_documents({}) == 1001


def test_sigint_ends_in_order(tmp_path):
    with Server(tmp_path, ENGINES[0]) as server:
        server.client().t.c.insert_one({"_id": 1})
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
    with server:
        assert server.client().t.c.find_one() == {"_id": 1}
