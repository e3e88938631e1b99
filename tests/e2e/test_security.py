"""A server with --auth, attacked and used by real clients."""

import base64
import hashlib
import hmac
import json
import os
import re
import socket
import stat
import subprocess
import threading
from pathlib import Path

import bson
import pytest
from pymongo.errors import ConfigurationError, OperationFailure
from server import Server, binary, engines_for

CLIENTS = Path(os.environ.get("TENON_CLIENTS", os.path.expanduser("~/.cache/tenon/clients")))
ROOT = {"username": "root", "password": "r00t", "authSource": "admin"}


@pytest.fixture(scope="module", params=engines_for(__name__))
def guarded(request, new_folder):
    """A server with a root, a shop's user and a stranger's data."""
    made = Server(new_folder("tenond"), request.param, options=["--auth", "--javascriptEnabled"])
    made.start()
    first = made.client()
    first.admin.command("createUser", "root", pwd="r00t", roles=["root"])
    first.close()
    root = made.client(**ROOT)
    root.shop.orders.insert_many([{"_id": i} for i in range(300)])
    root.other.secrets.insert_one({"_id": 1, "pin": "8421-open"})
    root.shop.command("createUser", "web", pwd="w3b", roles=["readWrite"])
    yield made
    assert made.process.poll() is None, f"the server died:\n{made.tail()}"
    assert made.stop() == 0, made.tail()


@pytest.fixture
def root(guarded):
    with guarded.client(**ROOT) as client:
        yield client


@pytest.fixture
def web(guarded):
    with guarded.client(username="web", password="w3b", authSource="shop") as client:
        yield client


def code(run, *arguments, **options):
    with pytest.raises(OperationFailure) as refused:
        run(*arguments, **options)
    return refused.value.code


def log_lines(server):
    """Every line of the log is one JSON document, whatever names clients think of."""
    return [json.loads(line) for line in server.log.read_text().split("\n") if line]


def test_who_is_nobody_reaches_nothing(guarded):
    with guarded.client() as client:
        assert client.admin.command("ping")["ok"] == 1
        for command in [
            {"find": "orders"},
            {"insert": "orders", "documents": [{}]},
            {"aggregate": "orders", "pipeline": [], "cursor": {}},
            {"aggregate": 1, "pipeline": [{"$documents": [{}]}], "cursor": {}},
            {"listCollections": 1, "nameOnly": True, "authorizedCollections": True},
            {"explain": {"find": "orders"}},
            {"getMore": bson.Int64(1), "collection": "orders"},
            {"usersInfo": 1},
            {"createUser": "x", "pwd": "x", "roles": ["root"]},
            {"dropDatabase": 1},
        ]:
            with pytest.raises(OperationFailure) as refused:
                client.shop.command(command)
            name = next(iter(command))
            assert refused.value.code == 13, command
            assert refused.value.details["errmsg"] == f"Command {name} requires authentication"
        for name in ["listDatabases", "serverStatus", "shutdown", "getCmdLineOpts", "getLog", "setParameter", "currentOp", "fsync"]:
            assert code(client.admin.command, name) == 13, name
        assert code(client.admin.command, "createUser", "x", pwd="x", roles=["root"]) == 13, "there is a user already"


def test_a_legacy_query_is_no_way_around(guarded):
    """OP_QUERY, which drivers send before they know the server."""
    body = bson.encode({"find": "orders"})
    message = (0).to_bytes(4, "little") + b"shop.$cmd\0" + (0).to_bytes(4, "little") + (1).to_bytes(4, "little") + body
    header = (16 + len(message)).to_bytes(4, "little") + (1).to_bytes(4, "little") + bytes(4) + (2004).to_bytes(4, "little")
    with socket.create_connection(("127.0.0.1", guarded.port)) as raw:
        raw.sendall(header + message)
        size = int.from_bytes(raw.recv(4, socket.MSG_WAITALL), "little")
        reply = raw.recv(size - 4, socket.MSG_WAITALL)
    assert bson.decode(reply[-(size - 36) :])["code"] == 13


