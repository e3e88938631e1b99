"""Who may read the server's files, and what it does not touch or follow."""

import stat
import subprocess

import pytest
from server import ENGINES, Server


def refused(server, *options):
    done = subprocess.run([*server.command(), *options], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    return done.stdout + done.stderr + server.tail()


@pytest.mark.parametrize("engine", ENGINES)
def test_files_are_the_owners_alone(tmp_path, engine):
    server = Server(tmp_path, engine, options=["--pidfilepath", str(tmp_path / "pid")])
    with server:
        client = server.client()
        client.t.c.insert_many([{"_id": i} for i in range(100)])
        client.admin.command("fsync")
        made = [*server.data.rglob("*"), server.log]
        open_to_others = [(path, oct(path.stat().st_mode)) for path in made if path.stat().st_mode & 0o077]
        assert len(made) > 5 and not open_to_others
        assert stat.S_IMODE((tmp_path / "pid").stat().st_mode) == 0o600


def test_a_file_in_the_sockets_place_stays(tmp_path):
    with Server(tmp_path / "first") as first:
        port = first.port
    precious = tmp_path / f"mongodb-{port}.sock"
    precious.write_text("precious")
    server = Server(tmp_path / "second", port=port)
    command = [part for part in server.command() if part != "--nounixsocket"]
    server.command = lambda: command
    assert "no socket" in refused(server, "--unixSocketPrefix", str(tmp_path))
    assert precious.read_text() == "precious"


def test_links_are_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "pid").symlink_to(precious)
    assert "pid" in refused(Server(tmp_path / "a"), "--pidfilepath", str(tmp_path / "pid"))
    server = Server(tmp_path / "b")
    (server.data / "tenond.lock").symlink_to(precious)
    assert "tenond.lock" in refused(server)
    assert precious.read_text() == "precious"
