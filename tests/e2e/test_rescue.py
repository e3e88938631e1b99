"""`tenon rescue`: directories that MongoDB 4.0 wrote, into a running server and into a dump."""

import hashlib
import json
import os
import subprocess
import tarfile
from pathlib import Path

import bson
import pytest
from bson import raw_bson
from bson.codec_options import CodecOptions
from server import binary

FIXTURES = Path(__file__).parent.parent / "fixtures" / "mmapv1"
MANY = "many-" + "x" * 40
RAW = CodecOptions(document_class=raw_bson.RawBSONDocument)


def tenon(*arguments):
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=200)


def unpack(name, folder):
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


@pytest.fixture(scope="module")
def many(new_folder):
    return unpack("many", new_folder("mmapv1"))


@pytest.fixture(scope="module")
def powerloss(new_folder):
    return unpack("powerloss", new_folder("mmapv1"))


def state(directory):
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files}


def contents(client, database):
    found = {}
    for name in client[database].list_collection_names():
        documents = [document.raw for document in client[database].get_collection(name, codec_options=RAW).find()]
        found[name] = hashlib.sha256(b"".join(documents)).hexdigest()[:32]
        assert list(client[database][name].index_information()) == ["_id_"]
    return found


def test_into_a_running_server(many, server, client):
    before = state(many)
    rescued = tenon("rescue", "--mmapv1", many, "--uri", server.uri())
    assert rescued.returncode == 0, rescued.stdout + rescued.stderr
    assert rescued.stdout.endswith("; nothing is damaged\n")
    assert contents(client, MANY) == json.loads((FIXTURES / "many.json").read_text())
    assert state(many) == before
    client.drop_database(MANY)


def test_a_name_that_is_taken_does_not_end_the_rescue(many, server, client):
    """Documents do not go into a view, and nothing behind it was rescued."""
    expected = json.loads((FIXTURES / "many.json").read_text())
    taken = min(expected)
    client[MANY].create_collection(taken, viewOn="other")
    rescued = tenon("rescue", "--mmapv1", many, "--uri", server.uri())
    assert rescued.returncode == 1 and f"{MANY}.{taken}: " in rescued.stdout, rescued.stdout + rescued.stderr
    client[MANY].drop_collection(taken)
    del expected[taken]
    assert contents(client, MANY) == expected
    client.drop_database(MANY)


def test_into_a_dump_that_is_restored(many, server, client, tmp_path):
    out = tmp_path / "out"
    rescued = tenon("rescue", "--mmapv1", many, "--out", out, "--gzip", "--quiet")
    assert (rescued.returncode, rescued.stdout) == (0, ""), rescued.stderr
    assert tenon("rescue", "--mmapv1", many, "--out", out).returncode == 2
    restored = tenon("restore", "--gzip", "--uri", server.uri(), out)
    assert restored.returncode == 0, restored.stderr
    assert contents(client, MANY) == json.loads((FIXTURES / "many.json").read_text())
    client.drop_database(MANY)


def test_the_journal_after_a_power_loss(powerloss, server, client):
    before = state(powerloss)
    rescued = tenon("rescue", "--mmapv1", powerloss, "--uri", server.uri(), "--json")
    lines = [json.loads(line) for line in rescued.stdout.splitlines()]
    # The files of another database were taken away, which the journal changes, too.
    damages = [line["reason"] for line in lines if line.get("severity") == "damage"]
    assert rescued.returncode == 1
    assert damages and all("the journal changes shop." in reason for reason in damages), damages
    late = {line["collection"]: line["documents"] for line in lines if line.get("collection", "").startswith("late.")}
    assert len(late) >= 4 and all(documents > 0 for documents in late.values()), late
    for name, documents in late.items():
        assert client.late[name.partition(".")[2]].count_documents({}) == documents
    assert state(powerloss) == before
    client.drop_database("late")


def test_without_a_catalog(many, server, client, tmp_path):
    damaged = unpack("many", tmp_path)
    (damaged / f"{MANY}.ns").unlink()
    checked = tenon("rescue", "--mmapv1", damaged, "--check")
    assert checked.returncode == 1
    assert "the catalog is missing" in checked.stdout
    rescued = tenon("rescue", "--mmapv1", damaged, "--uri", server.uri(), "--quiet")
    assert rescued.returncode == 1, rescued.stderr
    expected = json.loads((FIXTURES / "many.json").read_text())
    # An extent keeps the name of the collection that it was made for.
    expected["renamed"] = expected.pop("renamed.to")
    found = contents(client, MANY)
    assert {name: found.get(name) for name in expected} == expected
    client.drop_database(MANY)


def test_what_is_refused(many, tmp_path):
    (tmp_path / "empty").mkdir()
    empty = tenon("rescue", "--mmapv1", tmp_path / "empty", "--check")
    assert empty.returncode == 2
    assert "has no files of MMAPv1" in empty.stderr
    other = unpack("many", tmp_path)
    # A process that has files of the directory open.
    (other / "mongod.lock").write_text(f"{os.getpid()}\n")
    with open(other / "admin.0", "rb"):
        running = tenon("rescue", "--mmapv1", other, "--check")
    assert running.returncode == 2
    assert "stop that server first" in running.stderr


def test_text_that_is_not_utf8(tmp_path):
    """What an old program wrote as Latin-1 is no reason to lose a document."""
    old = unpack("many", tmp_path)

    def rescue(name, *options):
        done = tenon("rescue", "--mmapv1", old, "--out", tmp_path / name, "--json", *options)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        documents = [
            document.raw
            for path in sorted((tmp_path / name / MANY).glob("*.bson"))
            for document in bson.decode_all(path.read_bytes(), RAW)
        ]
        return done.returncode, lines, documents

    _, _, documents = rescue("before")
    files = {path: path.read_bytes() for path in old.glob(f"{MANY}.[0-9]*")}
    path, document = next(
        (path, document) for document in documents for path, data in files.items() if data.count(document) == 1
    )
    path.write_bytes(files[path].replace(document, document.replace(b"_id", b"_\xe9d")))
    code, lines, replaced = rescue("replaced")
    assert (code, lines[-1]["replaced"], lines[-1]["damaged"]) == (1, 1, 0)
    told = [line["reason"] for line in lines if "reason" in line]
    assert told == ["U+FFFD stands for what cannot be stored in field '_\ufffdd' of the document without _id: not valid UTF-8"]
    assert len(replaced) == len(documents) and sum("_\ufffdE9d".encode() in found for found in replaced) == 1
    code, lines, left = rescue("skipped", "--invalidUtf8", "skip")
    assert (code, lines[-1]["replaced"], lines[-1]["damaged"]) == (1, 0, 1)
    assert len(left) == len(documents) - 1
