"""What members of a cluster prove themselves by: key files, and (below) certificates."""

import json
import subprocess

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from server import Server, binary

KEY = "c2VjcmV0IG9mIHRoZSBjbHVzdGVy+/=="


def key_file(directory, text, mode=0o600):
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "cluster.key"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def member(server, key, mechanism="SCRAM-SHA-256"):
    return server.client(username="__system", password=key, authSource="local", authMechanism=mechanism)


def code(run, *arguments, **options):
    with pytest.raises(OperationFailure) as refused:
        run(*arguments, **options)
    return refused.value.code


def log_lines(server):
    return [json.loads(line) for line in server.log.read_text().split("\n") if line]


def test_a_key_logs_members_in(tmp_path):
    # White space is no part of a key.
    server = Server(tmp_path, options=["--keyFile", key_file(tmp_path, f"{KEY[:10]}\n  {KEY[10:]}\n")])
    server.start()
    assert code(server.client().shop.c.insert_one, {}) == 13, "a key file implies --auth"
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-1"):
        client = member(server, KEY, mechanism)
        client.shop.c.insert_one({"by": mechanism})
        assert client.admin["system.keys"].count_documents({}) > 0, "it may read what no role may"
        client.local.mine.insert_one({})
        info = client.admin.command("connectionStatus")["authInfo"]
        assert info["authenticatedUsers"] == [{"user": "__system", "db": "local"}]
        assert code(member(server, KEY[1:], mechanism).shop.c.find_one) == 18
    # It is no user: it is in no list, and cannot be changed or made.
    client = member(server, KEY)
    assert client.local.command("usersInfo", "__system")["users"] == []
    assert code(client.local.command, "updateUser", "__system", pwd="x") == 11
    assert code(client.local.command, "createUser", "__system", pwd="x", roles=[]) == 2
    # The way in for the first user is open as without a key.
    server.client().admin.command("createUser", "root", pwd="r00t", roles=["root"])
    root = server.client(username="root", password="r00t")
    assert code(root.admin["system.keys"].find_one) == 13
    lines = [line for line in log_lines(server) if line.get("attr", {}).get("user") == "__system"]
    failed = [line for line in lines if line["id"] == 5286307]
    assert len(failed) == 2 and len(lines) > 4 and all(line["attr"]["db"] == "local" for line in lines)
    assert KEY not in server.log.read_text() and KEY[:10] not in server.log.read_text()
    assert server.stop() == 0


def test_keys_are_changed_one_member_at_a_time(tmp_path):
    old, new = "oldKey1234", "newKey5678"
    for text, accepted in [(old, [old]), (f"- {old}\n- {new}\n", [old, new]), (f'- "{new}"\n- {old}\n', [old, new]), (new, [new])]:
        server = Server(tmp_path, options=["--keyFile", key_file(tmp_path, text)])
        server.start()
        for key in (old, new):
            client = member(server, key)
            if key in accepted:
                assert client.admin.command("ping")["ok"] == 1 and client.admin["system.keys"].find_one()
            else:
                assert code(client.admin.command, "ping") == 18
        assert server.stop() == 0


def test_guessing_keys_is_slowed_down(tmp_path):
    server = Server(tmp_path, options=["--keyFile", key_file(tmp_path, KEY)])
    server.start()
    for number in range(6):
        assert code(member(server, f"wrongKey{number}").admin.command, "ping") == 18
    failed = [line["t"]["$date"] for line in log_lines(server) if line["id"] == 5286307]
    assert len(failed) == 6
    # The wait ends with a right key, which is heard.
    assert member(server, KEY).admin.command("ping")["ok"] == 1
    assert server.stop() == 0


def test_a_key_file_that_will_not_do_keeps_the_server_from_starting(tmp_path):
    for name, text, mode, said in [
        ("open", KEY, 0o640, "permissions are too open"),
        ("short", "abc", 0o600, "3 characters"),
        ("long", "a" * 1025, 0o600, "1025 characters"),
        ("other", "abc$defgh", 0o600, "base64"),
        ("empty", "", 0o600, "0 characters"),
        ("missing", None, 0o600, "No such file"),
    ]:
        folder = tmp_path / name
        path = key_file(folder, text or "", mode)
        if text is None:
            (folder / "cluster.key").unlink()
        data = folder / "data"
        data.mkdir()
        line = [binary(), "--dbpath", data, "--port", "0", "--nounixsocket", "--keyFile", path]
        done = subprocess.run([str(part) for part in line], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and said in done.stdout + done.stderr, (name, done.stdout + done.stderr)
        assert list(data.iterdir()) == [], name
    # Modes for the owner alone are right, and the server may listen to others then.
    server = Server(tmp_path / "right", options=["--keyFile", key_file(tmp_path / "right", KEY, 0o400)])
    command = server.command
    server.command = lambda: [part.replace("127.0.0.1", "0.0.0.0") for part in command()]
    server.start()
    assert MongoClient("127.0.0.1", server.port).admin.command("ping")["ok"] == 1
    assert server.stop() == 0
