"""A process that may open few files: clients cannot use them up, and whatever cannot be opened is an error of one call."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from pymongo import WriteConcern
from pymongo.errors import OperationFailure
from server import ENGINES, Server, binary

LIMIT = 200


def connections(client):
    return client.admin.command("serverStatus")["connections"]


def closed(idle):
    """How many of the sockets the server has closed."""
    count = 0
    for connection in idle:
        connection.setblocking(False)
        try:
            count += connection.recv(1) == b""
        except BlockingIOError:
            pass
        except ConnectionResetError:
            count += 1
    return count


@pytest.mark.parametrize("engine", ENGINES)
def test_idle_connections_leave_the_log_its_files(tmp_path, engine):
    """400 connections that nobody uses used to end the server as soon as the log wanted its next segment."""
    with Server(tmp_path, engine, options=["--syncdelay", "2", "--quiet"], open_files=LIMIT) as server:
        client = server.client(maxPoolSize=2)
        client.t.c.insert_one({"_id": -1})
        idle = []
        try:
            for _ in range(2 * LIMIT):
                idle.append(socket.create_connection(("127.0.0.1", server.port)))
            while len(idle) - (refused := closed(idle)) > LIMIT * 8 // 10:
                pass
            found = connections(client)
            assert found["current"] + found["available"] == LIMIT * 8 // 10, found
            assert found["rejected"] >= refused > LIMIT, (found, refused)
            # Two segments of the log, and the files of checkpoints.
            journaled = client.t.get_collection("c", write_concern=WriteConcern(j=True))
            for first in range(0, 150, 6):
                journaled.insert_many([{"_id": i, "pad": os.urandom(1_000_000)} for i in range(first, first + 6)])
            client.admin.command("fsync")
        finally:
            for connection in idle:
                connection.close()
        while connections(client)["current"] > 20:
            pass
        assert server.client().t.c.count_documents({}) == 151
        assert server.stop() == 0


def test_a_database_whose_file_cannot_be_opened_is_refused(tmp_path):
    """With a file for each database, too many of them used to end the server while it applied what was logged already."""
    server = Server(tmp_path, "btree", options=["--directoryperdb", "--quiet"], open_files=LIMIT)
    with server:
        client = server.client(maxPoolSize=2)
        made = 0
        with pytest.raises(OperationFailure, match="descriptors") as error:
            while made < LIMIT:
                client[f"d{made}"].c.insert_one({"_id": 1})
                made += 1
        assert error.value.code == 264 and made > LIMIT // 4, (error.value, made)
        assert len([name for name in client.list_database_names() if name.startswith("d")]) == made
        # What is there works, and so does the new one as soon as another has gone.
        client.d0.c.insert_one({"_id": 2})
        client.d0.other.insert_one({"_id": 1})
        server.client().admin.command("ping")
        client.drop_database("d1")
        client.admin.command("fsync")
        client[f"d{made}"].c.insert_one({"_id": 1})
    with server:
        client = server.client()
        found = [name for name in client.list_database_names() if name.startswith("d")]
        assert len(found) == made and "d1" not in found
        assert all(client[name].c.find_one() == {"_id": 1} for name in found)
        assert server.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="the threads of a user of its own are counted")
@pytest.mark.skipif("betree" not in ENGINES, reason="the engine whose checkpoints have threads of their own")
def test_checkpoints_need_no_thread_of_their_own(monkeypatch):
    """The system refused a thread to a checkpoint of two tables, which ended the server."""
    user, threads = 61234, 60
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    others = []
    try:
        directory.chmod(0o755)
        program = shutil.copy(binary(), directory / "tenond")
        monkeypatch.setattr("server.binary", lambda: str(program))
        server = Server(directory / "server", "betree", options=["--syncdelay", "0"])
        server.prefix = ["prlimit", f"--nproc={threads}", "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        for made in [server.directory, server.data]:
            os.chown(made, user, user)
        with server:
            client = server.client(maxPoolSize=1, socketTimeoutMS=60000)
            for name in "ab":
                client.t[name].insert_one({"_id": 0})
            others = [subprocess.Popen(["sleep", "600"], user=user, group=user, extra_groups=[]) for _ in range(threads)]
            for name in "abcd":
                client.t[name].insert_many([{"_id": i} for i in range(1, 200)])
            client.admin.command("fsync")
            assert client.t.a.count_documents({}) == 200
            assert server.stop() == 0
    finally:
        for other in others:
            other.kill()
            other.wait()
        shutil.rmtree(directory)
