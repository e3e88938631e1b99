"""A primary of three members steps down: who leads then, and what was at work or waited meanwhile."""

import threading

import pytest
from members import ReplicaSet, code_of, database, refused_code, wait
from pymongo import UpdateOne, WriteConcern
from pymongo.errors import PyMongoError
from pymongo.monitoring import CommandListener


@pytest.fixture(scope="module")
def rs(new_folder):
    # On a machine with much to do nobody is to be elected but who is asked to.
    with ReplicaSet(new_folder("set"), election_ms=5000) as made:
        yield made.initiate()


@pytest.fixture
def db(rs, request):
    with database(rs, request.node.name[:60]) as made:
        yield made


def test_steps_down_and_up(rs, db):
    primary = rs.primary
    run = primary.direct.admin.command
    assert code_of(run, "replSetStepDown", 5, secondaryCatchUpPeriodSecs=10) == 2
    assert code_of(rs.secondaries[0].direct.admin.command, "replSetStepDown", 5) == 10107
    # Nobody can catch up: it stays, and takes writes on.
    others = rs.secondaries
    db.c.insert_one({"_id": 1})
    others[0].kill()
    others[1].direct.admin.command("replSetFreeze", 0)
    rs.reconfig(lambda config: config["members"][others[1].number].update(priority=0))
    assert code_of(run, "replSetStepDown", 3, secondaryCatchUpPeriodSecs=1) == 262
    assert rs.find_primary() is primary
    db.c.insert_one({"_id": 2})
    rs.reconfig(lambda config: config["members"][others[1].number].update(priority=1))
    others[0].start()
    rs.wait_healthy()
    # It steps down for somebody who is there and has everything, and does not come back meanwhile.
    now = rs.step_down(seconds=60)
    assert now is not primary and primary.state() == "SECONDARY"
    db.c.insert_one({"_id": 3})
    # Asked by name it does.
    rs.make_primary(primary)
    assert db.c.count_documents({}) == 3
    # Who is frozen is not elected; who is left leads when it is not frozen any more.
    assert code_of(run, "replSetFreeze", 10) == 95
    frozen, other = others
    frozen.direct.admin.command("replSetFreeze", 60)
    primary.kill()
    assert wait(rs.find_primary, "the one that is not frozen") is other
    assert frozen.direct.admin.command("replSetFreeze", 0)["info"] == "unfreezing"
    primary.start()


def test_a_step_down_soon_after_members_were_taken_in(tmp_path):
    """They have begun anew with a copy meanwhile, and all connections to them have ended: nothing is sent over those."""
    with ReplicaSet(tmp_path, 4, election_ms=5000) as rs:
        first, second, third, arbiter = every = rs.members
        rs.members = [first, second]
        rs.initiate()
        rs.members = every
        rs.reconfig(lambda config: config["members"].append({"_id": 2, "host": third.host}))
        wait(lambda: third.state() == "SECONDARY", "the third")
        add_arbiter = lambda config: config["members"].append({"_id": 3, "host": arbiter.host, "arbiterOnly": True, "priority": 0})
        code, said = refused_code(rs.reconfig, add_arbiter)
        assert code == 103 and "implicit default write concern" in said
        first.direct.admin.command("setDefaultRWConcern", defaultWriteConcern={"w": "majority"})
        rs.reconfig(add_arbiter)
        wait(lambda: arbiter.state() == "ARBITER", "the arbiter")
        wait(lambda: len(votes := [each["votes"] for each in rs.consensus().values()]) == 4 and all(votes), "their votes")
        term = first.direct.admin.command("replSetGetStatus")["term"]
        first.direct.admin.command("replSetStepDown", 60)
        wait(rs.find_primary, "another one")
        assert first.state() == "SECONDARY"
        # The one that was asked to lead was elected at once.
        assert rs.find_primary().direct.admin.command("replSetGetStatus")["term"] == term + 1


