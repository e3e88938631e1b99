"""Members of a set whose files are copied under a lock (`fsync` with `lock`), and who leads meanwhile."""

import hashlib
import os
import random
import time

import pytest
from members import ReplicaSet, database, wait
from pymongo import WriteConcern
from pymongo.errors import OperationFailure, PyMongoError
from server import ENGINES

ELECTION_MS = 5000


@pytest.fixture(scope="module")
def rs(new_folder):
    with ReplicaSet(new_folder("set"), election_ms=ELECTION_MS, options=["--setParameter", "enableTestCommands=1"]) as made:
        yield made.initiate()


@pytest.fixture
def db(rs, request):
    with database(rs, request.node.name[:60]) as made:
        yield made


class locked:
    """Holds a member's writes back."""

    def __init__(self, member):
        self.member = member

    def __enter__(self):
        self.member.direct.admin.command("fsync", lock=True)

    def __exit__(self, *_):
        self.member.direct.admin.command("fsyncUnlock")


def log_of(member):
    """What is in the files of a member's log, by name."""
    files = sorted((member.data / "journal").glob("*.log"))
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def status_of(member):
    return member.direct.admin.command("replSetGetStatus")


def test_the_log_of_a_locked_secondary_stays_as_it_is(rs, db):
    """It was written to while it was copied: a copy could have a hole, and was refused as damaged when it was needed."""
    collection = db.get_collection("c", write_concern=WriteConcern("majority"))
    collection.insert_one({"_id": "before"})
    rs.wait_applied()
    for secondary in rs.secondaries:
        for _ in range(3):
            with locked(secondary):
                before, term = log_of(secondary), status_of(secondary)["term"]
                assert before, "it has a log"
                for _ in range(50):
                    collection.insert_many([{"text": "x" * 500} for _ in range(20)])
                after = log_of(secondary)
                is_same_term = status_of(secondary)["term"] == term
            rs.wait_applied()
            # A vote is written all the same.
            if is_same_term:
                assert after == before
                break
        else:
            pytest.fail("elections without an end")
    rs.check_equal()


def test_a_locked_secondary_does_not_ask_for_the_leadership(rs, db):
    """It asked each second, and no write went through meanwhile."""
    db.c.insert_one({"_id": "before"})
    rs.wait_applied()
    former, secondary = rs.primary, rs.secondaries[0]
    with locked(secondary):
        with pytest.raises(OperationFailure, match="held back") as failed:
            secondary.direct.admin.command("replSetStepUp")
        assert failed.value.code == 125
        db.c.insert_one({"_id": "meanwhile"})
        assert rs.find_primary() is former
    rs.wait_applied()


@pytest.mark.parametrize("when", ["up_to_date", "behind"])
def test_a_locked_secondary_is_not_made_the_primary(rs, db, when):
    """It was, and took no writes; or nobody was, as long as the member that stepped down was to stay a secondary."""
    db.c.insert_one({"_id": "before"})
    rs.wait_applied()
    former = rs.primary
    # The one that comes last in the set, which was the heir.
    behind = max(rs.secondaries, key=lambda each: each.number)
    able = next(each for each in rs.secondaries if each is not behind)
    with locked(behind):
        if when == "behind":
            db.c.insert_many([{} for _ in range(50)])
        former.direct.admin.command("replSetStepDown", 60, secondaryCatchUpPeriodSecs=30)
        assert wait(rs.find_primary, "the other one") is able
        db.c.insert_one({"_id": "meanwhile"})
        assert status_of(able)["electionCandidateMetrics"]["lastElectionReason"] == "stepUpRequestSkipDryRun"
    rs.wait_applied()
    assert rs.find_primary() is able
    rs.make_primary(former)
    assert status_of(former)["electionCandidateMetrics"]["lastElectionReason"] == "stepUpRequest"


def test_writes_go_on_while_the_member_that_is_to_lead_is_locked(rs, db):
    """It was offered the leadership again and again, and no write went through meanwhile."""
    rs.make_primary(rs[0])
    preferred = rs.secondaries[0]
    db.c.insert_one({"_id": "before"})
    rs.wait_applied()

    def prefer(priority):
        rs.reconfig(lambda config: config["members"][preferred.number].update(priority=priority))

    with locked(preferred):
        prefer(5)
        for number in range(60):
            # An offer had writes wait for as long as an election takes.
            db.command("insert", "c", documents=[{"_id": number}], maxTimeMS=ELECTION_MS - 1000)
            time.sleep(0.1)
        assert rs.find_primary() is rs[0]
    wait(lambda: rs.find_primary() is preferred, "the one that is to lead")
    assert status_of(preferred)["electionCandidateMetrics"]["lastElectionReason"] == "priorityTakeover"
    prefer(1)
    assert db.c.count_documents({}) == 61


