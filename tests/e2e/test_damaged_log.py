"""A log with damage: what the start does not need is stepped over, what it needs is refused, and repaired by hand."""

import json
import random
import re
import shutil
import subprocess

import pytest
from members import ReplicaSet, wait
from bson import Timestamp
from pymongo import WriteConcern
from pymongo.errors import OperationFailure
from server import ENGINES, Server, binary
from test_inspect import durable, is_built_in, tenon

SETS = {"alone": [], "set": ["--replSet", "rs0", "--replSetInitiate"]}


def repair(server):
    return subprocess.run([binary(), "--dbpath", str(server.data), "--repair"], capture_output=True, text=True, timeout=300)


def refused(server):
    with pytest.raises(RuntimeError) as error:
        server.start()
    server.process.stdout.close()
    server.process = None
    return str(error.value)


def place_of(data, number):
    """The frame in which a document of `shop.a` was inserted: file and offset."""
    lines = [json.loads(line) for line in tenon("log", "--json", data).stdout.splitlines()]
    entries = [line for line in lines if "seq" in line]
    inserts = lambda entry: any(operation.get("document", {}).get("_id") == number for operation in entry["operations"])
    [hit] = [entry for entry in entries if inserts(entry)]
    return hit["file"], hit["offset"]


def flip(path, place):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0xFF]))


def damage(data, number, at=70):
    """Damages the frame in which a document of `shop.a` was inserted, in its payload or elsewhere; answers where it is."""
    path, offset = place_of(data, number)
    flip(path, offset + at)
    return path, offset


def states_of(data):
    """Where the first segment has hard states (docs/formats/log.md)."""
    segment = (data / "journal" / "0000000000000001.log").read_bytes()
    states, offset = [], 4096
    while stored := int.from_bytes(segment[offset + 8 : offset + 12], "little"):
        if segment[offset + 21] == 1:
            states.append(offset)
        offset += (48 + stored + 7) // 8 * 8
    return states


@pytest.fixture(params=[(engine, kind) for engine in ENGINES for kind in SETS if is_built_in(engine)], ids="-".join)
def killed(request, tmp_path):
    """A killed server: 100 documents before its last checkpoint, 100 behind it, each in a frame of its own."""
    engine, kind = request.param
    server = Server(tmp_path, engine, options=SETS[kind])
    with server:
        client = server.client(directConnection=True)
        for number in range(200):
            durable(client.shop.a).insert_one({"_id": number, "text": "x" * 100})
            if number == 99:
                client.admin.command("fsync")
        server.kill()
        yield server


def numbers(server):
    collection = server.client(directConnection=True).shop.a
    found = sorted(each["_id"] for each in collection.find())
    assert collection.estimated_document_count() == len(found)
    return found


def test_what_the_start_does_not_need_is_stepped_over(killed):
    file, offset = damage(killed.data, 50)
    killed.start()
    assert numbers(killed) == list(range(200))
    [warned] = [line for line in map(json.loads, killed.log.read_text().splitlines()) if line["id"] == 8410016]
    assert warned["attr"]["damage"].startswith(f"{file}: at offset {offset}: ")
    client = killed.client(directConnection=True)
    durable(client.shop.a).insert_one({"_id": 200})
    if "--replSet" in killed.options:
        # History begins behind the damage.
        inserts = list(client.local["oplog.rs"].find({"op": "i", "ns": "shop.a"}))
        assert [each["o"]["_id"] for each in inserts] == list(range(51, 201))
        with client.shop.a.watch(start_at_operation_time=inserts[20]["ts"]) as stream:
            assert stream.next()["documentKey"] == {"_id": 71}
        with pytest.raises(OperationFailure) as error:
            client.shop.a.watch(start_at_operation_time=Timestamp(inserts[0]["ts"].time - 1000, 1))
        assert error.value.code == 286
    killed.kill()
    killed.start()
    assert numbers(killed) == list(range(201))


def test_what_the_start_needs_is_refused_and_repair_keeps_what_is_before_it(killed, tmp_path):
    file, offset = damage(killed.data, 150)
    untouched = tmp_path / "untouched"
    shutil.copytree(killed.data / "journal", untouched)
    said = refused(killed)
    assert f"{file}: at offset {offset}: " in said and "--repair" in said, said
    done = repair(killed)
    assert done.returncode == 0, done
    assert f"the log cannot be read to its end: {file}: at offset {offset}: " in done.stdout, done.stdout
    lost = int(re.search(r"^(\d+) entries of the log stand behind what is damaged", done.stdout, re.M).group(1))
    assert lost >= 49, done.stdout
    aside = killed.data / "journal.damaged"
    assert f"the log was put aside: {aside}" in done.stdout
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == {path.name: path.read_bytes() for path in untouched.iterdir()}
    killed.start()
    assert numbers(killed) == list(range(150))
    durable(killed.client(directConnection=True).shop.a).insert_one({"_id": 200})
    killed.kill()
    killed.start()
    assert numbers(killed) == [*range(150), 200]