def test_an_index_build_goes_on_through_a_step_down(rs, db):
    db.c.insert_many([{"_id": number, "a": number % 100, "b": "x" * 50} for number in range(20000)])

    def build():
        try:
            db.c.create_index([("a", 1), ("b", 1)])
        except PyMongoError as error:
            # The primary is another one before the build is over.
            failures.append(error)

    failures = []
    builder = threading.Thread(target=build)
    builder.start()
    rs.step_down()
    builder.join(120)
    assert not builder.is_alive()
    wait(lambda: db.c.create_index([("a", 1), ("b", 1)]), f"the index, after {failures}")
    rs.wait_applied()
    for each in rs.members:
        there = each.direct[db.name].c
        wait(lambda there=there: "a_1_b_1" in there.index_information(), "the index everywhere")
        assert len(list(there.find({"a": 7}, {"_id": 1}).hint("a_1_b_1"))) == 200


def test_bulks_that_are_sent_again_are_done_once(rs, db):
    """Their statements do not wait for each other: of some the primary that steps down has told nobody yet."""
    many, rounds, failed = 300, [0], []
    db.c.insert_many([{"_id": n, "n": 0} for n in range(many)])
    is_over = threading.Event()

    def write():
        bulk = [UpdateOne({"_id": n}, {"$inc": {"n": 1}}) for n in range(many)]
        while not is_over.is_set():
            try:
                assert db.c.bulk_write(bulk).modified_count == many
            except PyMongoError as error:
                failed.append(error)
                return
            rounds[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(3):
        before = rounds[0]
        wait(lambda before=before: rounds[0] > before + 2 or failed, "some bulks")
        rs.step_down()
    is_over.set()
    writer.join(60)
    # Whoever was told of two role changes in a row is told so; a driver sends once more.
    told = len(failed)
    assert rounds[0] > 2 and told <= 1, failed
    found = [each["n"] for each in db.c.find()]
    assert len(found) == many and all(rounds[0] <= n <= rounds[0] + told for n in found), (rounds, failed, sorted(set(found)))


def test_writes_that_wait_through_a_step_down_are_sent_again(rs, db):
    """What waits for its write concern is told that the role changed. Drivers send it again, and applications see nothing."""

    class Replies(CommandListener):
        def __init__(self):
            self.labels = []

        def started(self, event):
            pass

        def succeeded(self, event):
            if "writeConcernError" in event.reply:
                self.labels.append((event.command_name, event.reply.get("errorLabels")))

        def failed(self, event):
            # Of findAndModify pymongo says so.
            self.labels.append((event.command_name, event.failure.get("errorLabels")))

    db.c.insert_many([{"_id": n, "n": 0} for n in range(3)])
    down = rs.secondaries[0]
    down.kill()
    heard, failed, inc = Replies(), [], {"$inc": {"n": 1}}
    client = rs.client(event_listeners=[heard])
    three = client[db.name].get_collection("c", write_concern=WriteConcern(w=3))
    writes = [
        lambda: three.insert_one({"_id": "one"}),
        lambda: three.insert_many([{"_id": "many1"}, {"_id": "many2"}]),
        lambda: three.update_one({"_id": 0}, inc),
        lambda: three.find_one_and_update({"_id": 1}, inc),
        lambda: three.delete_one({"_id": 2}),
    ]

    def write(one):
        try:
            one()
        except PyMongoError as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(one,)) for one in writes]
    for writer in writers:
        writer.start()
    done = {"n": 1, "_id": {"$in": [0, 1]}}
    wait(lambda: db.c.count_documents(done) == 2 and db.c.count_documents({}) == 5, "all to be written, and to wait")
    assert not failed
    rs.step_down(seconds=60)
    wait(lambda: len(heard.labels) >= len(writes), lambda: f"all to be told: {heard.labels}, {failed}")
    down.start()
    for writer in writers:
        writer.join(60)
    client.close()
    assert not failed and {name for name, _ in heard.labels} == {"insert", "update", "findAndModify", "delete"}
    assert all(labels == ["RetryableWriteError"] for _, labels in heard.labels), heard.labels
    assert db.c.count_documents(done) == 2, "each write is done once"
    assert db.c.count_documents({}) == 5
