"""The tools log in to a server with access control."""

import json
import os
import subprocess

import pytest
from server import Server, binary

PASSWORD = "s3cret/:@%"
ENCODED = "s3cret%2F%3A%40%25"


def tenon(*arguments, **options):
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, **options)


@pytest.fixture(scope="module")
def guarded(new_folder):
    server = Server(new_folder("guarded"), options=["--auth"])
    server.start()
    client = server.client()
    client.admin.command("createUser", "root", pwd="r", roles=["root"])
    client = server.client(username="root", password="r")
    for name, roles in [
        ("keeper", ["backup", "restore", "clusterMonitor"]),
        ("writer", [{"role": "readWrite", "db": "shop"}]),
    ]:
        client.admin.command("createUser", name, pwd=PASSWORD, roles=roles)
    client.shop.command("createUser", "old", pwd=PASSWORD, roles=["read"], mechanisms=["SCRAM-SHA-1"])
    client.shop.goods.insert_many([{"_id": number} for number in range(300)])
    yield server
    assert server.stop() == 0, server.tail()


def named(server, user):
    return ["--host", "127.0.0.1", "--port", str(server.port), "-u", user, "-p", PASSWORD]


def uri(server, user, rest="/?authSource=admin"):
    return ["--uri", f"mongodb://{user}:{ENCODED}@127.0.0.1:{server.port}{rest}"]


@pytest.mark.parametrize("how", [named, uri])
def test_every_tool_logs_in(guarded, tmp_path, how):
    dumped = tenon("dump", *how(guarded, "keeper"), "--db", "shop", "--out", str(tmp_path / "dump"))
    assert dumped.returncode == 0, dumped.stderr
    restored = tenon("restore", *how(guarded, "keeper"), "--nsFrom", "shop.*", "--nsTo", "copy.*", "--drop", str(tmp_path / "dump"))
    assert restored.returncode == 0, restored.stderr
    goods = tmp_path / "goods.json"
    exported = tenon("export", *how(guarded, "writer"), "--db", "shop", "--collection", "goods", "--out", str(goods))
    assert exported.returncode == 0, exported.stderr
    assert len(goods.read_text().splitlines()) == 300
    imported = tenon(
        "import", *how(guarded, "writer"), "--db", "shop", "--collection", "goods2", "--drop", "-j", "3", str(goods)
    )
    assert imported.returncode == 0, imported.stderr
    for command in ["stat", "top"]:
        shown = tenon(command, *how(guarded, "keeper"), "--json", "--rowcount", "1")
        assert shown.returncode == 0, shown.stderr
        assert json.loads(shown.stdout.splitlines()[0])
    root = guarded.client(username="root", password="r")
    assert root["copy"].goods.count_documents({}) == root.shop.goods2.count_documents({}) == 300


def test_the_older_mechanism_is_found(guarded, tmp_path):
    for login in [uri(guarded, "old", "/shop"), [*named(guarded, "old"), "--authenticationDatabase", "shop"]]:
        done = tenon("export", *login, "--db", "shop", "--collection", "goods")
        assert done.returncode == 0 and len(done.stdout.splitlines()) == 300, done.stderr


def test_a_password_is_taken_from_the_environment(guarded):
    login = ["--host", "127.0.0.1", "--port", str(guarded.port), "-u", "keeper"]
    environment = {**os.environ, "TENON_PASSWORD": PASSWORD}
    done = tenon("stat", *login, "--json", "--rowcount", "1", env=environment)
    assert done.returncode == 0, done.stderr


def test_refusals_say_why_and_not_the_password(guarded, tmp_path):
    server = ["--host", "127.0.0.1", "--port", str(guarded.port)]
    collection = ["--db", "shop", "--collection", "goods"]
    for login, reason in [
        ([*server, "-u", "writer", "-p", "wrong-word"], "Authentication failed"),
        ([*server, "-u", "nobody", "-p", "wrong-word"], "Authentication failed"),
        ([*server], "requires authentication"),
        ([*server, "-u", "writer", "-p", "wrong-word", "--authenticationMechanism", "PLAIN"], "PLAIN is not supported"),
        (["--uri", f"mongodb://writer:wrong-word%4@127.0.0.1:{guarded.port}"], "percent-encoded"),
    ]:
        done = tenon("export", *login, *collection)
        assert done.returncode != 0 and reason in done.stderr, (login, done.stderr)
        assert "wrong-word" not in done.stdout + done.stderr
    done = tenon("import", *named(guarded, "old"), "--authenticationDatabase", "shop", *collection, input='{"_id": 1000}\n')
    assert done.returncode != 0 and "not authorized" in done.stderr, done.stderr
