"""Restoring dumps of which the server refuses a part, dumps that are not what they should be, and logs of others."""

import datetime
import json
import os
import subprocess

import bson
import bson.json_util
import pytest
from bson import Int64, Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo.errors import BulkWriteError, OperationFailure, WriteError
from server import ENGINES, Server, binary


def tenon(*arguments):
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"), ENGINES[0])
    with server:
        yield server


@pytest.fixture
def shop(server):
    client = server.client()
    client.drop_database("shop")
    yield client.shop


def dump(folder, **collections):
    """A dump made by hand: the documents of each collection of `shop`, and what is told of it."""
    for name, (documents, metadata) in collections.items():
        (folder / "shop").mkdir(parents=True, exist_ok=True)
        if documents is not None:
            (folder / "shop" / f"{name}.bson").write_bytes(b"".join(map(bson.encode, documents)))
        (folder / "shop" / f"{name}.metadata.json").write_text(json.dumps(metadata))
    return folder


def log(folder, *operations):
    entries = [{"ts": Timestamp(100 + n, 1), "v": 2, **operation} for n, operation in enumerate(operations)]
    folder.mkdir(exist_ok=True)
    (folder / "oplog.bson").write_bytes(b"".join(map(bson.encode, entries)))
    return folder


def restore(server, *arguments):
    return tenon("restore", "--port", server.port, "-j", 1, *arguments)


