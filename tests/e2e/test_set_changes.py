"""How replica sets begin, grow and shrink, and how members get their data: with sets of their own."""

import contextlib
import json
import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest
from members import ReplicaSet, code_of, mongosh, refused_code, wait
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError
from server import ENGINES, Server, of_extent, send


def test_what_a_set_cannot_begin_with(tmp_path):
    with ReplicaSet(tmp_path, [ENGINES[0]] * 4) as rs:
        first, second, filled, taken = rs.members
        initiate = first.direct.admin.command
        other = ReplicaSet(tmp_path / "other", 1, name="rs1")
        other.start()
        try:
            config = rs.config([first, second])
            config["members"].append({"_id": 7, "host": other[0].host})
            code, said = refused_code(initiate, "replSetInitiate", config)
            assert code == 74 and "is of the replica set rs1, not of rs0" in said and other[0].host in said
        finally:
            other.stop()
        code, said = refused_code(initiate, "replSetInitiate", config)
        assert code == 74 and other[0].host in said, "it is not there any more"
        assert first.state() == "STARTUP", "nothing was begun"
        # Data that are somebody's: made while it was the only member of a set, and without one.
        taken.direct.admin.command("replSetInitiate", rs.config([taken]))
        code, said = refused_code(initiate, "replSetInitiate", rs.config([first, second, taken]))
        assert code == 23 and taken.host in said
        filled.stop()
        member_options, filled.options = filled.options, []
        filled.start()
        filled.client().shop.c.insert_one({"_id": "kept"})
        filled.stop()
        filled.options = member_options
        filled.start()
        code, said = refused_code(initiate, "replSetInitiate", rs.config([first, second, filled]))
        assert code == 184 or code == 211 or "has data already" in said, (code, said)
        for config, expected in [
            ({**rs.config([first, second]), "_id": "rs1"}, 93),
            (rs.config([second]), 93),
            ({**rs.config([first, second]), "members": [{"_id": 0, "host": first.host}, {"_id": 1, "host": first.host}]}, 93),
            (rs.config([first, second], m0={"priority": 0}, m1={"priority": 0}), 93),
        ]:
            assert refused_code(initiate, "replSetInitiate", config)[0] == expected, config
        rs.members = [first, second, filled, taken]
        # Who has data begins the set, and gives them to the others.
        filled.direct.admin.command("replSetInitiate", rs.config([first, second, filled]))
        wait(lambda: filled.state() == "PRIMARY" and [first.state(), second.state()] == ["SECONDARY"] * 2, "the set")
        assert second.direct.shop.c.find_one() == {"_id": "kept"}
        assert refused_code(filled.direct.admin.command, "replSetInitiate", rs.config([first, second, filled]))[0] == 23


def test_members_come_and_go(tmp_path):
    with ReplicaSet(tmp_path, 3) as rs:
        first, second, third = rs.members
        first.direct.admin.command("replSetInitiate", rs.config([first]))
        db = first.direct.shop
        wait(lambda: first.state() == "PRIMARY")
        db.c.insert_many([{"_id": number} for number in range(1000)])
        # Without a vote it follows and can be read.
        rs.reconfig(lambda config: config["members"].append({"_id": 1, "host": second.host, "votes": 0, "priority": 0}))
        rs.wait_state(second, "SECONDARY")
        assert second.direct.shop.c.count_documents({}) == 1000
        assert rs.consensus()[1]["votes"] is False and second.hello()["passive"] is True
        db.get_collection("c", write_concern=WriteConcern(w=2)).insert_one({"_id": "both"})
        rs.reconfig(lambda config: config["members"][1].update(votes=1, priority=1))
        said = mongosh(f"mongodb://{first.host}/?directConnection=true", f"print(JSON.stringify(rs.add('{third.host}')))")
        assert '"ok":1' in said, said
        rs.wait_healthy()
        assert rs.consensus().keys() == {0, 1, 2}
        third = next(each for each in rs.members if each.host == rs.conf()["members"][2]["host"])
        # What is no successor of this configuration.
        run = first.direct.admin.command

        def changed(change):
            config = rs.conf()
            config["version"] += 1
            change(config)
            return config

        for change, expected in [
            (lambda config: config.update(version=1), 103),
            (lambda config: config.update(_id="rs1"), 93),
            (lambda config: config["members"].pop(0), 74),
            (lambda config: config["members"][1].update(host=third.host), 103),
            (lambda config: config["members"][1].update(_id=2), 103),
            (lambda config: [each.update(votes=0, priority=0) for each in config["members"]], 103),
        ]:
            assert refused_code(run, "replSetReconfig", changed(change))[0] == expected, changed(change)
        nowhere = changed(lambda config: [each.update(host=f"localhost:{each['_id']}") for each in config["members"][1:]])
        code, said = refused_code(run, "replSetReconfig", nowhere)
        assert code == 74 and "Quorum check failed" in said, (code, said)
        assert code_of(second.direct.admin.command, "replSetReconfig", changed(lambda config: None)) == 10107
        # Who was dropped says so, answers no reads, and takes part again when it is taken back.
        rs.reconfig(lambda config: config["members"].pop(1))
        rs.wait_state(second, "REMOVED")
        assert second.hello()["isreplicaset"] is True and "setName" not in second.hello()
        assert send(second, "shop", {"find": "c", "$readPreference": {"mode": "nearest"}})["code"] == 13436
        db.c.insert_one({"_id": "while it was gone"})
        wait(lambda: rs.consensus().keys() == {0, 2}, "consensus without it")
        rs.reconfig(lambda config: config["members"].insert(1, {"_id": 1, "host": second.host}))
        rs.wait_healthy()
        rs.check_equal()
        assert second.direct.shop.c.find_one({"_id": "while it was gone"})


