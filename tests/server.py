"""Starts and stops a real tenond for the tests, on a free port, with its own data directory."""

import os
import re
import signal
import socket
import struct
import subprocess
import time
import zlib
from pathlib import Path

import bson
from pymongo import MongoClient
from pymongo.errors import PyMongoError


def binary() -> str:
    found = os.environ.get("TENOND")
    if found:
        return found
    cache = os.environ.get("TENON_CACHE", os.path.expanduser("~/.cache/tenon"))
    return os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(cache, "target")), "fast", "tenond")


def engines():
    """The engines of the build, its default first; TENON_ENGINES chooses others."""
    given = os.environ.get("TENON_ENGINES")
    if given:
        return given.split(",")
    version = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"^Storage engines: (.+)$", version, re.MULTILINE).group(1).split(", ")


ENGINES = engines()

# Tests whose size or number of engines a change does not need take what `make test-all` takes.
IS_WHOLE = os.environ.get("TENON_EXTENT") == "all"


def of_extent(usual, whole):
    return whole if IS_WHOLE else usual


def is_in_memory(folder):
    """Whether a folder is on a file system of which the system counts no bytes."""
    kind = subprocess.run(["stat", "--file-system", "--format=%T", str(folder)], capture_output=True, text=True, check=True)
    return kind.stdout.strip() in ("tmpfs", "ramfs")


# Of mmapv1: files of the usual size are written with zeros, and encrypted where all is, which takes some tests four times as long.
SMALL_FILES = of_extent(["--smallfiles", "--nssize", "1"], [])


def engines_for(module):
    """Engines for tests of what lies above them: the default one, and another that differs from file to file."""
    others = ENGINES[1:]
    return of_extent([ENGINES[0], *others[zlib.crc32(module.encode()) % max(len(others), 1) :][:1]], ENGINES)


def send(server, database, command):
    """One command as it is: a driver would put a session of its own into it."""
    body = bson.encode({**command, "$db": database})
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body)
        with connection.makefile("rb") as stream:
            header = stream.read(16)
            if len(header) < 16:
                raise OSError("cut off")
            reply = stream.read(struct.unpack("<i", header[:4])[0] - 16)
    return bson.decode(reply[5:])


class Server:
    """One tenond process. `start` returns when it accepts connections."""

    STARTED = set()

    def __init__(self, directory, engine=ENGINES[0], options=(), port=0, open_files=None):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.data = self.directory / "data"
        self.data.mkdir(exist_ok=True)
        self.log = self.directory / "tenond.log"
        # None leaves the choice to the server.
        self.engine = engine
        self.options = list(options)
        self.port = port
        # The limit of open files, the machine's when None.
        self.open_files = open_files
        # What starts it: programs that set something up and give way to it.
        self.prefix = []
        self.process = None
        self.clients = []

    def command(self):
        return [
            *self.prefix,
            binary(),
            "--dbpath",
            str(self.data),
            "--port",
            str(self.port),
            "--bind_ip",
            "127.0.0.1",
            *(["--storageEngine", self.engine] if self.engine else []),
            *(SMALL_FILES if self.engine == "mmapv1" and "--smallfiles" not in self.options else []),
            "--logpath",
            str(self.log),
            "--logappend",
            "--nounixsocket",
            *self.options,
        ]

    def start(self, timeout=300):
        before = self.log.stat().st_size if self.log.exists() else 0
        self.log_from = before
        if self.open_files:
            self.prefix = ["prlimit", f"--nofile={self.open_files}"]
        self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.STARTED.add(self)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self.process.poll() is not None:
                output = self.process.stdout.read().decode(errors="replace")
                raise RuntimeError(f"tenond ended with {self.process.returncode}: {output}\n{self.tail()}")
            if self.log.exists():
                with open(self.log, "rb") as log:
                    log.seek(before)
                    text = log.read().decode(errors="replace")
                found = re.search(r'"msg":"Waiting for connections".*?"port":(\d+)', text)
                if found:
                    self.port = int(found.group(1))
                    return self
            time.sleep(0.02)
        raise RuntimeError(f"tenond does not answer:\n{self.tail()}")

    def tail(self, lines=20):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def uri(self, options=""):
        return f"mongodb://127.0.0.1:{self.port}/?{options}"

    def client(self, **options):
        client = MongoClient("127.0.0.1", self.port, **{"serverSelectionTimeoutMS": 60000, **options})
        self.clients.append(client)
        return client

    def stop(self, timeout=120):
        """An orderly end; answers the exit code."""
        self.close_clients()
        if self.process is None:
            return None
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        finally:
            self.process.stdout.close()
            self.process = None
        return code

    def kill(self):
        """The end a power failure makes of a process."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process = None
        self.close_clients()

    def close_clients(self):
        is_gone = self.process is None or self.process.poll() is not None
        for client in self.clients:
            if is_gone:
                # To end its sessions a client would look for the server until its time is over.
                client._topology.pop_all_sessions()
            try:
                client.close()
            except PyMongoError:
                pass
        self.clients = []

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process is not None:
            if self.process.poll() is None:
                self.stop()
            else:
                self.close_clients()
