"""Tools and replica sets: whom they read from, and whom they write to."""

import os
import subprocess

import pytest
from members import ReplicaSet
from pymongo import WriteConcern
from server import binary

TENON = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")


def tenon(*arguments, stdin=None):
    return subprocess.run([TENON, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def rs(new_folder):
    with ReplicaSet(new_folder("tools"), 3) as rs:
        rs.initiate(rs.config(m0={"priority": 9}))
        yield rs


@pytest.fixture
def goods(rs):
    goods = rs.client().shop.get_collection("goods", write_concern=WriteConcern(w=3))
    goods.drop()
    goods.insert_many([{"_id": number} for number in range(5)])
    rs.wait_applied()
    return goods


def finds(rs):
    return [member.direct.admin.command("serverStatus")["metrics"]["commands"].get("find", {"total": 0})["total"] for member in rs.members]


# The hosts that a URI names, its options, and the members that may have been read from.
READS = {
    "the set": (lambda rs: rs.uri(), {0}),
    "one secondary of the set": (lambda rs: f"mongodb://{rs[2].host}/?replicaSet={rs.name}", {0}),
    "secondary": (lambda rs: rs.uri("&readPreference=secondary"), {1, 2}),
    "secondary preferred": (lambda rs: rs.uri("&readPreference=secondaryPreferred"), {1, 2}),
    "nearest": (lambda rs: rs.uri("&readPreference=nearest"), {0, 1, 2}),
    "alone": (lambda rs: f"mongodb://{rs[1].host}", {1}),
    "direct": (lambda rs: f"mongodb://{rs[1].host}/?replicaSet={rs.name}&directConnection=true", {1}),
    "direct secondary": (lambda rs: f"mongodb://{rs[1].host}/?directConnection=true&readPreference=secondary", {1}),
}


@pytest.mark.parametrize("named", READS)
def test_whom_a_tool_reads_from(rs, goods, named):
    uri, expected = READS[named]
    before = finds(rs)
    done = tenon("export", "--uri", uri(rs), "--db", "shop", "--collection", "goods")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == [f'{{"_id":{number}}}' for number in range(5)]
    asked = {member for member, (now, then) in enumerate(zip(finds(rs), before)) if now > then}
    assert asked and asked <= expected, (asked, expected)


def test_writers_find_the_primary(rs, goods, tmp_path):
    of_secondary = f"mongodb://{rs[2].host},{rs[1].host}/?replicaSet={rs.name}&readPreference=secondary"
    done = tenon("dump", "--uri", of_secondary, "--out", tmp_path / "dump")
    assert done.returncode == 0, done.stderr
    goods.delete_many({})
    done = tenon("restore", "--uri", of_secondary, tmp_path / "dump")
    assert done.returncode == 0, done.stderr
    done = tenon("import", "--uri", of_secondary, "--db", "shop", "--collection", "goods", stdin='{"_id": 5}\n')
    assert done.returncode == 0, done.stderr
    assert sorted(document["_id"] for document in goods.find()) == list(range(6))
    refused = tenon("import", "--uri", f"mongodb://{rs[2].host}", "--db", "shop", "--collection", "goods", stdin='{"_id": 6}\n')
    assert refused.returncode != 0 and "not primary" in refused.stderr, refused.stderr


def test_a_running_server_is_watched_whatever_it_is(rs):
    done = tenon("stat", "--uri", f"mongodb://{rs[1].host}", "--rowcount", "1")
    assert done.returncode == 0, done.stderr


def test_what_a_uri_cannot_say(rs):
    for uri, said in [
        (rs.uri("&directConnection=true"), "directConnection is for one host"),
        (rs.uri("&readPreference=nonesuch"), "there is no readPreference nonesuch"),
        (rs.uri("&readPreferenceTags=dc:ny"), "readPreferenceTags is not supported"),
    ]:
        refused = tenon("export", "--uri", uri, "--db", "shop", "--collection", "goods")
        assert refused.returncode != 0 and said in refused.stderr, refused.stderr