def test_a_member_of_another_set_keeps_its_data(tmp_path):
    """Two sets of one name: a member of the one that was added to the other lost its data, and copied the other's."""
    with ReplicaSet(tmp_path / "one", 1) as rs, ReplicaSet(tmp_path / "two", 1) as other:
        rs.initiate()
        other.initiate()
        first, stranger = rs[0], other[0]
        stranger.direct.shop.c.insert_one({"_id": "kept"})
        run = first.direct.admin.command

        def added(**member):
            config = rs.conf()
            config["version"] += 1
            config["members"].append({"_id": 1, **member})
            return config

        for fields in [{}, {"votes": 0, "priority": 0}]:
            code, said = refused_code(run, "replSetReconfig", added(host=stranger.host, **fields))
            assert code == 103 and stranger.host in said and "replica set IDs do not match" in said, (code, said)
            # A member has one name: under another one it would count, and never vote.
            code, said = refused_code(run, "replSetReconfig", added(host=f"127.0.0.1:{first.port}", **fields))
            assert code == 103 and "it is this server" in said, (code, said)
        # Nobody is asked where it is forced, and both refuse each other all the same.
        run("replSetReconfig", added(host=stranger.host, votes=0, priority=0), force=True)

        def message():
            status = run("replSetGetStatus")
            return status["members"][1].get("lastHeartbeatMessage")

        assert "replica set IDs do not match" in wait(message, "why it is no member")
        instance = send(stranger, "admin", {"replSetHeartbeat": "rs0", "configVersion": -1})["instance"]
        config = {**rs.conf(), "version": 1_000_000}
        given = [{"_id": at, "id": at + 1, "votes": True, "instance": of} for at, of in enumerate([b"0" * 16, instance])]
        config["consensus"] = {"next": 1000, "members": given}
        question = {"replSetHeartbeat": "rs0", "fromId": 0, "toId": 1, "from": first.host, "term": 1 << 40}
        said = send(stranger, "admin", {**question, "configVersion": 1_000_000, "primary": True, "config": config})
        assert said["code"] == 93 and "replica set IDs do not match" in said["errmsg"], said
        assert stranger.state() == "PRIMARY" and stranger.direct.shop.c.find_one() == {"_id": "kept"}


