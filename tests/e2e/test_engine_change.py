"""`tenon engine-change`: a set of three under writes gets another engine, member by member, and loses nothing."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.errors import AutoReconnect, NotPrimaryError, PyMongoError, WriteConcernError
from server import ENGINES, Server, binary, of_extent

PAIR = ("btree", "inMemory")
pytestmark = pytest.mark.skipif(not set(PAIR) <= set(ENGINES), reason=f"the build has not both of {PAIR}")
# There and back is each ordered pair of two engines. One of them is for every change, all are for releases.
PAIRS = of_extent([PAIR], list(itertools.combinations(ENGINES, 2)))

# What an operator would write: it ends the member of the port, wipes its data, and starts it with the engine.
HOOK = """
    import fcntl, json, os, shutil, signal, subprocess, sys, time
    folder = sys.argv[1]
    # The hook of a run that was killed may be at work still.
    lock = open(f"{folder}/lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert os.environ["TENON_STEP"] == "stop-wipe-start"
    port = os.environ["TENON_HOST"].rsplit(":", 1)[1]
    engine = os.environ["TENON_ENGINE"]
    member = json.load(open(f"{folder}/{port}.json"))
    with open(f"{folder}/calls", "a") as calls:
        print(port, engine, file=calls)
    def running():
        try:
            return open(f"/proc/{member['pid']}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False
    if running():
        os.kill(member["pid"], signal.SIGTERM)
        while running():
            time.sleep(0.02)
    shutil.rmtree(member["data"])
    os.mkdir(member["data"])
    line = member["line"]
    line[line.index("--storageEngine") + 1] = engine
    log = open(f"{folder}/{port}.out", "ab")
    process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    member["pid"] = process.pid
    json.dump(member, open(f"{folder}/{port}.new", "w"))
    os.rename(f"{folder}/{port}.new", f"{folder}/{port}.json")
"""


def tenon():
    return os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Members:
    """Servers of a set that a hook may restart, so that only the hook's files know who runs."""

    def __init__(self, folder, engine, count=3, key=None):
        self.folder = folder
        self.login = {}
        self.ports = free_ports(count)
        self.hosts = [f"localhost:{port}" for port in self.ports]
        (folder / "hook.py").write_text(textwrap.dedent(HOOK))
        options = ["--replSet", "rs0", "--oplogSize", "64"]
        if key:
            file = folder / "cluster.key"
            file.write_text(key)
            file.chmod(0o600)
            options += ["--keyFile", str(file)]
            # Nobody else may initiate a set, until there are users.
            self.login = {"username": "__system", "password": key, "authSource": "local"}
        for port in self.ports:
            server = Server(folder / str(port), engine, options, port).start()
            known = {"pid": server.process.pid, "data": str(server.data), "line": server.command()}
            (folder / f"{port}.json").write_text(json.dumps(known))
            # It is the hook's from here on, and waited for by `stop`.
            server.process.stdout.close()
            setattr(self, f"process_{port}", server.process)
        members = [{"_id": number, "host": host} for number, host in enumerate(self.hosts)]
        # The first one is preferred, and is to be so afterwards.
        members[0]["priority"] = 2
        settings = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}
        self.direct(0).admin.command("replSetInitiate", {"_id": "rs0", "settings": settings, "members": members})
        self.wait(lambda: self.states().count("SECONDARY") == count - 1)

    def direct(self, number):
        options = {"directConnection": True, "serverSelectionTimeoutMS": 30000}
        return MongoClient("localhost", self.ports[number], **options, **self.login)

    def uri(self):
        return f"mongodb://{','.join(self.hosts)}/?replicaSet=rs0"

    def client(self):
        return MongoClient(self.uri(), serverSelectionTimeoutMS=60000, retryWrites=True, **self.login)

    def states(self):
        status = self.direct(0).admin.command("replSetGetStatus")
        return [member["stateStr"] for member in status["members"]]

    def wait(self, met, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if met():
                    return
            except PyMongoError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"not met: {self.states()}")

    def engines(self):
        status = [self.direct(number).admin.command("serverStatus") for number in range(len(self.ports))]
        return [found["storageEngine"]["name"] for found in status]

    def config(self):
        members = self.client().admin.command("replSetGetConfig")["config"]["members"]
        return [{name: member[name] for name in ("host", "priority", "hidden", "votes", "tags")} for member in members]

    def line(self, engine, *options):
        hook = f"{sys.executable} {self.folder}/hook.py {self.folder}"
        return [tenon(), "engine-change", "--uri", self.uri(), "--to-engine", engine, "--restart-hook", hook, *options]

    def change(self, engine, *options, timeout=600):
        done = subprocess.run(self.line(engine, *options), capture_output=True, text=True, timeout=timeout)
        return done.returncode, done.stdout, done.stderr

    def calls(self):
        path = self.folder / "calls"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def stop(self):
        for port in self.ports:
            pid = json.loads((self.folder / f"{port}.json").read_text())["pid"]
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process = getattr(self, f"process_{port}")
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def members(tmp_path):
    made = Members(tmp_path, PAIR[0])
    yield made
    made.stop()


class Writers:
    """Write with w: majority until they are told to end, and remember what was acknowledged and what failed."""

    def __init__(self, members, count=2):
        self.over = threading.Event()
        self.acknowledged, self.failed = [], []
        self.threads = [threading.Thread(target=self.write, args=(members, number)) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def write(self, members, number):
        client = members.client()
        concern = WriteConcern("majority", wtimeout=60000)
        collection = client.shop.get_collection(f"orders{number}", write_concern=concern)
        counts = client.shop.get_collection("counts", write_concern=concern)
        at = 0
        while not self.over.is_set():
            at += 1
            try:
                collection.insert_one({"_id": at, "text": "x" * (at % 500)})
                counts.update_one({"_id": number}, {"$inc": {"n": 1}}, upsert=True)
                self.acknowledged.append((number, at))
            except PyMongoError as error:
                self.failed.append(error)
        client.close()

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def check(self):
        """Drivers send a write again once. Two elections in a row can be seen, and nothing else."""
        assert len(self.acknowledged) > 10
        # Of a write that waits for the majority, an election is told as a write concern error that can be sent again.
        of_elections = (NotPrimaryError, AutoReconnect, WriteConcernError)
        others = [error for error in self.failed if not isinstance(error, of_elections)]
        assert others == []
        refused = [error for error in self.failed if isinstance(error, WriteConcernError)]
        assert all(error.has_error_label("RetryableWriteError") for error in refused), refused


def fill(members):
    client = members.client()
    client.shop.items.insert_many([{"_id": n, "name": f"item {n}", "group": n % 7} for n in range(3000)])
    client.shop.items.create_index("group")
    client.shop.create_collection("news", capped=True, size=1 << 20)
    client.shop.news.insert_many([{"n": n} for n in range(200)])


def check(members, writers, engine, before):
    # The preferred member takes over again.
    members.wait(lambda: members.states() == ["PRIMARY", "SECONDARY", "SECONDARY"])
    assert members.engines() == [engine] * 3
    after = members.config()
    assert after == before, "everything else is as it was"
    client = members.client()
    client.shop.get_collection("end", write_concern=WriteConcern(3, wtimeout=60000)).insert_one({"engine": engine})
    digests = []
    for number in range(3):
        found = members.direct(number)
        digests.append(found.shop.command("dbHash")["collections"])
        shop = found.get_database("shop", read_preference=ReadPreference.SECONDARY_PREFERRED)
        assert set(shop.items.index_information()) == {"_id_", "group_1"}
        assert [entry["n"] for entry in shop.news.find()] == list(range(200)), "in the order of insertion"
    assert digests[0] == digests[1] == digests[2]
    for number in range(len(writers.threads)):
        mine = [at for of, at in writers.acknowledged if of == number]
        found = {entry["_id"] for entry in client.shop[f"orders{number}"].find({}, {"_id": 1})}
        assert set(mine) <= found, "an acknowledged document is lost"
        assert client.shop.counts.find_one({"_id": number})["n"] >= len(mine)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_there_and_back_under_writes(tmp_path, pair):
    members = Members(tmp_path, pair[0])
    try:
        there_and_back(members, pair)
    finally:
        members.stop()


def there_and_back(members, pair):
    fill(members)
    before = members.config()
    writers = Writers(members)
    code, out, err = members.change(pair[1], "--dry-run")
    assert code == 0 and out.count("stop, wipe, start") == 3 and not members.calls(), out + err
    for engine in (pair[1], pair[0]):
        # The writers never rest, so the comparison at the end has to hold them back.
        code, out, err = members.change(engine, "--lock")
        assert code == 0, out + err
        assert "are the same on 3 members" in out, out
        assert len(writers.acknowledged) > 0
    writers.end()
    writers.check()
    calls = members.calls()
    assert [call.split()[1] for call in calls] == [pair[1]] * 3 + [pair[0]] * 3, "each member once for each engine"
    assert sorted(call.split()[0] for call in calls[:3]) == sorted(map(str, members.ports))
    check(members, writers, pair[0], before)
    # There is nothing left to be done, and nobody is touched.
    code, out, err = members.change(pair[0], "--json")
    assert code == 0 and len(members.calls()) == 6, out + err
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events][:3] == ["member"] * 3
    assert not any("wipe" in event.get("step", "") for event in events)


def test_a_run_that_is_killed_is_gone_on_with(members):
    fill(members)
    before = members.config()
    writers = Writers(members, 1)
    # After the first reconfiguration, after the first restart, and in the middle of the rest.
    for seen in ("reconfigure to hidden", "stop, wipe, start", "reconfigure back", "step down"):
        process = subprocess.Popen(members.line(PAIR[1], "--no-verify"), stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if "] " in line and seen in line:
                break
        process.kill()
        process.wait()
        process.stdout.close()
    code, out, err = members.change(PAIR[1], "--lock")
    assert code == 0, out + err
    writers.end()
    writers.check()
    check(members, writers, PAIR[1], before)


def test_a_person_may_do_it(members):
    fill(members)
    host = members.hosts[2]
    line = members.line(PAIR[1], "--member", host, "--json")
    at = line.index("--restart-hook")
    line[at : at + 2] = ["--systemd", "tenond@3"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    told = []
    for text in process.stdout:
        event = json.loads(text)
        told.append(event.get("text", event["event"]))
        if told[-1].endswith("systemctl start tenond@3"):
            break
    data = str(members.folder / str(members.ports[2]) / "data")
    assert "On localhost:" in told and any(data in line for line in told), told
    assert members.calls() == [], "it was not done yet"
    done = {**os.environ, "TENON_STEP": "stop-wipe-start", "TENON_HOST": host, "TENON_ENGINE": PAIR[1]}
    subprocess.run([sys.executable, str(members.folder / "hook.py"), str(members.folder)], env=done, check=True)
    rest = [json.loads(text) for text in process.stdout]
    assert process.wait() == 0, rest
    assert members.engines() == [PAIR[0], PAIR[0], PAIR[1]]
    assert [event["event"] for event in rest].count("done") == 3, rest


def test_a_member_that_stays_behind_is_not_compared(members):
    """It shows the others' state an hour later: the comparison failed, and with --lock held writes back for a minute first."""
    client = members.client()
    config = client.admin.command("replSetGetConfig")["config"]
    config["version"] += 1
    config["members"][2].update(priority=0, hidden=True, secondaryDelaySecs=3600)
    client.admin.command("replSetReconfig", config)
    client.shop.c.insert_one({"_id": 1})
    # All have the engine: members are only compared.
    code, out, err = members.change(PAIR[0], "--lock")
    assert code == 0, out + err
    assert f"{members.hosts[2]} stays 3600 s behind and is not compared" in out and "on 2 members" in out, out


def test_with_users_that_a_wiped_member_does_not_know_yet(tmp_path):
    members = Members(tmp_path, PAIR[0], key="c2VjcmV0IG9mIHRoZSBjbHVzdGVy")
    try:
        roles = ["clusterAdmin", "readAnyDatabase", {"role": "read", "db": "local"}]
        members.client().admin.command("createUser", "amy", pwd="amy's", roles=roles)
        fill(members)
        hidden = {**os.environ, "TENON_PASSWORD": "amy's"}
        line = members.line(PAIR[1], "--username", "amy", "--member", members.hosts[2])
        done = subprocess.run(line, capture_output=True, text=True, timeout=300, env=hidden)
        assert done.returncode == 0, done.stdout + done.stderr
        assert members.engines() == [PAIR[0], PAIR[0], PAIR[1]] and len(members.calls()) == 1, done.stdout
        assert "are the same on 3 members" in done.stdout, done.stdout
        line[line.index("amy")] = "bob"
        done = subprocess.run(line, capture_output=True, text=True, timeout=300, env=hidden)
        assert done.returncode == 1 and "Authentication failed" in done.stderr, done.stderr
    finally:
        members.stop()


def test_what_cannot_be_is_refused_before_anything_is_stopped(members):
    code, _, err = members.change(PAIR[1], "--member", "localhost:1")
    assert code == 1 and "localhost:1 is no member" in err, err
    # Members are wiped before they could say so themselves; an alias would be another name for what they then have.
    for engine in ("betre", "wiredTiger"):
        for options in (["--dry-run"], []):
            code, _, err = members.change(engine, *options)
            assert code == 1 and f"no storage engine '{engine}'; it has: " in err and PAIR[1] in err, err
    assert members.engines() == [PAIR[0]] * 3
    done = subprocess.run(
        [tenon(), "engine-change", "--uri", members.uri(), "--to-engine", PAIR[1]], capture_output=True, text=True
    )
    assert done.returncode == 1 and "--restart-hook" in done.stderr
    # Two votes: none of the two can be missed.
    config = members.client().admin.command("replSetGetConfig")["config"]
    config["members"][2]["votes"] = config["members"][2]["priority"] = 0
    config["version"] += 1
    members.client().admin.command("replSetReconfig", config)
    code, _, err = members.change(PAIR[1], "--member", members.hosts[1])
    assert code == 1 and "1 of 2 votes" in err and "Set its votes" in err, err
    # The one without a vote can.
    code, out, err = members.change(PAIR[1], "--member", members.hosts[2])
    assert code == 0, out + err
    assert members.engines() == [PAIR[0], PAIR[0], PAIR[1]]
    # A hook that fails ends the run, and the member stays aside until it is run again.
    done = subprocess.run(
        [*members.line(PAIR[0], "--member", members.hosts[2])[:-4], "--restart-hook", "exit 3", "--member", members.hosts[2]],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1 and "the hook failed" in done.stderr, done.stderr
    assert members.config()[2]["hidden"]
    code, out, err = members.change(PAIR[1], "--member", members.hosts[2])
    assert code == 1 and f"--to-engine {PAIR[0]}" in err, err
    code, out, err = members.change(PAIR[0], "--member", members.hosts[2])
    assert code == 0, out + err
    assert not members.config()[2]["hidden"] and members.engines() == [PAIR[0]] * 3