def test_a_missing_segment_is_no_end(killed):
    """The log's only segment goes: what was only there is lost, and told."""
    for path in (killed.data / "journal").glob("*.log"):
        path.unlink()
    assert "--repair" in refused(killed)
    done = repair(killed)
    assert done.returncode == 0 and "writes that are only there are lost" in done.stdout, done
    killed.start()
    assert numbers(killed) == list(range(100))


@pytest.mark.parametrize("kind", SETS)
def test_a_last_segment_that_is_gone_is_missed(tmp_path, kind):
    """The log ended where the one before it does: what had been acknowledged in it was given up without a word."""
    server = Server(tmp_path, options=[*SETS[kind], "--syncdelay", "3600"])
    segments = lambda: sorted((server.data / "journal").glob("*.log"))
    with server:
        collection, inserted = durable(server.client(directConnection=True).shop.a), []
        while len(segments()) < 2:
            assert len(inserted) < 100
            inserted.append(len(inserted))
            collection.insert_one({"_id": inserted[-1], "text": random.randbytes(1 << 20)})
        server.kill()
        last = segments()[-1]
        last.unlink()
        said = refused(server)
        assert "log segment 2 is missing" in said and "--repair" in said, said
        checked = tenon("verify", server.data)
        assert checked.returncode != 0 and "log segment 2 is missing" in checked.stdout + checked.stderr, checked
        done = repair(server)
        assert done.returncode == 0 and "writes that are only there are lost" in done.stdout, done
        server.start()
        assert numbers(server) == inserted[:-1]


@pytest.mark.parametrize("is_at_work", [False, True], ids=["before", "later"])
def test_a_member_behind_the_damage_copies_all_data(tmp_path, is_at_work):
    with ReplicaSet(tmp_path, 3) as rs:
        first, behind, _ = rs.members
        rs.initiate(rs.config(m1={"priority": 0}, m2={"priority": 0}))
        insert = lambda number: durable(rs.client().shop.a).insert_one({"_id": number, "text": "x" * 100})
        insert(0)
        rs.wait_applied()
        instance = rs.consensus()[behind.number]["instance"]
        behind.kill()
        for number in range(1, 20):
            insert(number)
        first.direct.admin.command("fsync")
        insert(20)
        first.kill()
        path, offset = place_of(first.data, 10)
        if not is_at_work:
            flip(path, offset + 70)
        first.start()
        wait(lambda: first.state() == "PRIMARY", "the damaged one to lead")
        if is_at_work:
            # It ended when it was asked for what stands there.
            flip(path, offset + 70)
        behind.start()
        wait(lambda: (known := rs.consensus().get(behind.number)) and known["instance"] != instance and known["votes"], "a new instance", 120)
        rs.wait_healthy()
        rs.check_equal(validate=False)
        lines = map(json.loads, first.log.read_text().splitlines())
        assert [line["id"] for line in lines if line["id"] in (8410016, 8410049)] == [8410049 if is_at_work else 8410016]


def test_repair_of_a_member_keeps_what_is_before_the_damage(tmp_path):
    """Though it knows of hardly anything in its log that it stays."""
    with ReplicaSet(tmp_path, 3) as rs:
        rs.initiate()
        collection = rs.client().shop.get_collection("a", write_concern=WriteConcern(w=3, j=True))
        for number in range(30):
            collection.insert_one({"_id": number, "text": "x" * 100})
            if number == 9:
                for each in rs.members:
                    each.direct.admin.command("fsync")
        hit = rs[1]
        hit.kill()
        damage(hit.data, 20)
        assert "--repair" in refused(hit)
        done = repair(hit)
        told = "a member of a replica set would vote without what it has acknowledged"
        assert done.returncode == 0 and told in done.stdout, done
        assert told in refused(hit)
        alone = Server(tmp_path / "alone", hit.engine)
        alone.data.rmdir()
        shutil.move(hit.data, alone.data)
        with alone:
            assert numbers(alone) == list(range(20))


def test_a_member_that_may_have_lost_its_vote_does_not_start(tmp_path):
    with ReplicaSet(tmp_path, 3) as rs:
        rs.initiate()
        collection = rs.client().shop.get_collection("a", write_concern=WriteConcern(w=3, j=True))
        for number in range(10):
            collection.insert_one({"_id": number, "text": "x" * 100})
        hit = rs.secondaries[0]
        hit.direct.admin.command("fsync")
        collection.insert_one({"_id": 10})
        hit.kill()
        states = states_of(hit.data)
        path, offset = damage(hit.data, 5, at=9)
        # The vote is written again now and then: what was, is hit as well.
        with open(path, "r+b") as file:
            for state in [state for state in states if state > offset]:
                file.seek(state + 9)
                file.write(b"\xff")
        assert "may have held what this member of a replica set has voted for" in refused(hit)
