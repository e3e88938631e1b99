"""The tools log in to a server with access control."""

import json
import os
import subprocess
from contextlib import contextmanager

import pytest
from pymongo.errors import OperationFailure
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


@pytest.mark.parametrize(
    "command, uri",
    [
        (["bench", "ycsb"], "mongodb://amy:hidden@127.0.0.1"),
        (["bench", "ycsb"], "mongodb://amy:hidden/x@127.0.0.1"),
        (["stat"], "mongodb://amy:hidden?x@127.0.0.1"),
        (["stat"], "mongodb://amy:hidden?x@127.0.0.1,b/?replicaSet=rs0"),
    ],
)
def test_what_cannot_be_read_of_a_uri_does_not_show_its_password(command, uri):
    refused = tenon(*command, "--uri", uri)
    assert refused.returncode != 0 and "URI" in refused.stderr and "hidden" not in refused.stdout + refused.stderr


@contextmanager
def guarded_server(folder, name, password):
    with Server(folder / name, options=["--auth"]) as server:
        server.client().admin.command("createUser", "root", pwd=password, roles=["root"])
        yield server, server.client(username="root", password=password)


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_users_and_roles_are_dumped_and_restored(tmp_path, form):
    archive, folder = [f"--archive={tmp_path / 'all'}", "--gzip"], str(tmp_path / "all")
    with guarded_server(tmp_path, "source", "source's") as (source, root):
        root.admin.command("createRole", "auditor", privileges=[{"resource": {"db": "shop", "collection": ""}, "actions": ["find"]}], roles=[])
        root.admin.command("createUser", "amy", pwd=PASSWORD, roles=["auditor"])
        root.shop.command("createUser", "bob", pwd=PASSWORD, roles=["readWrite"], customData={"n": 1}, mechanisms=["SCRAM-SHA-1"])
        root.admin.command("createUser", "keeper", pwd=PASSWORD, roles=["backup"])
        root.shop.goods.insert_one({"_id": 1})
        dumped = tenon("dump", *named(source, "keeper"), *(archive if form == "archive" else ["--out", folder]))
        assert dumped.returncode == 0, dumped.stderr
        of_one = tenon("dump", *named(source, "keeper"), "--db", "shop", "--out", str(tmp_path / "shop"))
        assert of_one.returncode == 0 and not (tmp_path / "shop" / "admin").exists(), of_one.stderr
        before = root.admin.command("usersInfo", {"forAllDBs": True}, showCredentials=True)["users"]
    where = archive if form == "archive" else [folder]
    with guarded_server(tmp_path, "target", "target's") as (target, root):
        root.admin.command("createUser", "keeper", pwd=PASSWORD, roles=["restore"])
        root.admin.command("createUser", "eve", pwd=PASSWORD, roles=[])
        root.admin.command("createRole", "other", privileges=[], roles=[])
        restored = tenon("restore", *named(target, "keeper"), *where)
        assert restored.returncode == 0, restored.stderr
        names = lambda: sorted((user["db"], user["user"]) for user in root.admin.command("usersInfo", {"forAllDBs": True})["users"])
        assert names() == [("admin", "amy"), ("admin", "eve"), ("admin", "keeper"), ("admin", "root"), ("shop", "bob")]
        [keeper] = root.admin.command("usersInfo", "keeper")["users"]
        assert keeper["roles"] == [{"role": "restore", "db": "admin"}], "who is there stays"
        amy = target.client(username="amy", password=PASSWORD)
        assert amy.shop.goods.find_one() == {"_id": 1}
        bob = target.client(username="bob", password=PASSWORD, authSource="shop", authMechanism="SCRAM-SHA-1")
        bob.shop.goods.insert_one({"_id": 2})
        assert {role["role"] for role in root.admin.command("rolesInfo", 1)["roles"]} == {"auditor", "other"}
        assert {"tempusers", "temproles"}.isdisjoint(root.admin.list_collection_names())
        # All that the dump has not goes, its own user too.
        restored = tenon("restore", *named(target, "keeper"), "--drop", *where)
        # Its user may no longer remove what was put aside.
        assert restored.returncode == 1 and "admin.tempusers, with copies of the users or roles, is left" in restored.stderr
        root = target.client(username="root", password="source's")
        assert root.admin.command("usersInfo", {"forAllDBs": True}, showCredentials=True)["users"] == before
        assert {role["role"] for role in root.admin.command("rolesInfo", 1)["roles"]} == {"auditor"}
        restored = tenon("restore", "--host", "127.0.0.1", "--port", str(target.port), "-u", "root", "-p", "source's", "--drop", *where)
        assert restored.returncode == 0 and "is left" not in restored.stderr, restored.stderr
        root = target.client(username="root", password="source's")
        assert {"tempusers", "temproles"}.isdisjoint(root.admin.list_collection_names())