def test_a_user_does_what_it_is_for_and_no_more(guarded, web):
    assert web.shop.orders.count_documents({}) == 300
    assert len(list(web.shop.orders.find(batch_size=7))) == 300
    web.shop.orders.update_one({"_id": 1}, {"$set": {"a": 1}})
    assert [entry["name"] for entry in web.admin.command("listDatabases")["databases"]] == ["shop"]
    for run in [
        lambda: web.other.secrets.find_one(),
        lambda: list(web.shop.orders.aggregate([{"$lookup": {"from": {"db": "other", "coll": "secrets"}, "pipeline": [], "as": "x"}}])),
        lambda: list(web.shop.orders.aggregate([{"$unionWith": {"db": "other", "coll": "secrets"}}])),
        lambda: web.shop.create_collection("v", viewOn="system.users", pipeline=[]),
        lambda: web.admin.command("renameCollection", "other.secrets", to="shop.mine"),
        lambda: web.admin["system.users"].find_one(),
        lambda: web.shop.command("grantRolesToUser", "web", roles=[{"role": "root", "db": "admin"}]),
        lambda: web.shop.command("createUser", "x", pwd="x", roles=["readWrite"]),
        lambda: web.shop.command("updateUser", "web", roles=["dbOwner"]),
        lambda: web.shop.command("updateUser", "web", pwd="other"),
        lambda: web.shop.command("dropDatabase"),
        lambda: web.admin.command("shutdown"),
    ]:
        assert code(run) == 13


def test_names_lead_nowhere_else(guarded):
    """What has quotes, dots, dollars and slashes in it is a name like any other, and nobody's."""
    raw = RawClient(guarded, "shop", "web", "w3b")
    assert raw.run({"count": "orders", "$db": "shop"})["n"] >= 300
    for name in ["../other", "other/../shop", "shop\0", "other\0shop", "$cmd", "oth\ner", "shop.orders", "", " ", "%2e%2e", "x" * 100]:
        for command in [{"find": "secrets"}, {"insert": "c", "documents": [{}]}, {"create": "c"}, {"dropDatabase": 1}]:
            reply = raw.run({**command, "$db": name})
            assert reply["ok"] == 0 and "8421-open" not in str(reply), (name, reply)
    for target in ["../other.secrets", "../../other/secrets", "$cmd", "system.users", "a\0b", {"$ne": 1}, ["secrets"], None, 1]:
        reply = raw.run({"find": target, "$db": "shop"})
        assert reply.get("cursor", {}).get("firstBatch", []) == [], reply
    assert sorted(path.name for path in guarded.data.parent.iterdir()) == ["data", "tenond.log"]


class RawClient:
    """A logged-in connection that sends what no driver would."""

    def __init__(self, server, database, user, password):
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        nonce = f"n={user},r=abc"
        options = {"skipEmptyExchange": True}
        start = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": f"n,,{nonce}".encode(), "options": options, "$db": database}
        first = self.run(start)
        fields = dict(part.split("=", 1) for part in first["payload"].decode().split(","))
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        final = f"c=biws,r={fields['r']}"
        signed = f"{nonce},{first['payload'].decode()},{final}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature))).decode()
        payload = f"{final},p={proof}".encode()
        done = self.run({"saslContinue": 1, "conversationId": first["conversationId"], "payload": payload, "$db": database})
        assert done["done"], done

    def run(self, command):
        body = bytes(4) + b"\0" + bson.encode(command)
        self.socket.sendall((16 + len(body)).to_bytes(4, "little") + bytes(8) + (2013).to_bytes(4, "little") + body)
        size = int.from_bytes(self.socket.recv(4, socket.MSG_WAITALL), "little")
        return bson.decode(self.socket.recv(size - 4, socket.MSG_WAITALL)[17:])


def test_operators_in_places_of_values_reach_no_further(web):
    """A script sees what its user may read and nothing else, and a filter in the place of a name is no name."""
    for name in ["db", "require", "process", "load"]:
        unseen = list(web.shop.orders.find({"$where": f"typeof {name} == 'undefined'"}))
        assert unseen == list(web.shop.orders.find()) != []
    assert code(lambda: list(web.other.secrets.find({"$where": "true"}))) == 13
    assert code(web.shop.command, {"usersInfo": {"$ne": "x"}}) == 13


def test_rights_end_at_once_on_open_connections(guarded, root):
    root.shop.command("createUser", "brief", pwd="x", roles=["read"])
    with guarded.client(username="brief", password="x", authSource="shop", maxPoolSize=1) as brief:
        cursor = brief.shop.orders.find(batch_size=2)
        next(cursor)
        root.shop.command("revokeRolesFromUser", "brief", roles=["read"])
        assert code(brief.shop.orders.find_one) == 13
        assert code(lambda: list(cursor)) == 13
        root.shop.command("grantRolesToUser", "brief", roles=["read"])
        assert brief.shop.orders.find_one() == {"_id": 0}
        root.shop.command("dropUser", "brief")
        assert "requires authentication" in str(pytest.raises(OperationFailure, brief.shop.orders.find_one).value)


