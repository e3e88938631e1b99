"""`tenond --repair` of damaged files: what is kept, and who serves it afterwards."""

import os
import shutil
import subprocess

import pytest
from members import ReplicaSet
from pymongo import WriteConcern
from server import ENGINES, Server, binary

pytestmark = pytest.mark.skipif("btree" not in ENGINES, reason="the engine with a salvage is not built in")
DOCUMENTS = 4000


def repair(server, *options):
    command = [binary(), "--dbpath", str(server.data), "--repair", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def refused(server):
    with pytest.raises(RuntimeError) as error:
        server.start()
    server.process.stdout.close()
    server.process = None
    return str(error.value)


def repaired_with_losses(server, original):
    """Damages the data at one place after the other until a repair has to write the collection anew."""
    for part in range(1, 16):
        shutil.rmtree(server.data)
        shutil.copytree(original, server.data)
        blocks = server.data / "btree" / "main.blocks"
        content = bytearray(blocks.read_bytes())
        used = len(content.rstrip(b"\0"))
        at = 8192 + (used - 8192) * part // 16
        content[at : at + 40] = os.urandom(40)
        blocks.write_bytes(content)
        done = repair(server)
        assert done.returncode == 0, done
        if "shop.a: " in done.stdout and "documents kept" in done.stdout:
            return done
    raise AssertionError("no damage took a document")


def test_a_member_that_lost_documents_is_a_member_no_more(tmp_path):
    """The repair failed, and the member voted and led without documents that a majority had acknowledged."""
    with ReplicaSet(tmp_path, ["btree"] * 3) as rs:
        rs.initiate()
        collection = rs.client().shop.get_collection("a", write_concern=WriteConcern(w=3, j=True))
        collection.insert_many([{"_id": n, "x": n, "pad": os.urandom(300)} for n in range(DOCUMENTS)])
        collection.create_index("x")
        hit = rs.secondaries[0]
        hit.direct.admin.command("fsync")
        assert hit.stop() == 0
        original = tmp_path / "original"
        shutil.copytree(hit.data, original)
        done = repaired_with_losses(hit, original)
        told = "let the member copy the others' data into an empty directory"
        assert told in done.stdout, done.stdout
        assert told in refused(hit)
        # A second repair finds nothing, and lets it no more than the first.
        again = repair(hit)
        assert again.returncode == 0 and told in again.stdout, again
        assert told in refused(hit)
        alone = Server(tmp_path / "alone", "btree")
        alone.data.rmdir()
        shutil.copytree(hit.data, alone.data)
        with alone:
            shop = alone.client(directConnection=True).shop
            assert shop.validate_collection("a", full=True)["valid"]
            assert 0 < shop.a.count_documents({}) < DOCUMENTS
            assert set(shop.a.index_information()) == {"_id_", "x_1"}
        hit.wipe()
        hit.start()
        rs.wait_healthy(120)
        assert hit.direct.shop.a.count_documents({}) == DOCUMENTS


@pytest.mark.parametrize("engine", [engine for engine in ("betree", "mmapv1") if engine in ENGINES])
def test_a_directory_without_its_metadata_is_not_an_empty_one(tmp_path, engine):
    """It was given the default engine for good, and without a journal served with nothing in it."""
    server = Server(tmp_path, engine, ["--nojournal"])
    with server:
        server.client().shop.a.insert_many([{"_id": n} for n in range(DOCUMENTS)])
    (server.data / "storage.bson").unlink()
    for named in (None, "btree", engine):
        server.engine = named
        told = refused(server)
        assert "storage.bson is missing" in told and f"--repair --storageEngine {engine}" in told, told
        assert not (server.data / "btree").exists() and not (server.data / "storage.bson").exists()
    done = repair(server)
    assert done.returncode == 1 and f"--storageEngine {engine}" in done.stderr, done
    done = repair(server, "--storageEngine", engine)
    assert done.returncode == 0, done
    server.engine = None
    with server:
        assert server.client().shop.a.count_documents({}) == DOCUMENTS


@pytest.mark.parametrize("engine", [engine for engine in ("btree", "betree", "mmapv1") if engine in ENGINES])
def test_an_engine_whose_files_are_gone_is_told(tmp_path, engine):
    """As of a volume that is not mounted: a start without a journal served an empty database."""
    server = Server(tmp_path, engine)
    with server:
        server.client().shop.a.insert_many([{"_id": n} for n in range(DOCUMENTS)])
    folder = server.data / engine
    shutil.rmtree(folder)
    folder.mkdir()
    for options in ([], ["--nojournal"]):
        server.options = options
        told = refused(server)
        assert f"the files of the storage engine {engine} are missing" in told, told
        assert not list(folder.iterdir())
    # The log still begins with the first entry.
    server.options = []
    done = repair(server)
    assert done.returncode == 0 and "made anew from the log" in done.stdout, done
    with server:
        assert server.client().shop.a.count_documents({}) == DOCUMENTS