def test_users_are_taken_over_as_mongorestore_asks_for_it(tmp_path):
    with guarded_server(tmp_path, "server", "r") as (server, root):
        root.admin.command("createUser", "keeper", pwd=PASSWORD, roles=["restore"])
        root.admin.command("createUser", "amy", pwd=PASSWORD, roles=["read"])
        root.shop.command("createUser", "bob", pwd=PASSWORD, roles=[])
        keeper = server.client(username="keeper", password=PASSWORD)
        amy = root.admin["system.users"].find_one({"user": "amy"})
        merge = lambda client, **options: client.admin.command("_mergeAuthzCollections", 1, **{"db": "", "drop": False, **options})
        keeper.admin.tempusers.insert_many([{**amy, "_id": "admin.zoe", "user": "zoe"}, {**amy, "roles": []}])
        for options, code in [
            ({}, 2),
            ({"tempUsersCollection": ""}, 2),
            ({"tempUsersCollection": "admin.tempusers", "db": 1}, 14),
            ({"tempUsersCollection": "admin.tempusers", "nonesuch": 1}, 40415),
        ]:
            with pytest.raises(OperationFailure) as refused:
                merge(root, **options)
            assert refused.value.code == code, options
        with pytest.raises(OperationFailure) as refused:
            merge(server.client(username="amy", password=PASSWORD), tempUsersCollection="admin.tempusers")
        assert refused.value.code == 13
        merge(keeper, tempUsersCollection="admin.tempusers", db="shop")
        names = lambda: sorted(user["user"] for user in root.admin["system.users"].find())
        assert names() == ["amy", "bob", "keeper", "root"]
        merge(keeper, tempUsersCollection="admin.tempusers", db="admin")
        assert names() == ["amy", "bob", "keeper", "root", "zoe"]
        assert root.admin.command("usersInfo", "amy")["users"][0]["roles"], "who is there stays"
        # A document that is no user's, and nothing is changed.
        keeper.admin.tempusers.insert_one({"user": "x", "db": "admin", "roles": []})
        with pytest.raises(OperationFailure) as refused:
            merge(keeper, tempUsersCollection="admin.tempusers", drop=True)
        assert refused.value.code == 2 and "credentials" in str(refused.value)
        assert len(names()) == 5
        keeper.admin.tempusers.delete_one({"user": "x"})
        # Neither does a collection with nobody in it take everybody's place, nor a role that is no role.
        keeper.admin.temproles.insert_one({"role": "r", "db": "admin", "roles": [], "privileges": []})
        for role, options in [
            (None, {"tempUsersCollection": "admin.nonesuch"}),
            ({"role": "root"}, {"tempRolesCollection": "admin.temproles"}),
            ({"privileges": [{"bad": 1}]}, {"tempRolesCollection": "admin.temproles"}),
        ]:
            if role:
                keeper.admin.temproles.update_one({}, {"$set": role})
            with pytest.raises(OperationFailure):
                merge(keeper, drop=True, **options)
            assert len(names()) == 5 and not list(root.admin["system.roles"].find()), options
        # Of the database alone that is named.
        keeper.admin.tempusers.insert_one(root.admin["system.users"].find_one({"user": "root"}))
        merge(keeper, tempUsersCollection="admin.tempusers", db="admin", drop=True)
        assert names() == ["amy", "bob", "root", "zoe"]