def test_unknown_users_and_wrong_passwords_look_the_same(guarded):
    def seen(user, mechanism):
        with guarded.client(username=user, password="wrong", authSource="shop", authMechanism=mechanism) as client:
            with pytest.raises(OperationFailure) as refused:
                client.shop.command("ping")
            return refused.value.details

    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256"]:
        known, unknown = seen("web", mechanism), seen("nobody", mechanism)
        assert known == unknown and known["code"] == 18 and known["errmsg"] == "Authentication failed."


def salt_of(server, user):
    with server.client() as client:
        reply = client.shop.command(
            "saslStart", mechanism="SCRAM-SHA-256", payload=bson.Binary(f"n,,n={user},r=abc".encode()), options={"skipEmptyExchange": True}
        )
    return re.search(r"s=([^,]+),i=15000", reply["payload"].decode()).group(1)


def test_the_salt_of_a_user_who_is_not_there_outlives_the_server(tmp_path):
    with Server(tmp_path, options=["--auth"]) as server:
        first = salt_of(server, "nobody"), salt_of(server, "somebody")
        assert first[0] != first[1]
    with Server(tmp_path, options=["--auth"]) as server:
        assert (salt_of(server, "nobody"), salt_of(server, "somebody")) == first


def test_names_cannot_forge_log_lines(guarded, root):
    forged = 'x"}\n{"t":{"$date":"2020-01-01T00:00:00Z"},"s":"I","msg":"Successfully authenticated\u2028'
    before = len(log_lines(guarded))
    with guarded.client(username=forged, password="s3same", authSource="shop") as client:
        assert code(client.shop.command, "ping") == 18
    root.shop.command("createUser", forged, pwd="s3same", roles=[])
    with guarded.client(username=forged, password="s3same", authSource="shop") as client:
        assert client.shop.command("ping")["ok"] == 1
        assert "s3same" not in str(pytest.raises(OperationFailure, client.shop.command, "createUser", "x", pwd="s3same", roles=[]).value)
    lines = [line for line in log_lines(guarded)[before:] if line["c"] == "ACCESS"]
    seen = [(line["msg"], line["attr"]["user"]) for line in lines if line["attr"].get("user") == forged]
    assert [message for message, _ in seen] == ["Failed to authenticate", "Successfully authenticated"], seen
    assert lines[0]["attr"]["db"] == "shop" and lines[0]["attr"]["mechanism"] == "SCRAM-SHA-256" and lines[0]["attr"]["client"]
    assert "s3same" not in guarded.log.read_text() and "r00t" not in guarded.log.read_text()


def test_restrictions_keep_a_user_where_it_belongs(guarded, root):
    far, here = [{"clientSource": ["10.0.0.0/8"]}], [{"clientSource": ["127.0.0.1"], "serverAddress": ["127.0.0.1"]}]
    root.shop.command("createUser", "far", pwd="x", roles=["read"], authenticationRestrictions=far)
    root.shop.command("createUser", "here", pwd="x", roles=["read"], authenticationRestrictions=here)
    with guarded.client(username="far", password="x", authSource="shop") as client:
        assert code(client.shop.orders.find_one) == 18
    with guarded.client(username="here", password="x", authSource="shop") as client:
        assert client.shop.orders.find_one() is not None


def test_failures_are_held_up_and_a_right_password_still_works(guarded, root):
    root.shop.command("createUser", "slow", pwd="right", roles=["read"])
    for _ in range(6):
        with guarded.client(username="slow", password="wrong", authSource="shop", maxPoolSize=1) as client:
            assert code(client.shop.command, "ping") == 18
    with guarded.client(username="slow", password="right", authSource="shop") as client:
        assert client.shop.orders.find_one() is not None