def test_an_address_that_a_member_of_another_set_has_got(tmp_path):
    """Members of two sets of one name have the same numbers: the one that came to the address voted in the set that
    knew it, and what that had agreed on took the place of its own data."""
    with ReplicaSet(tmp_path / "one", [ENGINES[0]] * 2) as rs, ReplicaSet(tmp_path / "two", [ENGINES[0]] * 2) as other:
        for each, name in [(rs, "ours"), (other, "theirs")]:
            each.initiate()
            each.client().shop.get_collection(name, write_concern=WriteConcern(w=2)).insert_one({"_id": name})
        gone, stranger = rs[1], other[1]
        assert gone.stop() == 0 and stranger.stop() == 0
        own, stranger.port = stranger.port, gone.port
        stranger.start()

        def refused():
            for member in rs[0].direct.admin.command("replSetGetStatus")["members"]:
                if "replica set IDs do not match" in member.get("lastHeartbeatMessage", ""):
                    return rs[0].state() == "SECONDARY"
            return False

        wait(refused, lambda: f"the address to be of no use, and no majority; {rs.describe()}")
        assert stop_and_return(stranger, own).direct.shop.list_collection_names() == ["theirs"]
        gone.start()
        for each, name in [(rs, "ours"), (other, "theirs")]:
            each.wait_healthy()
            assert each.client().shop.list_collection_names() == [name]
            each.check_equal()


def stop_and_return(member, port):
    """Has a member go on at its own address."""
    assert member.stop() == 0
    member.port = port
    return member.start()


def test_a_member_that_fell_off_the_log_copies_all_data(tmp_path):
    """Its next entry is not in the primary's log any more: it says so at once, answers nothing old, and comes back by itself."""
    with ReplicaSet(tmp_path, [ENGINES[0]] * 3, oplog_mb=1) as rs:
        rs.initiate()
        client = rs.client()
        client.shop.c.insert_one({"_id": "known", "n": 0})
        rs.wait_applied()
        primary, behind = rs.primary, rs.secondaries[0]
        instance = rs.consensus()[behind.number]["instance"]
        behind.kill()
        client.shop.c.update_one({"_id": "known"}, {"$set": {"n": 1}})
        lacking = next(primary.direct.local["oplog.rs"].find(sort=[("$natural", -1)], limit=1))["ts"]

        def is_purged():
            for number in range(4):
                client.shop.big.insert_one({"pad": os.urandom(8_000_000)})
            primary.direct.admin.command("fsync")
            return primary.direct.local["oplog.rs"].find_one()["ts"] > lacking

        wait(is_purged, "the log to forget its beginning", 120)
        seen, ended = [], threading.Event()
        behind.start()

        def read():
            while not ended.is_set():
                # Whether the set had taken it in anew when it was asked.
                is_new = rs.consensus()[behind.number]["instance"] != instance
                if behind.state() == "SECONDARY":
                    try:
                        found = behind.direct.shop.c.find_one({"_id": "known"})
                    except PyMongoError:
                        continue
                    seen.append((is_new, found and found["n"]))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            wait(lambda: (known := rs.consensus().get(behind.number)) and known["instance"] != instance and known["votes"], "a new instance", 120)
            rs.wait_healthy()
            wait(lambda: seen and seen[-1] == (True, 1), "the copy to be read")
        finally:
            ended.set()
            reader.join()
        assert all(n == 1 for is_new, n in seen if is_new), seen
        rs.check_equal(validate=False)


# Rows go to any engine; the last one is for every change, all are for releases.
COPIERS = [("logical", engine) for engine in of_extent(ENGINES[-1:], ENGINES)]


@pytest.mark.parametrize("method, engine", [*COPIERS, ("fileCopyBased", "btree")])
def test_an_initial_sync_that_is_cut(tmp_path, method, engine):
    """By ends of the copying server, and of the source, which has a copy open."""
    with ReplicaSet(tmp_path, ["btree", "btree", engine], options=["--setParameter", f"initialSyncMethod={method}"]) as rs:
        first, second, third = rs.members
        third.stop()
        first.direct.admin.command("replSetInitiate", rs.config([first, second]))
        wait(lambda: sorted(rs.states()) == ["DOWN", "PRIMARY", "SECONDARY"] and rs.consensus()[1]["votes"])
        client = MongoClient([first.host, second.host], replicaSet="rs0")
        for _ in range(12):
            client.shop.big.insert_many([{"pad": os.urandom(400_000)} for _ in range(10)])
        client.shop.big.create_index("n")
        third.start()
        rs.reconfig(lambda config: config["members"].append({"_id": 2, "host": third.host}))
        # Until it was cut in the middle, however fast the machine is.
        for _ in range(20):
            third.wait_log("Initial sync begins")
            source = rs.primary
            source.process.send_signal(signal.SIGSTOP)
            third.kill()
            was_cut = (third.data / "initial-sync" / "begun.bson").exists()
            third.start()
            source.process.send_signal(signal.SIGCONT)
            if was_cut:
                break
            rs.wait_healthy()
            third.stop()
            third.wipe()
            third.start()
        third.wait_log("Initial sync goes on where it was")
        rs.wait_healthy()
        # The source ends in an orderly way while it has a copy open that nobody goes on with.
        third.stop()
        third.wipe()
        third.start()
        third.wait_log("Initial sync begins")
        third.kill()
        source = rs.primary
        source.restart()
        third.start()
        rs.wait_healthy()
        assert third.direct.shop.big.count_documents({}) == 120
        assert method in third.log.read_text()
        rs.check_equal()
        assert not (third.data / "initial-sync").exists()
        client.close()


