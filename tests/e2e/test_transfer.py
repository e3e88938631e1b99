"""`tenon export` and `tenon import` with a real server: what comes back, what is refused and how it is counted."""

import json
import os
import re
import signal
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest
from bson import (
    Binary,
    Code,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
)
from members import wait
from server import Server, binary

TENON = Path(os.environ.get("TENON", Path(binary()).with_name("tenon")))
EVERY_TYPE = {
    "_id": ObjectId("5f1d7f3a9b1e8a0001c0ffee"),
    "double": 1.5,
    "whole": 2.0,
    "infinite": float("-inf"),
    "string": 'a"\\\n\t\u0001é😀,',
    "document": {"a.b": 1, "": None},
    "array": ["x", [], {}],
    "binary": Binary(b"\x00\xff", 0),
    "uuid": Binary(bytes(range(16)), 4),
    "boolean": True,
    "date": datetime(2020, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc),
    "old": datetime(1, 1, 1, tzinfo=timezone.utc),
    "null": None,
    "regex": Regex("^a/b", "im"),
    "reference": DBRef("c", 1),
    "code": Code("f()"),
    "scoped": Code("g()", {"n": 1}),
    "int": -(2**31),
    "timestamp": Timestamp(2**32 - 1, 7),
    "long": Int64(7),
    "large": Int64(2**62),
    "decimal": Decimal128("1.20E+10"),
    "min": MinKey(),
    "max": MaxKey(),
}