def test_mongosh_sets_a_server_up(tmp_path):
    shell = str(CLIENTS / "node" / "node_modules" / ".bin" / "mongosh")

    def run(server, script, *options):
        uri = f"mongodb://127.0.0.1:{server.port}/shop"
        done = subprocess.run([shell, "--quiet", "--norc", uri, *options, "--eval", script], capture_output=True, text=True, timeout=300)
        return done.stdout + done.stderr

    with Server(tmp_path, options=["--auth"]) as server:
        assert "requires authentication" in run(server, "db.c.find()")
        assert "ok: 1" in run(server, 'db.getSiblingDB("admin").createUser({ user: "amy", pwd: "x", roles: ["root"] })')
        assert "requires authentication" in run(server, 'db.getSiblingDB("admin").createUser({ user: "eve", pwd: "x", roles: ["root"] })')
        login = ["--username", "amy", "--password", "x", "--authenticationDatabase", "admin"]
        script = """
            db.createRole({ role: "clerk", roles: [], privileges: [
                { resource: { db: "shop", collection: "orders" }, actions: ["find", "insert"] }] });
            db.createUser({ user: "bob", pwd: "y", roles: ["clerk"] });
            print(db.getRole("clerk", { showPrivileges: true }).privileges[0].actions.join(), db.getUsers().users.length);
        """
        assert "find,insert 1" in run(server, script, *login)
        bob = ["--username", "bob", "--password", "y", "--authenticationDatabase", "shop"]
        assert "acknowledged: true" in run(server, "db.orders.insertOne({ _id: 1 })", *bob)
        assert "not authorized on shop to execute command" in run(server, "db.orders.deleteOne({})", *bob)
        names = "db.runCommand({ listCollections: 1, nameOnly: true, authorizedCollections: true }).cursor.firstBatch"
        assert "name: 'orders'" in run(server, names, *bob)
        parsed = run(server, "print(db.adminCommand({ getCmdLineOpts: 1 }).parsed.security.authorization)", *login)
        assert "enabled" in parsed


def test_nobody_is_served_unprotected_by_mistake(tmp_path):
    for option in [["--bind_ip", "0.0.0.0"], ["--bind_ip_all"]]:
        command = [binary(), "--dbpath", str(tmp_path), "--port", "0", *option]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 2 and "--allowUnprotected" in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
    server = Server(tmp_path / "open", options=["--allowUnprotected"])
    command = ["0.0.0.0" if part == "127.0.0.1" else part for part in server.command()]
    server.command = lambda: command
    with server:
        assert server.client().admin.command("ping")["ok"] == 1


def test_the_socket_is_the_owners_alone(tmp_path):
    server = Server(tmp_path, options=["--auth", "--unixSocketPrefix", str(tmp_path)])
    command = [part for part in server.command() if part != "--nounixsocket"]
    server.command = lambda: command
    with server:
        path = tmp_path / f"mongodb-{server.port}.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_what_is_not_built_is_refused_by_name(guarded):
    with guarded.client() as client:
        assert "MONGODB-CR" in str(pytest.raises(OperationFailure, client.admin.command, "getnonce").value)
    with pytest.raises((OperationFailure, ConfigurationError)):
        with guarded.client(authMechanism="MONGODB-X509", tls=False) as client:
            client.admin.command("ping")
    done = subprocess.run([binary(), "--transitionToAuth"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "access control" in done.stdout + done.stderr


def test_a_set_is_initiated_and_gets_its_first_user(tmp_path):
    with Server(tmp_path, options=["--auth", "--replSet", "rs0"]) as server:
        first = server.client(directConnection=True)
        assert code(first.admin.command, "replSetGetStatus") == 13
        first.admin.command("replSetInitiate")
        first.admin.command("createUser", "root", pwd="r00t", roles=["root"])
        assert code(first.admin.command, "replSetStepDown", 1) == 13
        root = server.client(directConnection=True, **ROOT)
        with root.start_session() as session:
            with session.start_transaction():
                root.shop.orders.insert_one({"_id": 1}, session=session)
            assert root.shop.orders.count_documents({}) == 1
        # A write that is sent again by a driver.
        root.shop.orders.update_one({"_id": 1}, {"$inc": {"a": 1}})
        assert code(lambda: list(first.local["oplog.rs"].find())) == 13


def test_no_find_that_begins_after_a_right_was_taken_succeeds(guarded, root):
    """Eight connections find without pause while the role is given and taken; each looks at a counter of what was done."""
    root.shop.command("createUser", "busy", pwd="x", roles=[])
    taken, ends, seen, wrong = [0], threading.Event(), [0], []

    def work():
        with guarded.client(username="busy", password="x", authSource="shop", maxPoolSize=1) as client:
            while not ends.is_set():
                # Odd while the role may be there.
                before = taken[0]
                try:
                    client.shop.orders.find_one({"_id": 5})
                    seen[0] += 1
                    if before % 2 == 0 and taken[0] == before:
                        wrong.append(before)
                except OperationFailure as error:
                    assert error.code == 13, error

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for _ in range(60):
        taken[0] += 1
        root.shop.command("grantRolesToUser", "busy", roles=["read"])
        root.shop.command("revokeRolesFromUser", "busy", roles=["read"])
        taken[0] += 1
    ends.set()
    for worker in workers:
        worker.join()
    assert wrong == [] and seen[0] > 0