def test_folders_on_other_disks_stay_there(tmp_path):
    """The copy took the place of the folders themselves: of a mount point it could not, and the member started no more."""
    another_disk = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    if os.stat(another_disk).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("there is one disk only")
    with tempfile.TemporaryDirectory(dir=another_disk) as disk, ReplicaSet(tmp_path / "set", [ENGINES[0]] * 3) as rs:
        rs.initiate()
        collection = rs.client().shop.get_collection("c", write_concern=WriteConcern(w=3))
        collection.insert_many([{"_id": number, "text": "x" * 1000} for number in range(1000)])
        member = rs.secondaries[0]
        assert member.stop() == 0
        member.wipe()
        folders = [member.data / "journal", member.data / ENGINES[0]]
        for folder in folders:
            (Path(disk) / folder.name / "lost+found").mkdir(parents=True)
            folder.symlink_to(Path(disk) / folder.name)
        member.start()
        rs.wait_healthy()
        for folder in folders:
            names = {entry.name for entry in folder.iterdir()}
            assert folder.is_symlink() and "lost+found" in names and len(names) > 1, (folder, names)
        assert not (member.data / "initial-sync").exists()
        rs.check_equal()
        member.restart()
        rs.wait_healthy()
        rs.check_equal()


def test_data_are_copied_of_whom_is_asked_for(tmp_path):
    """By a parameter; what replSetSyncFrom refuses."""
    with ReplicaSet(tmp_path, 3) as rs:
        first, second, third = rs.members
        fourth = rs.add_server(options=["--setParameter", "initialSyncSourceReadPreference=secondary"])
        fourth.start()
        assert refused_code(fourth.direct.admin.command, "replSetSyncFrom", third.host)[0] == 94
        rs.initiate(rs.config([first, second, third]))
        rs.client().shop.c.insert_many([{"_id": n, "pad": "x" * 1000} for n in range(3000)])
        rs.wait_applied()
        rs.reconfig(lambda config: config["members"].append({"_id": 3, "host": fourth.host}))
        rs.wait_healthy()
        logged = [line for line in fourth.log.read_text().splitlines() if "Initial sync begins" in line]
        source = json.loads(logged[-1])["attr"]["source"]
        assert source in [each.host for each in (first, second, third) if each is not rs.primary]
        rs.check_equal()

        def sync_from(member, host):
            return refused_code(member.direct.admin.command, "replSetSyncFrom", host)[0]

        assert sync_from(rs.primary, fourth.host) == 95
        assert sync_from(fourth, fourth.host) == 72
        assert sync_from(fourth, "localhost:1") == 74
        assert sync_from(fourth, next(each.host for each in rs.secondaries if each is not fourth)) == 20, "the log is the primary's"
        said = fourth.direct.admin.command("replSetSyncFrom", rs.primary.host)
        assert said["syncFromRequested"] == rs.primary.host
        assert refused_code(fourth.direct.admin.command, {"setParameter": 1, "initialSyncMethod": "magic"})[0] == 2


