"""Users: drivers prove who they are, and tools read the documents."""

import os
import subprocess
from pathlib import Path

import pytest
from pymongo.errors import OperationFailure
from server import Server

CLIENTS = Path(os.environ.get("TENON_CLIENTS", os.path.expanduser("~/.cache/tenon/clients")))
# A name and a password that every layer on the way would like to read differently: SCRAM's commas and equals signs, a
# URI's percent signs, a form that SASLprep changes.
USER, PASSWORD = "a,b=c %41", "p@ss,=\u2168 x"


@pytest.fixture
def user(client):
    client.people.command("dropAllUsersFromDatabase")
    client.people.command("createUser", USER, pwd=PASSWORD, roles=["readWrite"])
    yield
    client.people.command("dropAllUsersFromDatabase")


def who(connection):
    users = connection.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
    return [(user["user"], user["db"]) for user in users]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256", None])
def test_pymongo_proves_a_user(server, user, mechanism):
    options = {"authMechanism": mechanism} if mechanism else {}
    with server.client(username=USER, password=PASSWORD, authSource="people", **options) as connection:
        assert who(connection) == [(USER, "people")]
    # The same characters in another Unicode form, which only the newer mechanism knows.
    if mechanism == "SCRAM-SHA-256":
        with server.client(username=USER, password="p@ss,=IX x", authSource="people", **options) as connection:
            assert who(connection) == [(USER, "people")]
    for name, password in [(USER, "wrong"), ("nobody", PASSWORD)]:
        with server.client(username=name, password=password, authSource="people", **options) as connection:
            with pytest.raises(OperationFailure) as refused:
                connection.admin.command("ping")
            assert refused.value.code == 18


def test_passwords_are_in_no_file(tmp_path):
    # Every command is slow enough to be logged.
    with Server(tmp_path, options=["--slowms", "0"]) as server:
        connection = server.client()
        connection.people.command("createUser", "amy", pwd="s3same-open", roles=[])
        connection.people.command("updateUser", "amy", pwd="s3same-shut")
        connection.admin.command("fsync")
        log = server.log.read_text()
        assert '"createUser":"amy"' in log.replace(" ", ""), log
        files = [path for path in [*server.data.rglob("*"), server.log] if path.is_file()]
        assert len(files) > 5 and not [path for path in files if b"s3same" in path.read_bytes()]


def program(name, *arguments, **environment):
    done = subprocess.run([name, *arguments], capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr


def test_mongosh_proves_a_user(server, user):
    shell = str(CLIENTS / "node" / "node_modules" / ".bin" / "mongosh")
    status = "JSON.stringify(db.runCommand({connectionStatus: 1}).authInfo.authenticatedUsers)"
    options = ["--quiet", "--norc", f"mongodb://127.0.0.1:{server.port}/", "--username", USER, "--authenticationDatabase", "people"]
    code, out = program(shell, *options, "--password", PASSWORD, "--eval", status)
    assert code == 0 and f'"{USER}"' in out, out
    code, out = program(shell, *options, "--password", "wrong", "--eval", status)
    assert code != 0 and "Authentication failed" in out, out


def test_the_node_driver_proves_a_user(server, user):
    script = """
        const { MongoClient } = require("mongodb");
        const [uri, username, password] = process.argv.slice(1);
        const client = new MongoClient(uri, { auth: { username, password }, authSource: "people" });
        client.db("admin").command({ connectionStatus: 1 })
            .then((reply) => console.log(reply.authInfo.authenticatedUsers[0].user))
            .catch((error) => { console.log(error.code); process.exitCode = 1; })
            .finally(() => client.close());
    """
    modules = str(CLIENTS / "node" / "node_modules")
    arguments = ["-e", script, f"mongodb://127.0.0.1:{server.port}/", USER]
    assert program("node", *arguments, PASSWORD, NODE_PATH=modules) == (0, f"{USER}\n")
    assert program("node", *arguments, "wrong", NODE_PATH=modules) == (1, "18\n")


def test_the_way_of_the_first_user_stays_shut_when_the_last_is_dropped(tmp_path):
    """As long as nobody had tried it while there was a user, it was open again when that was dropped."""
    server = Server(tmp_path / "guarded", options=["--auth"])
    login = {"username": "root", "password": "r", "authSource": "admin"}

    def make(name):
        with server.client() as nobody:
            nobody.admin.command("createUser", name, pwd="r", roles=["root"])

    def refused():
        with pytest.raises(OperationFailure) as failed:
            make("mallory")
        return failed.value.code == 13

    with server:
        make("root")
        server.client(**login).admin.command("dropUser", "root")
        assert refused()
    with server:
        # No server starts with a user here: the way is open.
        make("root")
    with server:
        server.client(**login).admin.command("dropAllUsersFromDatabase")
        assert refused()


def test_a_filter_of_users_finds_out_nothing_that_is_not_shown(tmp_path):
    """Character by character a user found out the hash of its password, with which passwords can be tried elsewhere."""
    with Server(tmp_path / "guarded", options=["--auth"]) as server:
        server.client().admin.command("createUser", "root", pwd="r", roles=["root"])
        users = server.client(username="root", password="r").shop
        users.command("createUser", "web", pwd="w", roles=["readWrite"], customData={"n": 1})
        web = server.client(username="web", password="w", authSource="shop").shop

        def found(database, condition, **options):
            return len(database.command("usersInfo", "web", filter=condition, **options)["users"])

        of_key = {"credentials.SCRAM-SHA-256.storedKey": {"$regex": "^."}}
        assert [found(database, of_key) for database in (web, users)] == [0, 0]
        assert found(users, of_key, showCredentials=True) == 1
        assert [found(web, {"customData.n": 1}, showCustomData=shown) for shown in (False, True)] == [0, 1]
        assert found(web, {"mechanisms": "SCRAM-SHA-256", "roles.role": "readWrite"}) == 1
        assert found(web, {"mechanisms": "SCRAM-SHA-512"}) == 0