def test_a_database_with_users_and_no_roles_is_restored_as_mongorestore_asks_for_it(tmp_path):
    """It names both collections, and makes the one alone of which the dump has something."""
    with guarded_server(tmp_path, "server", "r") as (server, root):
        root.shop.command("createUser", "bob", pwd=PASSWORD, roles=["read"])
        root.shop.command("createUser", "cid", pwd=PASSWORD, roles=[])
        root.shop.command("createRole", "clerk", roles=["read"], privileges=[])
        both = {"tempUsersCollection": "admin.tempusers", "tempRolesCollection": "admin.temproles"}
        merge = lambda database: root.admin.command("_mergeAuthzCollections", 1, **both, db=database, drop=True)
        names = lambda: sorted(user["user"] for user in root.admin["system.users"].find())
        root.admin.tempusers.insert_one(root.admin["system.users"].find_one({"user": "bob"}))
        merge("shop")
        assert names() == ["bob", "root"] and not list(root.admin["system.roles"].find())
        # No users at all are a server that is open; none of a database are what its dump says.
        root.admin.tempusers.delete_many({})
        for database in ["", "admin"]:
            if database == "admin":
                merge("shop")
            with pytest.raises(OperationFailure) as refused:
                merge(database)
            assert refused.value.code == 2 and "root" in names(), database
        assert names() == ["root"]
        # The roles of a dump do not wait for its users.
        role = {"_id": "shop.clerk", "role": "clerk", "db": "shop", "privileges": [], "roles": []}
        root.admin.temproles.insert_one(role)
        merge("")
        assert names() == ["root"] and [found["role"] for found in root.admin["system.roles"].find()] == ["clerk"]


def test_who_may_not_read_or_restore_users_does_the_rest(tmp_path):
    server, where = Server(tmp_path / "server", options=["--auth"]), tmp_path / "all"
    with server:
        server.client().admin.command("createUser", "root", pwd="r", roles=["root"])
        root = server.client(username="root", password="r")
        root.shop.goods.insert_one({"_id": 1})
        root.admin.command("createUser", "reader", pwd=PASSWORD, roles=["readAnyDatabase"])
        root.admin.command("createUser", "writer", pwd=PASSWORD, roles=[{"role": "readWrite", "db": "shop"}])
        dumped = tenon("dump", *named(server, "reader"), "--out", str(tmp_path / "without"))
        assert dumped.returncode == 0 and "users and roles are left out" in dumped.stderr, dumped.stderr
        assert (tmp_path / "without" / "shop" / "goods.bson").exists() and not (tmp_path / "without" / "admin" / "system.users.bson").exists()
        dumped = tenon("dump", "--port", str(server.port), "-u", "root", "-p", "r", "--out", str(where))
        assert dumped.returncode == 0, dumped.stderr
        root.shop.goods.delete_many({})
        restored = tenon("restore", *named(server, "writer"), str(where))
        assert restored.returncode == 1 and "admin.system.users is not restored" in restored.stderr, restored.stderr
        assert root.shop.goods.find_one() == {"_id": 1}
        # Nobody in the file: everybody stays. A file that is cut off: nothing of it is left.
        users = where / "admin" / "system.users.bson"
        content = users.read_bytes()
        for kept, code in [(b"", 0), (content[:-3], 1)]:
            users.write_bytes(kept)
            restored = tenon("restore", "--port", str(server.port), "-u", "root", "-p", "r", "--drop", str(where))
            assert restored.returncode == code, restored.stderr
            assert root.admin["system.users"].count_documents({}) == 3
            assert "tempusers" not in root.admin.list_collection_names()