class Tool:
    """Calls on one database."""

    def __init__(self, server, db):
        self.place = ["--uri", f"mongodb://127.0.0.1:{server.port}/{db.name}"]
        self.db = db

    def call(self, command, collection, *arguments, text=None):
        line = [str(TENON), command, *self.place, "--collection", collection, *map(str, arguments)]
        data = text.encode() if isinstance(text, str) else text
        return subprocess.run(line, input=data or b"", capture_output=True, timeout=120)

    def exported(self, collection, *arguments):
        done = self.call("export", collection, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def imported(self, collection, text, *arguments, code=0):
        done = self.call("import", collection, *arguments, text=text)
        assert done.returncode == code, done.stderr
        return done.stderr.decode()


@pytest.fixture
def tool(server, db):
    return Tool(server, db)


def raw(db, collection):
    from bson.raw_bson import RawBSONDocument

    options = db.codec_options.with_options(document_class=RawBSONDocument)
    return sorted(document.raw for document in db.get_collection(collection, codec_options=options).find())


@pytest.mark.parametrize("options", [[], ["--pretty"], ["--jsonArray"], ["--jsonArray", "--pretty"]])
def test_every_type_comes_back(tool, tmp_path, options):
    tool.db.a.insert_one(EVERY_TYPE)
    tool.db.a.insert_many({"_id": number, "text": "x" * number} for number in range(2500))
    file = tmp_path / "a.json"
    done = tool.call("export", "a", "--jsonFormat", "canonical", "--out", file, *options)
    assert done.returncode == 0 and b"2501 documents exported" in done.stderr
    array = ["--jsonArray"] if "--jsonArray" in options else []
    done = tool.call("import", "b", "-j", 4, *array, file)
    assert done.returncode == 0 and b"2501 documents imported, 0 failed" in done.stderr, done.stderr
    assert raw(tool.db, "a") == raw(tool.db, "b")
    if array:
        assert len(json.loads(file.read_text())) == 2501


def test_relaxed_is_the_default_and_plain(tool):
    tool.db.a.insert_one({"_id": 1, "n": Int64(5), "d": EVERY_TYPE["date"]})
    assert tool.exported("a") == '{"_id":1,"n":5,"d":{"$date":"2020-01-02T03:04:05.678Z"}}\n'


def test_which_documents_and_fields(tool, tmp_path):
    tool.db.a.insert_many({"_id": number, "even": number % 2 == 0, "text": "t"} for number in range(10))
    found = tool.exported("a", "-q", '{"even": true}', "--sort", '{"_id": -1}', "--skip", 1, "--limit", 2, "-f", "even")
    assert [json.loads(line) for line in found.splitlines()] == [{"_id": 6, "even": True}, {"_id": 4, "even": True}]
    (tmp_path / "query").write_text('{"_id": {"$lt": 1}}')
    (tmp_path / "fields").write_text("_id\ntext\n")
    assert (
        tool.exported("a", "--queryFile", tmp_path / "query", "--fieldFile", tmp_path / "fields", "--type", "tsv")
        == "_id\ttext\n0\tt\n"
    )
    assert len(tool.exported("a", "--forceTableScan").splitlines()) == 10
    assert tool.exported("none") == ""
    assert tool.call("export", "none", "--assertExists").returncode == 1


def test_csv_there_and_back(tool):
    documents = [
        {"_id": 1, "name": 'a "b", c\nd', "at": {"x": 1.0, "y": [10, Int64(2**40)]}, "on": True},
        {"_id": 2, "name": " ", "at": {"x": -0.5, "y": [20, 30]}, "on": False},
    ]
    tool.db.a.insert_many(documents)
    fields = "_id,name,at.x,at.y.0,at.y.1,on"
    text = tool.exported("a", "--type", "csv", "--fields", fields, "--sort", '{"_id": 1}')
    assert text.splitlines()[0] == fields
    typed = "_id.int32(),name.string(),at.x.double(),at.y.0.auto(),at.y.1.int64(),on.boolean()"
    body = text.split("\n", 1)[1]
    tool.imported("b", body, "--type", "csv", "--fields", typed, "--columnsHaveTypes", "--useArrayIndexFields")
    assert list(tool.db.b.find(sort=[("_id", 1)])) == documents
    tool.imported("c", text, "--type", "csv", "--headerline")
    assert tool.db.c.find_one({"_id": 2})["on"] == "false"
    assert tool.exported("a", "--type", "csv", "--fields", "_id", "--noHeaderLine") == "1\n2\n"


def test_csv_texts_of_types(tool):
    tool.db.a.insert_one(EVERY_TYPE)
    text = tool.exported(
        "a", "--type", "csv", "--noHeaderLine", "--fields", "_id,date,null,missing,whole,decimal,array,max"
    )
    assert text == (
        'ObjectId(5f1d7f3a9b1e8a0001c0ffee),2020-01-02T03:04:05.678Z,,,2.0,1.20E+10,"[""x"",[],{}]","{""$maxKey"":1}"\n'
    )
    done = tool.call("export", "a", "--type", "tsv", "--fields", "string")
    assert done.returncode == 1 and b"document 1" in done.stderr


def test_refused_documents_are_told_by_line_and_counted(tool):
    text = '{"_id":1}\n{"_id":2}\n\n{"_id":1}\n{"_id":{"$oid":"x"}}\n{"_id":3}\n'
    told = tool.imported("a", text, code=1)
    assert "line 4: " in told and "(code 11000)" in told and "line 5: $oid" in told
    assert "3 documents imported, 2 failed" in told
    assert sorted(document["_id"] for document in tool.db.a.find()) == [1, 2, 3]
    told = tool.imported("a", text, "--drop", "--stopOnError", code=1)
    assert "2 documents imported, " in told and "ended at line" in told
    assert sorted(document["_id"] for document in tool.db.a.find()) == [1, 2]
    told = tool.imported("b", '{"_id":1}\n{"_id":1}\n{"_id":2}', "--maintainInsertionOrder", code=1)
    assert "1 documents imported, 1 failed" in told and tool.db.b.count_documents({}) == 1


def test_nothing_behind_broken_text_is_imported(tool):
    """A quote that is missing turns texts and names around, so that what stands behind it may look right."""
    good = "".join(f'{{"_id":{number}}}\n' for number in range(5000))
    text = good + '{"a": "b}\n{"c": "d"}\n' + '{"_id":"behind"}\n' * 3000
    told = tool.imported("a", text, "-j", 4, code=1)
    assert "line 5001" in told and "5000 documents imported" in told
    assert tool.db.a.count_documents({}) == 5000
    told = tool.imported("b", b'{"_id":1}\n{"_id":2,"a":"\xff"}\n{"_id":3}\n', code=1)
    assert "line 2: no UTF-8" in told and tool.db.b.count_documents({}) == 2
    told = tool.imported("c", "1\n2\n\"3\n", "--type", "csv", "--fields", "_id", code=1)
    assert "line 3: a quoted value does not end" in told and tool.db.c.count_documents({}) == 2


def test_modes(tool):
    tool.db.a.insert_many([{"_id": 1, "k": {"n": 1}, "old": 1}, {"_id": 2, "k": {"n": 2}, "old": 2}])
    new = '{"k":{"n":1},"new":1}\n{"k":{"n":3},"new":3}\n{"new":4}\n'
    assert "3 documents imported, 0 failed" in tool.imported("a", new, "--mode", "upsert", "--upsertFields", "k.n")
    found = list(tool.db.a.find({}, {"_id": 0}).sort("new", 1))
    assert found == [{"k": {"n": 2}, "old": 2}, {"k": {"n": 1}, "new": 1}, {"k": {"n": 3}, "new": 3}, {"new": 4}]
    tool.imported("a", '{"_id":2,"merged":true}\n{"_id":9,"merged":true}\n', "--mode", "merge")
    assert tool.db.a.find_one({"_id": 2}) == {"_id": 2, "k": {"n": 2}, "old": 2, "merged": True}
    assert tool.db.a.find_one({"_id": 9}) == {"_id": 9, "merged": True}
    told = tool.imported("a", '{"_id":2,"a.b":1}\n{"_id":2,"$x":1}\n', "--mode", "merge", code=1)
    assert "0 documents imported, 2 failed" in told
    before = tool.db.a.count_documents({})
    told = tool.imported("a", '{"_id":9}\n{"_id":77}\n{"x":1}\n', "--mode", "delete", code=1)
    assert "1 documents removed, 1 failed, 1 not there" in told
    assert tool.db.a.count_documents({}) == before - 1
    tool.imported("a", '{"_id":2,"$x":1}\n{"$set":{"a":1}}\n', "--mode", "upsert", code=1)
    assert "a" not in tool.db.a.find_one({"_id": 2})


@pytest.mark.parametrize("mode", ["upsert", "merge"])
def test_documents_without_their_key_are_new_ones(tool, mode):
    """Those with an `_id` were refused."""
    tool.db.a.insert_one({"_id": 2, "email": "a"})
    told = tool.imported("a", '{"_id":1,"name":"x"}\n{"_id":2,"name":"y"}\n', "--mode", mode, "--upsertFields", "email", code=1)
    assert "1 documents imported, 1 failed" in told and "line 2: E11000" in told, told
    assert list(tool.db.a.find().sort("_id", 1)) == [{"_id": 1, "name": "x"}, {"_id": 2, "email": "a"}]


def test_an_array_has_to_begin(tool):
    """A pipe with nothing in it counted as an array of nothing."""
    told = tool.imported("a", "", "--jsonArray", code=1)
    assert "line 1: expected '['" in told, told
    assert "0 documents imported, 0 failed" in tool.imported("a", "[]", "--jsonArray")


def test_of_documents_with_one_key_the_last_wins(tool):
    text = "".join(f'{{"k":{number % 7},"n":{number}}}\n' for number in range(3000))
    assert "3000 documents imported" in tool.imported("a", text, "--mode", "upsert", "--upsertFields", "k")
    found = {document["k"]: document["n"] for document in tool.db.a.find()}
    assert found == {number % 7: number for number in range(2993, 3000)}
    assert tool.db.a.count_documents({}) == 7


def test_grace(tool):
    text = "1,x\n2,2\n"
    typed = ["--type", "csv", "--columnsHaveTypes", "--fields", "_id.int32(),n.int32()"]
    told = tool.imported("a", text, *typed, code=1)
    assert "line 1: column n" in told and tool.db.a.count_documents({}) == 0
    for grace, found in [
        ("skipField", [{"_id": 1}, {"_id": 2, "n": 2}]),
        ("skipRow", [{"_id": 2, "n": 2}]),
        ("autoCast", [{"_id": 1, "n": "x"}, {"_id": 2, "n": 2}]),
    ]:
        tool.imported("a", text, "--drop", *typed, "--parseGrace", grace)
        assert list(tool.db.a.find().sort("_id", 1)) == found, grace
    tool.imported("a", "7,\n", "--type", "csv", "--fields", "_id,n", "--ignoreBlanks")
    assert tool.db.a.find_one({"_id": 7}) == {"_id": 7}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--headerline"],
        ["--ignoreBlanks"],
        ["--upsertFields", "a"],
        ["--mode", "upsert", "-j", "2"],
        ["--maintainInsertionOrder", "-j", "2"],
        ["--type", "csv"],
        ["--type", "csv", "--jsonArray", "--fields", "a"],
        ["--type", "csv", "--fields", "a,a.b"],
        ["--type", "csv", "--fields", "a.int32()", "--parseGrace", "stop"],
        ["--writeConcern", "0"],
        ["--legacy"],
    ],
)
def test_options_that_do_not_go_together(tool, arguments):
    done = tool.call("import", "a", *arguments, text='{"_id":1}')
    assert done.returncode != 0 and done.stderr
    assert tool.db.a.count_documents({}) == 0


