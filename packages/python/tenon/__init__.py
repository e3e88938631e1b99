"""Throw-away servers for tests: a tenond of its own, on a free port, with an empty folder, in some milliseconds.

    with tenon.server() as uri:
        client = MongoClient(uri)

The server ends with the block, and with this process, however that ends. Its data are in memory and in a folder that is
removed.
"""

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
import weakref

__all__ = ["Server", "ServerError", "program", "server"]

_running = weakref.WeakSet()


class ServerError(RuntimeError):
    """The server did not start; the message has the end of its log."""


def program():
    """The path of the tenond that this package carries; the variable TENOND names another one."""
    return os.environ.get("TENOND") or os.path.join(os.path.dirname(__file__), "bin", "tenond")


class Server:
    """A running server. `uri` is what drivers take, `port` where it listens, `directory` where its files are."""

    def __init__(self, *, engine="inMemory", replica_set=None, options=()):
        """With `replica_set` it is a set of one member of that name, for transactions and change streams."""
        self._process = None
        self._owner = os.getpid()
        self.directory = tempfile.mkdtemp(prefix="tenon-")
        try:
            self._start(engine, replica_set, [str(option) for option in options])
        except BaseException:
            self.stop()
            raise
        _running.add(self)

    def _start(self, engine, replica_set, options):
        data = os.path.join(self.directory, "data")
        os.mkdir(data)
        log = os.path.join(self.directory, "tenond.log")
        line = [program(), "--dbpath", data, "--port", "0", "--bind_ip", "127.0.0.1", "--nounixsocket"]
        line += ["--storageEngine", engine, "--logpath", log, "--stopWithParent"]
        if replica_set:
            line += ["--replSet", replica_set, "--replSetInitiate", "--oplogSize", "64"]
        else:
            line += ["--nojournal", "--syncdelay", "0"]
        # The server writes its port into the pipe when it serves; when it ends before, the pipe does.
        heard, told = os.pipe()
        try:
            line += ["--portFile", f"/dev/fd/{told}", *options]
            self._process = subprocess.Popen(
                line, pass_fds=(told,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        finally:
            os.close(told)
        with open(heard, encoding="ascii") as pipe:
            port = pipe.readline()
        if not port:
            _, said = self._process.communicate()
            with contextlib.suppress(FileNotFoundError), open(log, "rb") as lines:
                said += b"".join(lines.readlines()[-20:])
            raise ServerError(f"tenond ended with {self._process.returncode}: {said.decode(errors='replace')}")
        self.port = int(port)
        self.uri = f"mongodb://127.0.0.1:{self.port}/"
        if replica_set:
            # The only member calls itself localhost.
            self.uri = f"mongodb://localhost:{self.port}/?replicaSet={replica_set}"

    def stop(self):
        """Ends the server and removes its folder. Nothing is saved, so that nothing is waited for.

        A process that was forked from the one that started the server leaves it alone."""
        _running.discard(self)
        if os.getpid() != self._owner:
            return
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stderr.close()
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


@contextlib.contextmanager
def server(*, engine="inMemory", replica_set=None, options=()):
    """A server for the block; its value is the connection string. The arguments are those of `Server`."""
    with Server(engine=engine, replica_set=replica_set, options=options) as running:
        yield running.uri


@atexit.register
def _stop_all():
    for running in list(_running):
        running.stop()