def test_op_times_are_those_of_entries(rs, db):
    """Others were told the present term with the time of an entry of an earlier one."""
    db.c.insert_one({"_id": 1})
    rs.wait_applied()
    stopped = max(rs.secondaries, key=lambda each: each.number)
    with locked(stopped):
        rs.step_down()
        db.c.insert_one({"_id": 2})
        own = status_of(stopped)["optimes"]["appliedOpTime"]

        def told():
            status = status_of(rs.primary)
            of = next(each for each in status["members"] if each["_id"] == stopped.number)
            return of["optime"] == own and of["optimeDurable"] == own and own["t"] < status["term"]

        wait(told, lambda: (own, status_of(rs.primary)))
    rs.wait_applied()
    # It has in its log what it does not show yet.
    stopped = rs.secondaries[0]
    fail_point = stopped.direct.admin.command
    fail_point("configureFailPoint", "stopReplProducer", mode="alwaysOn")
    try:
        db.c.insert_one({"_id": 3})
        goal = rs.primary.applied()
        wait(lambda: status_of(stopped)["optimes"]["writtenOpTime"]["ts"] >= goal, lambda: status_of(stopped)["optimes"])
        assert status_of(stopped)["optimes"]["appliedOpTime"]["ts"] < goal
    finally:
        fail_point("configureFailPoint", "stopReplProducer", mode="off")
    rs.wait_applied()


def test_who_is_left_after_a_crash_of_all_can_be_read(tmp_path):
    """Each waited, without an end, for the others to tell that what it had shown before stays."""
    with ReplicaSet(tmp_path, ["btree", "mmapv1", "betree"], election_ms=1000) as rs:
        rs.initiate()
        client = rs.client()
        client.shop.c.insert_many([{"_id": number} for number in range(200)])
        rs.wait_applied()
        # What stays is written down once a second.
        time.sleep(3)
        for each in rs.members:
            each.kill()
        for each in rs.members:
            each.start()
            rs.wait_state(each, "SECONDARY")
            assert each.direct.shop.c.count_documents({}) == 200, each.engine
            each.kill()
        rs.start()
        rs.wait_healthy()
        rs.check_equal()


@pytest.mark.parametrize("seed", [int(os.environ.get("TENON_STEP_DOWN_SEED", "1"))])
def test_somebody_takes_writes_whatever_steps_down_or_is_locked(tmp_path, seed):
    """At any time at most one secondary is locked, and one member asked to step down: two can lead."""
    chance, steps = random.Random(seed), int(os.environ.get("TENON_STEP_DOWN_STEPS", "12"))
    engines = chance.sample(ENGINES, k=3)
    with ReplicaSet(tmp_path, engines, election_ms=2000) as rs:
        rs.initiate()
        # Longer than some elections take, shorter than anything that somebody has to end.
        collection = rs.client(timeoutMS=45_000).shop.c
        done, is_locked = [], None

        def lock():
            nonlocal is_locked
            is_locked = chance.choice(rs.secondaries)
            is_locked.direct.admin.command("fsync", lock=True)
            return f"lock {is_locked.number}"

        def unlock():
            nonlocal is_locked
            number = is_locked.number
            is_locked.direct.admin.command("fsyncUnlock")
            is_locked = None
            return f"unlock {number}"

        def step_down():
            former, seconds = rs.primary, chance.choice([15, 3600])
            try:
                former.direct.admin.command("replSetStepDown", seconds, secondaryCatchUpPeriodSecs=10)
            except PyMongoError as error:
                return f"{former.number} does not step down: {error}"
            # Otherwise the third one may be left without anybody to hand over to.
            former.direct.admin.command("replSetFreeze", 0)
            return f"{former.number} steps down"

        def prefer():
            number, priority = chance.randrange(3), chance.choice([1, 1, 5])
            try:
                rs.reconfig(lambda config: [each.update(priority=priority if each["_id"] == number else 1) for each in config["members"]])
            except PyMongoError as error:
                return f"{number} is not preferred: {error}"
            return f"{number} has priority {priority}"

        for number in range(steps):
            act = chance.choice([step_down, step_down, unlock if is_locked else lock, prefer])
            done.append(act())
            try:
                collection.insert_one({"_id": number})
            except PyMongoError as error:
                raise AssertionError(f"seed {seed}, {engines}: no write after {done}; {rs.describe()}") from error
        if is_locked:
            unlock()
        rs.wait_healthy()
        rs.wait_applied()
        assert collection.count_documents({}) == steps
        rs.check_equal()