CREATE = {"op": "c", "ns": "shop.$cmd", "o": {"create": "a"}}
REFUSED = {
    "index": {"indexes": [{"v": 2, "key": {"t": 1}, "name": "refused", "sparse": "true"}, {"v": 2, "key": {"u": 1}, "name": "u_1"}]},
    "option": {"options": {"storageEngine": {"wiredTiger": {"configString": "x=y"}}, "validator": {"_id": {"$gte": 0}}}},
    "view": {"options": {"viewOn": "other", "pipeline": [{"$nosuch": 1}]}, "type": "view"},
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_does_not_keep_the_rest_from_being_restored(server, shop, tmp_path, kind):
    """Everything behind it was missing."""
    documents = [{"_id": n, "u": n} for n in range(3)]
    folder = dump(tmp_path / "dump", a=(None if kind == "view" else documents, REFUSED[kind]), z=(documents, {"indexes": []}))
    restored = restore(server, folder)
    assert restored.returncode == 1 and "shop.a" in restored.stderr, restored.stderr
    assert shop.z.count_documents({}) == 3
    if kind == "index":
        assert shop.a.count_documents({}) == 3
        assert set(shop.a.index_information()) == {"_id_", "u_1"}
    if kind == "option":
        assert shop.a.count_documents({}) == 3
        with pytest.raises(WriteError):
            shop.a.insert_one({"_id": -1})
    shop.client.drop_database("shop")
    stopped = restore(server, "--stopOnError", folder)
    assert stopped.returncode == 1 and "z" not in shop.list_collection_names(), stopped.stderr


def test_files_of_older_servers_are_restored_without_a_word(server, shop, tmp_path):
    """With the command's name among the options a second collection was made; the files beside it ended the restoration."""
    options = {"create": "other", "autoIndexId": False, "size": 1000}
    folder = dump(tmp_path / "dump", a=([{"_id": 1}], {"options": options, "indexes": [{"v": 0, "key": {"x": 1}, "name": "x_1"}]}))
    (folder / "shop" / "$admin.system.users.bson").write_bytes(bson.encode({"_id": "shop.u", "user": "u", "db": "shop"}))
    (folder / "config").mkdir()
    (folder / "config" / "transactions.bson").write_bytes(bson.encode({"_id": 1}))
    restored = restore(server, folder)
    assert restored.returncode == 0, restored.stderr
    assert shop.list_collection_names() == ["a"] and "x_1" in shop.a.index_information()
    assert "transactions" not in shop.client.config.list_collection_names()


def test_a_new_name_that_is_none_is_refused(server, shop, tmp_path):
    """The collection itself was dropped, and replaced by the dump."""
    folder = dump(tmp_path / "dump", orders=([{"_id": 1}], {}))
    shop.orders.insert_many([{"_id": n} for n in range(3)])
    restored = restore(server, "--drop", "--nsFrom", "shop.*", "--nsTo", "copy-*", folder)
    assert restored.returncode == 1 and "copy-orders" in restored.stderr, restored.stderr
    assert shop.orders.count_documents({}) == 3


def test_what_is_no_file_of_documents_costs_nothing(server, shop, tmp_path):
    shop.orders.insert_many([{"_id": n} for n in range(3)])
    wrong = tmp_path / "wrong.bson"
    wrong.write_text("this is no file of documents")
    restored = restore(server, "--drop", "--db", "shop", "--collection", "orders", wrong)
    assert restored.returncode == 1, restored.stderr
    assert shop.orders.count_documents({}) == 3
    nothing = restore(server, "--nsInclude", "shop.ordres", dump(tmp_path / "dump", orders=([{"_id": 1}], {})))
    assert nothing.returncode == 1 and "nothing of the dump" in nothing.stderr, nothing.stderr


def test_a_dump_leaves_nothing_of_one_before(tmp_path):
    """Yesterday's log was replayed over the documents of today."""
    with Server(tmp_path, ENGINES[0], options=["--replSet", "rs0", "--replSetInitiate"]) as server:
        server.client(directConnection=True).shop.a.insert_one({"_id": 1})
        out = tmp_path / "dump"
        for options, ending in ((["--gzip", "--oplog"], ".gz"), (["--oplog"], ""), (["--gzip"], ".gz")):
            assert tenon("dump", "--port", server.port, "--out", out, *options).returncode == 0
            logs = {path.name for path in out.glob("oplog.bson*")}
            assert logs == ({f"oplog.bson{ending}"} if "--oplog" in options else set())
            assert {path.name for path in (out / "shop").iterdir()} == {f"a.bson{ending}", f"a.metadata.json{ending}"}
        for ending in ("", ".gz"):
            (out / f"oplog.bson{ending}").write_bytes(b"")
        assert "both" in tenon("restore", "--port", server.port, "--gzip", "--oplogReplay", out).stderr
        # One that fails at once leaves all of the one before, whose log is worth nothing without its documents.
        failed = tenon("dump", "--port", server.port, "--out", out, "--db", "shop", "--collection", "none")
        assert failed.returncode == 1 and "there is no collection shop.none" in failed.stderr, failed.stderr
        assert {path.name for path in out.glob("oplog.bson*")} == {"oplog.bson", "oplog.bson.gz"}


def test_a_large_operation_goes_alone(server, shop, tmp_path):
    """Together with those before it was more than a document may have."""
    inserts = [{"op": "i", "ns": "shop.a", "o": {"_id": n, "pad": "x" * (12 << 20 if n == 7 else 1 << 20)}} for n in range(8)]
    replayed = restore(server, "--oplogReplay", log(tmp_path / "dump", CREATE, *inserts))
    assert replayed.returncode == 0 and "9 operations" in replayed.stderr, replayed.stderr
    assert shop.a.count_documents({}) == 8


def test_what_is_excluded_outlives_its_database(server, shop, tmp_path):
    for name in ("keep", "go"):
        shop[name].insert_one({"_id": 1})
    operations = [
        {"op": "c", "ns": "shop.$cmd", "o": {"renameCollection": "shop.go", "to": "shop.keep", "dropTarget": True}},
        {"op": "c", "ns": "shop.$cmd", "o": {"dropDatabase": 1}},
    ]
    replayed = restore(server, "--oplogReplay", "--nsExclude", "shop.keep", log(tmp_path / "dump", *operations))
    assert replayed.returncode == 0, replayed.stderr
    assert shop.list_collection_names() == ["keep"] and shop.keep.count_documents({}) == 1


def test_views_and_indexes_as_mongodb_logs_them(server, shop, tmp_path):
    """They were passed over without a word."""
    view = lambda name, year: {"_id": f"shop.{name}", "viewOn": "a", "pipeline": [{"$match": {"year": year}}]}
    operations = [
        CREATE,
        {"op": "i", "ns": "shop.a", "o": {"_id": 1, "year": 2024}},
        {"op": "i", "ns": "shop.system.indexes", "o": {"v": 1, "key": {"year": 1}, "name": "year_1", "ns": "shop.a"}},
        {"op": "i", "ns": "shop.system.views", "o": view("changed", 1999)},
        {"op": "u", "ns": "shop.system.views", "o2": {"_id": "shop.changed"}, "o": view("changed", 2024)},
        {"op": "i", "ns": "shop.system.views", "o": view("gone", 2024)},
        {"op": "d", "ns": "shop.system.views", "o": {"_id": "shop.gone"}},
    ]
    replayed = restore(server, "--oplogReplay", log(tmp_path / "dump", *operations))
    assert replayed.returncode == 0, replayed.stderr
    assert sorted(name for name in shop.list_collection_names() if name != "system.views") == ["a", "changed"]
    assert shop.changed.count_documents({}) == 1 and "year_1" in shop.a.index_information()
    diff = {"$v": 2, "diff": {"u": {"pipeline": []}}}
    operations.append({"op": "u", "ns": "shop.system.views", "o2": {"_id": "shop.changed"}, "o": diff})
    told = restore(server, "--oplogReplay", log(tmp_path / "dump", *operations))
    assert told.returncode == 1 and "shop.changed" in told.stderr, told.stderr


def test_a_view_of_a_log_that_is_refused_ends_nothing(server, shop, tmp_path):
    """All operations behind it, all indexes and all users were missing."""
    operations = [
        CREATE,
        {"op": "i", "ns": "shop.system.views", "o": {"_id": "shop.v", "viewOn": "a", "pipeline": [{"$nosuch": 1}]}},
        {"op": "i", "ns": "shop.system.indexes", "o": {"v": 1, "key": {"year": 1}, "name": "year_1", "ns": "shop.a"}},
        {"op": "i", "ns": "shop.a", "o": {"_id": 1, "year": 2024}},
    ]
    replayed = restore(server, "--oplogReplay", log(tmp_path / "dump", *operations))
    assert replayed.returncode == 1 and "shop.v" in replayed.stderr, replayed.stderr
    assert shop.a.count_documents({}) == 1 and "year_1" in shop.a.index_information()
    shop.client.drop_database("shop")
    stopped = restore(server, "--stopOnError", "--oplogReplay", tmp_path / "dump")
    assert stopped.returncode == 1 and "year_1" not in shop.a.index_information(), stopped.stderr


def test_a_log_that_is_refused_costs_no_indexes(server, shop, tmp_path):
    metadata = {"indexes": [{"v": 2, "key": {"x": 1}, "name": "x_1"}]}
    folder = log(dump(tmp_path / "dump", a=([{"_id": 1}], metadata)), {"op": "c", "ns": "shop.$cmd", "o": {"nosuch": "a"}})
    replayed = restore(server, "--oplogReplay", folder)
    assert replayed.returncode == 1 and "in part only" in replayed.stderr, replayed.stderr
    assert shop.a.count_documents({}) == 1 and "x_1" in shop.a.index_information()


@pytest.mark.parametrize("kind", ["i", "u", "d"])
def test_a_view_of_a_log_takes_no_collection_away(server, shop, tmp_path, kind):
    """A collection that was there under the view's name was dropped without a word."""
    shop.v.insert_one({"_id": 1})
    view = {"_id": "shop.v", "viewOn": "a", "pipeline": []}
    operation = {"op": kind, "ns": "shop.system.views", "o": view, "o2": {"_id": "shop.v"}}
    replayed = restore(server, "--oplogReplay", log(tmp_path / "dump", operation))
    assert replayed.returncode == (0 if kind == "d" else 1), replayed.stderr
    assert ("shop.v" in replayed.stderr) == (kind != "d"), replayed.stderr
    assert shop.v.find_one() == {"_id": 1}


def test_documents_of_a_log_need_pass_no_validator(server, shop, tmp_path):
    shop.create_collection("a", validator={"x": {"$type": "int"}})
    operation = {"op": "i", "ns": "shop.a", "o": {"_id": 1, "x": "text"}}
    replayed = restore(server, "--oplogReplay", log(tmp_path / "dump", operation))
    assert replayed.returncode == 0, replayed.stderr
    assert shop.a.find_one() == {"_id": 1, "x": "text"}


def test_a_time_series_made_meanwhile_is_told_by_the_dump(tmp_path):
    with Server(tmp_path, ENGINES[0], options=["--replSet", "rs0", "--replSetInitiate"]) as server:
        shop = server.client(directConnection=True).shop
        shop.a.insert_many([{"_id": n, "pad": os.urandom(2000).hex()} for n in range(3000)])
        reader, writer = os.pipe()
        program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
        dumping = subprocess.Popen(
            [program, "dump", "--port", str(server.port), "--oplog", "--archive"], stdout=writer, stderr=subprocess.PIPE, text=True
        )
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            # The dump is under way and waits for its reader.
            assert stream.read(1000)
            shop.create_collection("series", timeseries={"timeField": "t"})
            while stream.read(1 << 20):
                pass
        said = dumping.stderr.read()
        assert dumping.wait(60) == 1 and "--nsExclude 'shop.series'" in said, said


def test_what_servers_of_today_know_stays(server, shop, tmp_path):
    """What is taken off of old dumps is not taken off of new ones."""
    options = {"capped": True, "size": Int64(8192)}
    metadata = json.loads(bson.json_util.dumps({"options": options, "indexes": [{"v": 2, "key": {"x": 1}, "name": "x_1"}]}))
    assert restore(server, dump(tmp_path / "dump", a=([{"_id": 1}], metadata))).returncode == 0
    assert shop.a.options()["capped"] and shop.a.index_information()["x_1"]["v"] == 2


def latin1(document):
    """As a program wrote it whose strings are bytes: f# is fé there."""
    return RawBSONDocument(bson.encode(document).replace(b"f#", b"f\xe9"))


@pytest.mark.parametrize("way", ["sequence", "array"])
def test_text_that_is_not_utf8_is_a_fault_of_its_document(shop, way):
    documents = [{"_id": 1}, latin1({"_id": 2, "a": {"b": "caf#"}}), {"_id": 3}, latin1({"_id": 4, "f#": 1})]

    def insert(name, ordered):
        if way == "array":
            return shop.command("insert", name, documents=documents, ordered=ordered)["writeErrors"]
        with pytest.raises(BulkWriteError) as failure:
            shop[name].insert_many(documents, ordered=ordered)
        return failure.value.details["writeErrors"]

    errors = insert("x", False)
    assert [(error["index"], error["code"]) for error in errors] == [(1, 22), (3, 22)]
    assert errors[0]["errmsg"] == "invalid BSON, field 'a.b' of the document with _id 2: not valid UTF-8"
    assert [found["_id"] for found in shop.x.find()] == [1, 3]
    errors = insert("y", True)
    assert [(error["index"], error["code"]) for error in errors] == [(1, 22)]
    assert [found["_id"] for found in shop.y.find()] == [1]
    # Elsewhere it is one of the command.
    with pytest.raises(OperationFailure) as failure:
        shop.command("find", "x", filter=latin1({"a": "f#"}))
    assert failure.value.code == 22
    with pytest.raises(OperationFailure) as failure:
        shop.command("update", "x", updates=[latin1({"q": {}, "u": {"$set": {"a": "f#"}}})])
    assert failure.value.code == 22


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_a_dump_with_text_that_is_not_utf8(server, shop, tmp_path, form):
    """Old databases have such, and no version of the tools stops at it."""
    documents = [{"_id": n, "name": "x"} for n in range(1500)]
    documents[700] = {"_id": 700, "name": "caf#"}
    folder = tmp_path / "dump"
    dump(folder, people=(documents, {"options": {}, "indexes": []}))
    path = folder / "shop" / "people.bson"
    path.write_bytes(path.read_bytes().replace(b"caf#", b"caf\xe9"))
    arguments = [folder]
    if form == "archive":
        archive = tmp_path / "archive"
        archive.write_bytes(archived("shop", "people", path.read_bytes()))
        arguments = [f"--archive={archive}"]

    def restore(*options):
        return tenon("restore", "--uri", server.uri(), "--drop", *options, *arguments)

    stopped = restore()
    assert stopped.returncode == 1
    assert "field 'name' of the document with _id 700: not valid UTF-8" in stopped.stderr
    assert "--invalidUtf8" in stopped.stderr and "700 documents of 1 collections restored" in stopped.stderr
    assert shop.people.count_documents({}) == 700
    skipped = restore("--invalidUtf8", "skip")
    assert skipped.returncode == 1, skipped.stderr
    assert "shop.people: left out, the first of them: field 'name' of the document with _id 700" in skipped.stderr
    assert shop.people.count_documents({}) == 1499
    replaced = restore("--invalidUtf8", "replace")
    assert replaced.returncode == 0, replaced.stderr
    assert "shop.people: U+FFFD is put in, the first time: field 'name' of the document with _id 700" in replaced.stderr
    assert "text that is not UTF-8 was replaced in 1" in replaced.stdout + replaced.stderr
    assert shop.people.count_documents({}) == 1500
    assert shop.people.find_one({"_id": 700})["name"] == "caf\ufffd"


def test_what_replacing_must_not_lose(server, shop, tmp_path):
    """Three bytes stand for one, which can be too many, and different bytes must not become one `_id`."""
    documents = [{"_id": 1}, {"_id": 2, "blob": "#" * 6_000_000}, {"_id": "caf#"}, {"_id": "caf~"}]
    folder = dump(tmp_path / "dump", people=(documents, {"options": {}, "indexes": [{"v": 2, "key": {"n": 1}, "name": "n_1"}]}))
    log(folder, {"op": "i", "ns": "shop.people", "o": {"_id": "log#", "n": "#"}})
    for path in [folder / "shop" / "people.bson", folder / "oplog.bson"]:
        path.write_bytes(path.read_bytes().replace(b"#", b"\xe9").replace(b"~", b"\xe8"))
    replaced = restore(server, "--invalidUtf8", "replace", "--oplogReplay", folder)
    assert replaced.returncode == 1, replaced.stderr
    assert "shop.people: left out, the first of them: field 'blob' of the document with _id 2" in replaced.stderr
    assert "the log: U+FFFD is put in, the first time: shop.people: field '_id'" in replaced.stderr
    ids = [found["_id"] for found in shop.people.find().sort("_id", 1)]
    assert ids == [1, "caf\ufffdE8", "caf\ufffdE9", "log\ufffdE9"]
    assert "n_1" in shop.people.index_information()


def latin1_file(path):
    path.write_bytes(path.read_bytes().replace(b"caf#", b"caf\xe9"))


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_where_text_stops_a_restoration_what_is_there_stays_usable(server, shop, tmp_path, form):
    """The collection had been dropped for a document that was refused then, and had no indexes."""
    index = {"options": {}, "indexes": [{"v": 2, "key": {"n": 1}, "name": "n_1"}]}
    documents = [{"_id": n, "n": n} for n in range(1200)]

    def restore_of(documents):
        folder = tmp_path / "dump"
        dump(folder, people=(documents, index))
        latin1_file(folder / "shop" / "people.bson")
        if form == "folder":
            return restore(server, "--drop", folder)
        archive = tmp_path / "archive"
        archive.write_bytes(archived("shop", "people", (folder / "shop" / "people.bson").read_bytes(), json.dumps(index)))
        return restore(server, "--drop", f"--archive={archive}")

    shop.people.insert_many([{"_id": -n} for n in range(1, 11)])
    stopped = restore_of([{"_id": "bad", "name": "caf#"}, *documents])
    assert stopped.returncode == 1 and "field 'name'" in stopped.stderr, stopped.stderr
    assert shop.people.count_documents({}) == 10
    stopped = restore_of([*documents, {"_id": "bad", "name": "caf#"}, {"_id": "behind"}])
    assert stopped.returncode == 1 and "field 'name'" in stopped.stderr, stopped.stderr
    assert shop.people.count_documents({}) == 1200 and "n_1" in shop.people.index_information()


def test_of_a_log_only_operations_that_are_asked_for_are_looked_at(server, shop, tmp_path):
    """One text in a transaction, in an excluded collection or behind the limit cost the whole rest, indexes too."""
    index = {"indexes": [{"v": 2, "key": {"n": 1}, "name": "n_1"}]}
    folder = dump(tmp_path / "dump", people=([{"_id": 1}], index))
    insert = lambda ns, _id, **more: {"op": "i", "ns": ns, "o": {"_id": _id, **more}}
    bad = {"name": "caf#"}
    transaction = {"lsid": {"id": bson.Binary(b"x" * 16, 4)}, "txnNumber": Int64(1)}
    chain = [
        {"op": "c", "ns": "admin.$cmd", **transaction, "o": {"applyOps": [insert("shop.people", 10), insert("shop.people", 11, **bad)], "partialTxn": True}},
        {"op": "c", "ns": "admin.$cmd", **transaction, "o": {"applyOps": [insert("shop.people", 12)]}},
    ]
    aside = [insert("other.c", 1, **bad), {"op": "n", "ns": "", "o": {"msg": "caf#"}}, insert("config.x", 1, **bad)]

    def replay(operations, *options):
        shop.client.drop_database("shop")
        log(folder, *operations)
        latin1_file(folder / "oplog.bson")
        done = restore(server, "--oplogReplay", "--nsExclude", "other.*", *options, folder)
        assert "n_1" in shop.people.index_information(), done.stderr
        return done, [found["_id"] for found in shop.people.find().sort("_id", 1)]

    done, ids = replay([*aside, insert("shop.people", 2), insert("shop.people", 3, **bad)], "--oplogLimit", "104:1")
    assert done.returncode == 0 and ids == [1, 2], done.stderr
    done, ids = replay([*aside, insert("shop.people", 2), *chain, insert("shop.people", 20)])
    assert done.returncode == 1 and ids == [1, 2], "nothing of a transaction at which it ends"
    assert "oplog.bson: byte" in done.stderr and "shop.people: field 'name' of the document with _id 11" in done.stderr
    done, ids = replay([*aside, *chain, insert("shop.people", 20)], "--invalidUtf8", "skip")
    assert done.returncode == 1 and ids == [1, 10, 12, 20], done.stderr
    assert "1 left out" in done.stderr and "3 operations of the log replayed" in done.stderr
    done, ids = replay([*aside, *chain, insert("shop.people", 20)], "--invalidUtf8", "replace")
    assert done.returncode == 0 and ids == [1, 10, 11, 12, 20], done.stderr
    assert shop.people.find_one({"_id": 11})["name"] == "caf\ufffd"


def test_changes_of_a_document_that_was_left_out_make_none(server, shop, tmp_path):
    """An update made a document of the change alone."""
    folder = dump(tmp_path / "dump", people=([{"_id": 1}, {"_id": 2, "name": "caf#"}], {}))
    latin1_file(folder / "shop" / "people.bson")
    entry = lambda op, o, **more: {"op": op, "ns": "shop.people", "o": o, **more}
    change = lambda _id: entry("u", {"$v": 2, "diff": {"i": {"n": 1}}}, o2={"_id": _id})
    log(
        folder,
        change(1),
        change(2),
        entry("i", {"_id": 3, "name": "caf#"}),
        change(3),
        entry("i", {"_id": 4, "name": "caf#"}),
        entry("u", {"_id": 4, "name": "d"}, o2={"_id": 4}),
        change(4),
    )
    latin1_file(folder / "oplog.bson")
    done = restore(server, "--oplogReplay", "--invalidUtf8", "skip", folder)
    assert done.returncode == 1 and "5 left out" in done.stderr, done.stderr
    assert list(shop.people.find().sort("_id", 1)) == [{"_id": 1, "n": 1}, {"_id": 4, "name": "d", "n": 1}]


@pytest.mark.parametrize("how", ["skip", "replace"])
@pytest.mark.parametrize("where", ["dump", "log", "change", "refused log", "long refused log"])
def test_changes_of_a_bucket_with_text_that_is_not_utf8_are_replayed(server, shop, tmp_path, how, where):
    """What the log added to it was left out: it counts by rows that the bucket does not have which is restored. Where the
    server refused a part of the log, it was lost without being counted."""
    options = {"timeseries": {"timeField": "t", "metaField": "m"}}
    shop.create_collection("x", **options)
    second = lambda n: datetime.datetime(2024, 1, 1, 12) + datetime.timedelta(seconds=n)
    texts = ["a", "b", "caf#", "d"] if where == "change" else ["caf#", "b", "c", "d"]
    shop.x.insert_many([{"_id": n, "t": second(n), "m": "a", "v": texts[n]} for n in range(2)])
    [bucket] = shop["system.buckets.x"].find()
    folder = dump(tmp_path / "dump", x=(None, {"options": options, "indexes": [], "type": "timeseries"}))
    file = folder / "shop" / "system.buckets.x.bson"
    file.write_bytes(b"" if "log" in where else bson.encode(bucket))

    def added(n):
        values = {"_id": n, "t": second(n), "v": texts[n]}
        diff = {"sdata": {f"s{name}": {"i": {str(n): value}} for name, value in values.items()}}
        return {"op": "u", "ns": "shop.system.buckets.x", "o": {"$v": 2, "diff": diff}, "o2": {"_id": bucket["_id"]}}

    made = [{"op": "i", "ns": "shop.system.buckets.x", "o": bucket}] if "log" in where else []
    refused = [{"op": "c", "ns": "shop.$cmd", "o": {"nosuch": "a"}}] if "refused" in where else []
    if where == "long refused log":
        # The server is asked before the log has ended.
        refused += [{"op": "i", "ns": "shop.a", "o": {"_id": n}} for n in range(1000)]
    # The dump may have seen a part of it: again it changes nothing.
    log(folder, *made, added(2), added(3), added(2), added(3), *refused)
    for path in [file, folder / "oplog.bson"]:
        latin1_file(path)
    done = restore(server, "--drop", "--oplogReplay", "--invalidUtf8", how, folder)
    assert done.returncode == (1 if how == "skip" or refused else 0), done.stderr
    assert ("in part only" in done.stderr) == bool(refused), done.stderr
    assert ("1 left out" if how == "skip" else "was replaced in 1") in done.stderr, done.stderr
    subject = "shop.x: " if where == "dump" else "the log: "
    [told] = [line for line in done.stderr.splitlines() if line.startswith(subject)]
    assert "field 'v' of the document with _id" in told, done.stderr
    replaced = ["caf\ufffd" if text == "caf#" else text for text in texts]
    expected = replaced if how == "replace" else [text for text in texts if text != "caf#"]
    assert [found["v"] for found in shop.x.find().sort("t", 1)] == expected
    assert [found["v"] for found in shop.x.find({"v": {"$gte": "b"}}).sort("t", 1)] == [text for text in expected if text >= "b"]
    assert shop.command("validate", "x", full=True)["valid"]
    shop.x.insert_one({"_id": 9, "t": second(9), "m": "a", "v": "e"})
    assert shop.x.count_documents({}) == len(expected) + 1


def test_a_bucket_that_the_log_removes_is_not_made_again(server, shop, tmp_path):
    options = {"timeseries": {"timeField": "t"}}
    shop.create_collection("x", **options)
    shop.x.insert_one({"_id": 1, "t": datetime.datetime(2024, 1, 1), "v": "caf#"})
    [bucket] = shop["system.buckets.x"].find()
    folder = dump(tmp_path / "dump", x=(None, {"options": options, "indexes": [], "type": "timeseries"}))
    file = folder / "shop" / "system.buckets.x.bson"
    file.write_bytes(bson.encode(bucket))
    latin1_file(file)
    of = {"ns": "shop.system.buckets.x"}
    change = {**of, "op": "u", "o": {"$v": 2, "diff": {"scontrol": {"i": {"closed": True}}}}, "o2": {"_id": bucket["_id"]}}
    log(folder, change, {**of, "op": "d", "o": {"_id": bucket["_id"]}})
    done = restore(server, "--drop", "--oplogReplay", "--invalidUtf8", "replace", folder)
    assert done.returncode == 0, done.stderr
    assert shop["system.buckets.x"].count_documents({}) == 0


def test_a_time_series_that_a_log_of_mongodb_drops_stays_gone(server, shop, tmp_path):
    """Its indexes made a plain collection of its name, and buckets that the log had changed before were told as missing."""
    options = {"timeseries": {"timeField": "t"}}
    shop.create_collection("x", **options)
    shop.x.insert_one({"_id": 1, "t": datetime.datetime(2024, 1, 1), "v": "caf#"})
    [bucket] = shop["system.buckets.x"].find()
    index = {"v": 2, "key": {"t": 1}, "name": "t_1"}
    folder = dump(tmp_path / "dump", x=(None, {"options": options, "indexes": [index], "type": "timeseries"}))
    file = folder / "shop" / "system.buckets.x.bson"
    file.write_bytes(bson.encode(bucket))
    latin1_file(file)
    diff = {"scontrol": {"i": {"closed": True}}}
    log(
        folder,
        {"op": "u", "ns": "shop.system.buckets.x", "o": {"$v": 2, "diff": diff}, "o2": {"_id": bucket["_id"]}},
        {"op": "c", "ns": "shop.$cmd", "o": {"drop": "system.buckets.x"}},
        {"op": "d", "ns": "shop.system.views", "o": {"_id": "shop.x"}},
    )
    done = restore(server, "--drop", "--oplogReplay", "--invalidUtf8", "replace", folder)
    assert done.returncode == 0, done.stderr
    assert not {"x", "system.buckets.x"} & set(shop.list_collection_names())


@pytest.mark.parametrize("version", [1, 2])
def test_buckets_with_text_that_is_not_utf8(server, shop, tmp_path, version):
    """U+FFFD sorts elsewhere than a byte: a bucket's extents were no longer its own, and it was refused. Compressed
    columns hide their text."""
    options = {"timeseries": {"timeField": "t", "metaField": "m"}}
    shop.create_collection("x", **options)
    time = datetime.datetime(2024, 1, 1, 12)
    texts = ["caf#", "caf\uac00", "b"]
    shop.x.insert_many([{"_id": n, "t": time + datetime.timedelta(seconds=n), "m": "a", "v": text} for n, text in enumerate(texts)])
    [bucket] = shop["system.buckets.x"].find()
    if version == 2:
        column = lambda rows: bson.Binary(b"".join(bson.encode({"": value})[4:-1] for value in rows.values()) + b"\0", 7)
        bucket["data"] = {name: column(rows) for name, rows in bucket["data"].items()}
        bucket["control"] |= {"version": 2, "count": 3}
    folder = dump(tmp_path / "dump", x=(None, {"options": options, "indexes": [], "type": "timeseries"}))
    (folder / "shop" / "system.buckets.x.bson").write_bytes(bson.encode(bucket).replace(b"caf#", b"caf\xe9"))
    stopped = restore(server, "--drop", folder)
    assert stopped.returncode == 1 and "field 'v' of the document with _id 0" in stopped.stderr, stopped.stderr
    assert shop.x.count_documents({}) == 3
    skipped = restore(server, "--drop", "--invalidUtf8", "skip", folder)
    assert skipped.returncode == 1 and "1 left out" in skipped.stderr, skipped.stderr
    assert [found["v"] for found in shop.x.find().sort("t", 1)] == texts[1:]
    replaced = restore(server, "--drop", "--invalidUtf8", "replace", folder)
    assert replaced.returncode == 0 and "was replaced in 1" in replaced.stderr, replaced.stderr
    assert [found["v"] for found in shop.x.find().sort("t", 1)] == ["caf\ufffd", *texts[1:]]
    assert [found["_id"] for found in shop.x.find({"v": {"$gt": "caf\uac01"}})] == [0]
    assert shop.command("validate", "x", full=True)["valid"]


def test_the_documents_of_a_file_are_shown_whatever_their_text(tmp_path):
    path = tmp_path / "a.bson"
    path.write_bytes(b"".join(map(bson.encode, [{"_id": 1}, {"_id": 2, "name": "caf#"}, {"_id": 3}])))
    latin1_file(path)
    shown = tenon("bson", path)
    assert shown.returncode == 0 and "the first time: field 'name' of the document with _id 2" in shown.stderr
    shown = [bson.json_util.loads(line) for line in shown.stdout.splitlines()]
    assert shown == [{"_id": 1}, {"_id": 2, "name": "caf\ufffd"}, {"_id": 3}]


def archived(database, collection, documents, metadata="{}"):
    """An archive of one collection."""
    crc = 0xFFFFFFFFFFFFFFFF
    for byte in documents:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xC96C5795D7870F42 if crc & 1 else 0)
    crc ^= 0xFFFFFFFFFFFFFFFF
    checksum = Int64(crc - (1 << 64) if crc >> 63 else crc)
    end = b"\xff\xff\xff\xff"
    of = {"db": database, "collection": collection}
    return b"".join([
        bytes.fromhex("6de29981"),
        bson.encode({"concurrent_collections": 1, "version": "0.1", "server_version": "8.0.0", "tool_version": "x"}),
        bson.encode({**of, "metadata": metadata, "size": 0, "type": "collection"}),
        end,
        bson.encode({**of, "EOF": False, "CRC": Int64(0)}),
        documents,
        end,
        bson.encode({**of, "EOF": True, "CRC": checksum}),
        end,
    ])