def test_writers_wait_for_a_majority_that_lags(tmp_path):
    """Secondaries that take the log and show nothing of it: the primary lets fewer writes begin."""
    options = ["--setParameter", "flowControlTargetLagSeconds=1", "--setParameter", "enableTestCommands=1"]
    with ReplicaSet(tmp_path, 3, options=options) as rs:
        rs.initiate()
        primary = rs.primary
        collection = rs.client().shop.get_collection("c", write_concern=WriteConcern(w=1))
        collection.insert_one({})
        rs.wait_applied()

        def status():
            return primary.direct.admin.command("serverStatus")["flowControl"]

        # A set that was busy starting may lag for a moment.
        wait(lambda: not status()["isLagged"], status)
        assert status()["enabled"]
        stopped = [each for each in rs.secondaries]
        for each in stopped:
            each.direct.admin.command("configureFailPoint", "stopReplProducer", mode="alwaysOn")

        def lags():
            collection.insert_many([{} for _ in range(20)])
            return status()["isLagged"] and status()

        lagged = wait(lags, status)
        assert lagged["targetRateLimit"] < 1_000_000 and lagged["isLaggedCount"] >= 1
        for each in stopped:
            each.direct.admin.command("configureFailPoint", "stopReplProducer", mode="off")
        wait(lambda: not collection.insert_one({}).acknowledged or not status()["isLagged"], status)
        # Without it nobody waits.
        primary.direct.admin.command("setParameter", 1, enableFlowControl=False)
        wait(lambda: status()["targetRateLimit"] == 1_000_000_000, status)
        rs.check_equal()


def test_members_prove_themselves(tmp_path):
    key = tmp_path / "key"
    key.write_text("aSharedSecret123")
    key.chmod(0o600)
    wrong = tmp_path / "wrong"
    wrong.write_text("anotherSecret456")
    wrong.chmod(0o600)
    with ReplicaSet(tmp_path, 3, options=["--keyFile", str(key)]) as rs:
        stranger = rs.add_server()
        stranger.options[stranger.options.index(str(key))] = str(wrong)
        stranger.start()
        first = rs[0]
        three = rs.config(rs.members[:3])
        system = {"username": "__system", "authSource": "local", "directConnection": True}
        member = MongoClient("127.0.0.1", first.port, password="aSharedSecret123", **system)
        code, said = refused_code(member.admin.command, "replSetInitiate", rs.config())
        assert code == 74 and stranger.host in said, (code, said)
        member.admin.command("replSetInitiate", three)

        def states():
            return sorted(each["stateStr"] for each in member.admin.command("replSetGetStatus")["members"])

        wait(lambda: states() == ["PRIMARY", "SECONDARY", "SECONDARY"], "the set")
        primary = wait(lambda: next((each for each in rs.members if each.hello()["isWritablePrimary"]), None))
        MongoClient("127.0.0.1", primary.port, directConnection=True).admin.command("createUser", "root", pwd="r00t", roles=["root"])
        for login in ({}, {"username": "root", "password": "r00t"}):
            outsider = MongoClient("127.0.0.1", primary.port, directConnection=True, **login)
            for command in [
                {"_tenonConsensus": 1, "set": "rs0", "data": b""},
                {"_tenonCopyBegin": 1, "set": "rs0"},
                {"_tenonCopyRows": 1},
                {"_tenonCopyEnd": 1},
                {"_tenonWriteResults": "begin", "stage": {"$out": "d"}},
                {"replSetHeartbeat": "rs0"},
            ]:
                assert code_of(outsider.admin.command, command) == 13, (login, command)
            outsider.close()
        hosts = ",".join(each.host for each in rs.members[:3])
        client = MongoClient(f"mongodb://root:r00t@{hosts}/?replicaSet=rs0", w=3)
        client.shop.c.insert_one({"_id": 1})
        # Users are data as any: each member knows them.
        for each in rs.members[:3]:
            direct = MongoClient("127.0.0.1", each.port, directConnection=True, username="root", password="r00t")
            assert wait(lambda direct=direct: direct.shop.get_collection("c", read_preference=ReadPreference.NEAREST).find_one()) == {"_id": 1}
            direct.close()
        wait(lambda: client.admin.command("replSetStepDown", 10), "the primary to step down")
        wait(lambda: client.shop.c.insert_one({}).acknowledged)
        for each in (client, member):
            each.close()