@pytest.mark.parametrize("workers", [1, 4])
def test_what_is_told_after_ctrl_c_is_what_is_there(tool, workers):
    line = [str(TENON), "import", *tool.place, "--collection", "a", "-j", str(workers)]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(b"".join(b'{"_id":%d}\n' % number for number in range(20_500)))
    process.stdin.flush()
    while tool.db.a.estimated_document_count() < 5000:
        pass
    # The pipe stays open, and nothing more comes.
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 1
    told = process.stderr.read().decode()
    process.stdin.close()
    assert f"{tool.db.a.count_documents({})} documents imported, 0 failed" in told and "stopped" in told, told


def test_ctrl_c_ends_an_import_that_the_server_holds(tool, tmp_path):
    """It waited for the server, however often it was asked."""
    admin, text = tool.db.client.admin, tmp_path / "text.json"
    text.write_text("".join(f'{{"_id":{number}}}\n' for number in range(50_000)))
    held = lambda: [each for each in admin.command("currentOp")["inprog"] if each.get("command", {}).get("insert") == "held"]
    admin.command("fsync", lock=True)
    try:
        line = [str(TENON), "import", *tool.place, "--collection", "held", str(text)]
        process = subprocess.Popen(line, stderr=subprocess.PIPE)
        wait(held, "an insert that waits")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1
        assert b"stopped" in process.stderr.read()
    finally:
        admin.command("fsyncUnlock")


def test_a_server_that_ends_in_the_middle_is_told(tmp_path):
    """What is told to be imported is there after the server's end, what is not known is told, and nothing is there twice."""
    own = Server(tmp_path)
    with own:
        line = [str(TENON), "import", "--uri", f"mongodb://127.0.0.1:{own.port}/d", "-c", "a"]
        process = subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        batches = [b"".join(b'{"n":%d}\n' % (first + n) for n in range(2000)) for first in range(0, 100_000, 2000)]
        process.stdin.write(batches[0])
        process.stdin.flush()
        client = own.client()
        while client.d.a.count_documents({}) < 1000:
            pass
        own.kill()
        try:
            process.stdin.write(b"".join(batches[1:]))
            process.stdin.close()
        except BrokenPipeError:
            pass
        told = process.stderr.read().decode()
        assert process.wait(60) == 1
        assert "may be imported or not" in told or "connecting" in told, told
    imported = int(re.search(r"^(\d+) documents imported", told, re.MULTILINE).group(1))
    own.start()
    try:
        numbers = [document["n"] for document in own.client().d.a.find()]
        assert imported <= len(numbers) == len(set(numbers)), told
    finally:
        own.stop()