def test_rights_end_with_the_user_on_every_member(tmp_path):
    """The client did not wait for the end of the change. Who asked for anything before it had taken effect kept its rights."""
    key = tmp_path / "key"
    key.write_text("aSharedSecretOfTheSet0123456789ab")
    key.chmod(0o600)
    with ReplicaSet(tmp_path, [ENGINES[0]] * 2, options=["--keyFile", str(key)], election_ms=60000) as rs:
        first, second = rs.members
        config = rs.config()
        config["members"][1]["priority"] = 0
        local = MongoClient("127.0.0.1", first.port, directConnection=True)
        local.admin.command("replSetInitiate", config)
        wait(lambda: local.admin.command("hello")["isWritablePrimary"])
        local.admin.command("createUser", "root", pwd="r00t", roles=["root"])

        def login(member, user, password, **options):
            options |= {"directConnection": True, "maxPoolSize": 1, "read_preference": ReadPreference.NEAREST}
            return MongoClient("127.0.0.1", member.port, username=user, password=password, **options)

        root = login(first, "root", "r00t")
        wait(lambda: [each["stateStr"] for each in root.admin.command("replSetGetStatus")["members"]] == ["PRIMARY", "SECONDARY"])
        root.admin.command("createUser", "eve", pwd="x", roles=[{"role": "read", "db": "shop"}], writeConcern={"w": 2})
        root.shop.get_collection("c", write_concern=WriteConcern(2)).insert_one({"_id": 1})
        eves = [login(member, "eve", "x") for member in rs.members]
        assert [eve.shop.c.find_one() for eve in eves] == [{"_id": 1}] * 2
        os.kill(second.process.pid, signal.SIGSTOP)
        try:
            assert code_of(root.admin.command, {"dropUser": "eve", "maxTimeMS": 500}) == 50
            assert eves[0].shop.c.find_one() == {"_id": 1}, "it has not taken effect"
        finally:
            os.kill(second.process.pid, signal.SIGCONT)
        wait(lambda: not root.admin.command("usersInfo", "eve")["users"])

        def is_shut_out(eve):
            try:
                return eve.shop.c.find_one() is None
            except OperationFailure as error:
                return error.code == 13

        for eve in eves:
            wait(lambda eve=eve: is_shut_out(eve), "the end of her rights")
        for client in (local, root, *eves):
            client.close()


def force(member, config):
    # It starts anew: the answer may not come.
    with contextlib.suppress(AutoReconnect):
        member.direct.admin.command("replSetReconfig", config, force=True)


def test_of_two_forced_configurations_one_stays(tmp_path):
    """Two members with forced configurations took each other's place at the same time, and nobody led."""
    with ReplicaSet(tmp_path, election_ms=60_000) as rs:
        rs.initiate()
        first = rs.primary
        first.direct.t.c.with_options(write_concern=WriteConcern(w=3)).insert_one({"_id": 1})
        rs.wait_applied()
        left = rs.secondaries
        config = rs.config(left)
        first.kill()
        # Nobody stands for election yet: both are asked as secondaries.
        forcing = [threading.Thread(target=force, args=(each, {**config, "version": 2})) for each in left]
        for each in forcing:
            each.start()
        for each in forcing:
            each.join()
        for each in left:
            # A configuration is forced.
            each.wait_log("8410024")
        rs.wait_healthy()
        primary = rs.primary
        assert primary.direct.t.c.find_one({"_id": 1})
        configs = [each.direct.admin.command("replSetGetConfig")["config"] for each in left]
        assert configs[0]["version"] == configs[1]["version"] > 10_000, configs
        primary.direct.t.c.with_options(write_concern=WriteConcern(w=2, wtimeout=60_000)).insert_one({"_id": 2})
        rs.check_equal()


def test_a_configuration_that_cannot_be_used_is_replaced(tmp_path):
    """No member started with it, and nothing could mend it."""
    server = Server(tmp_path, options=["--replSet", "rs0", "--replSetInitiate"])

    def start(*options):
        server.options = list(options)
        server.start()
        return server.client(directConnection=True)

    start(*server.options).shop.c.insert_one({"_id": 1})
    server.stop()
    broken = start().local["system.replset"].update_one({}, {"$set": {"members": []}})
    assert broken.modified_count == 1
    server.stop()
    client = start("--replSet", "rs0")
    run = client.admin.command
    assert code_of(run, "replSetGetStatus") == 94 and code_of(client.shop.c.find_one) == 13436
    assert "8410026" in server.tail()
    config = {"_id": "rs0", "version": 1, "members": [{"_id": 0, "host": f"localhost:{server.port}"}]}
    assert refused_code(run, "replSetReconfig", {**config, "_id": "other"})[0] == 94
    assert code_of(run, "replSetReconfig", {**config, "_id": "other"}, force=True) == 93
    run("replSetReconfig", config, force=True)
    wait(lambda: client.admin.command("hello")["isWritablePrimary"], "the primary")
    client.shop.c.insert_one({"_id": 2})
    assert client.shop.c.count_documents({}) == 2
    assert server.stop() == 0
