"""Replica sets of several real tenonds, for the tests: made, watched, broken, mended, and compared."""

import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from pymongo import MongoClient, ReadPreference
from pymongo.errors import OperationFailure, PyMongoError
from server import ENGINES, Server

# Below the ports that systems give to outgoing connections: a member that is down gets its own back.
PORTS = range(12000, 32000)
PATIENCE = 60
CLIENTS = Path(os.environ.get("TENON_CLIENTS", os.path.expanduser("~/.cache/tenon/clients")))


def free_port(_taken=set(), _random=random.Random(os.getpid())):  # noqa: B006
    """A port that nobody listens on, and that this process did not hand out before."""
    while True:
        port = _random.choice(PORTS)
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _taken:
            _taken.add(port)
            return port


def wait(reached, what="", patience=PATIENCE):
    """What `reached` answers, once that is something. Errors of the network and of servers count as not yet."""
    end, seen = time.monotonic() + patience, None
    while time.monotonic() < end:
        try:
            if seen := reached():
                return seen
        except PyMongoError as error:
            seen = error
        time.sleep(0.03)
    raise AssertionError(f"never came: {what() if callable(what) else what or reached}; last seen: {seen!r}")


def hold(members):
    """Stops the processes of some members, and waits until none of their threads runs any more."""
    for each in members:
        each.process.send_signal(signal.SIGSTOP)

    def is_held(member):
        tasks = Path(f"/proc/{member.process.pid}/task").iterdir()
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)

    wait(lambda: all(is_held(each) for each in members), "the members stand still")


class Member(Server):
    """One server of a set. `host` is how the set's configuration calls it."""

    def __init__(self, number, directory, engine, options=()):
        super().__init__(directory, engine, options=options, port=free_port())
        self.number = number
        self.host = f"localhost:{self.port}"
        self._direct = None

    @property
    def is_running(self):
        return self.process is not None and self.process.poll() is None

    @property
    def direct(self):
        """A client of this member alone, which reads there whatever it is."""
        if self._direct is None:
            self._direct = MongoClient(
                "127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=30000, read_preference=ReadPreference.NEAREST
            )
        return self._direct

    def hello(self):
        return self.direct.admin.command("hello")

    def state(self):
        """What it says it is: the names of rs.status()."""
        if not self.is_running:
            return "DOWN"
        try:
            status = self.direct.admin.command("replSetGetStatus")
        except PyMongoError as error:
            return {94: "STARTUP", 93: "REMOVED"}.get(getattr(error, "code", None), "DOWN")
        return next(each["stateStr"] for each in status["members"] if each.get("self"))

    def wait_log(self, what, patience=PATIENCE):
        """Until its log has a text, since its last start."""
        wait(lambda: what in self.log.read_text()[self.log_from :], f"{what} in the log of member {self.number}", patience)

    def applied(self):
        return self.direct.admin.command("replSetGetStatus")["optimes"]["appliedOpTime"]["ts"]

    def close_clients(self):
        super().close_clients()
        if self._direct is not None:
            if not self.is_running:
                # To end its sessions a client would look for the server until its time is over.
                self._direct._topology.pop_all_sessions()
            self._direct.close()
            self._direct = None

    def restart(self):
        if self.process is not None:
            assert self.stop() == 0, self.tail()
        return self.start()

    def wipe(self, engine=None):
        """Its data are gone, as with a new disk; another engine may be chosen."""
        assert self.process is None, "a running member keeps its data"
        shutil.rmtree(self.data)
        self.data.mkdir()
        self.engine = engine or self.engine

    def bury(self):
        """Takes note of an end that came from elsewhere."""
        self.process.wait()
        self.process.stdout.close()
        self.process = None
        self.close_clients()


class ReplicaSet:
    """Members on ports of their own. Use as a context: members that were not stopped are, and have to end well.

    Elections are for leaders that have gone: on a machine with much to do one may be silent for a second or two."""

    def __init__(self, directory, engines=3, name="rs0", options=(), election_ms=5000, settings=None, oplog_mb=100):
        if isinstance(engines, int):
            engines = list(itertools.islice(itertools.cycle(ENGINES), engines))
        self.directory, self.name, self.clients = directory, name, []
        self.options = ["--replSet", name, "--oplogSize", str(oplog_mb), "--setParameter", "ttlMonitorSleepSecs=1", *options]
        self.settings = {"electionTimeoutMillis": election_ms, "heartbeatIntervalMillis": 300, **(settings or {})}
        self.members = []
        for engine in engines:
            self.add_server(engine)

    def add_server(self, engine=ENGINES[0], options=()):
        """A server that the set does not know of yet."""
        number = len(self.members)
        self.members.append(Member(number, self.directory / f"member{number}", engine, [*self.options, *options]))
        return self.members[-1]

    def __getitem__(self, number):
        return self.members[number]

    def config(self, members=None, **fields):
        """A configuration of servers; `fields` maps a member's number, as `m0`, to more fields."""
        chosen = self.members if members is None else members
        return {
            "_id": self.name,
            "settings": self.settings,
            "members": [{"_id": each.number, "host": each.host, **fields.get(f"m{each.number}", {})} for each in chosen],
        }

    def start(self):
        for each in self.members:
            each.start()
        return self

    def initiate(self, config=None, on=0):
        self[on].direct.admin.command("replSetInitiate", config or self.config())
        self.wait_healthy()
        return self

    def uri(self, options="", login=""):
        hosts = ",".join(each.host for each in self.members)
        return f"mongodb://{login}{hosts}/?replicaSet={self.name}{options}"

    def client(self, **options):
        client = MongoClient(self.uri(), **{"serverSelectionTimeoutMS": 60000, "heartbeatFrequencyMS": 2000, **options})
        self.clients.append(client)
        return client

    # What there is now.

    @property
    def running(self):
        return [each for each in self.members if each.is_running]

    def states(self):
        return [each.state() for each in self.members]

    def find_primary(self):
        """The member that takes writes; None while there is none, or more than one says so."""
        found = [each for each in self.running if each.state() == "PRIMARY"]
        return found[0] if len(found) == 1 else None

    @property
    def primary(self):
        return wait(self.find_primary, "a primary")

    @property
    def secondaries(self):
        """All that run but the primary, which they follow."""

        def others():
            primary = self.find_primary()
            found = [each for each in self.running if primary and each is not primary]
            return found if found and all(each.state() == "SECONDARY" for each in found) else None

        return wait(others, self.describe)

    def wait_state(self, member, *states, patience=PATIENCE):
        return wait(lambda: member.state() in states, lambda: f"member {member.number} as {states}; {self.describe()}", patience)

    def consensus(self):
        """Who votes, as the primary applied it: by number, whether with a vote; and the instances."""
        document = self.primary.direct.local["system.replset"].find_one()
        return {each["_id"]: each for each in document.get("consensus", {}).get("members", [])}

    def wait_healthy(self, patience=PATIENCE):
        """All of the configuration run, one leads, the others follow it, and votes are as configured."""

        def is_healthy():
            primary = self.find_primary()
            if primary is None:
                return None
            config = primary.direct.admin.command("replSetGetConfig")["config"]
            status = primary.direct.admin.command("replSetGetStatus")
            states = sorted(each["stateStr"] for each in status["members"])
            if states != ["PRIMARY"] + ["SECONDARY"] * (len(states) - 1):
                return None
            known = {each["_id"]: bool(each["votes"]) for each in self.consensus().values()} if len(states) > 1 else {}
            if len(states) > 1 and known != {each["_id"]: each["votes"] > 0 for each in config["members"]}:
                return None
            hosts = {each["host"] for each in config["members"]}
            followers = [each for each in self.running if each is not primary and each.host in hosts]
            return primary if all(each.hello().get("primary") == primary.host for each in followers) else None

        return wait(is_healthy, lambda: f"a healthy set; {self.describe()}", patience)

    def describe(self):
        """What there is instead, for a failure's message."""
        try:
            status = {each.number: each.direct.admin.command("replSetGetStatus") for each in self.running}
            views = {number: [(each["_id"], each["stateStr"]) for each in said["members"]] for number, said in status.items()}
            return f"states {self.states()}; views {views}; consensus {self.consensus() if self.find_primary() else None}"
        except PyMongoError as error:
            return f"states {self.states()}; {error}"

    # Changes.

    def conf(self):
        return self.primary.direct.admin.command("replSetGetConfig")["config"]

    def reconfig(self, change):
        """Has `change` alter the configuration, and makes it the set's."""
        config = self.conf()
        change(config)
        config["version"] += 1
        return self.primary.direct.admin.command("replSetReconfig", config)

    def step_down(self, seconds=10):
        """Leadership goes to another member; answers which."""
        before = []

        def asked():
            before[:] = [self.primary]
            return before[0].direct.admin.command("replSetStepDown", seconds, secondaryCatchUpPeriodSecs=min(seconds, 10))

        # On a machine with much to do it may not be the primary any more when it is asked.
        wait(asked, "somebody to step down")
        return wait(lambda: (now := self.find_primary()) not in before and now, "another primary")

    def make_primary(self, member):
        wait(lambda: member.state() == "PRIMARY" or member.direct.admin.command("replSetStepUp"), "step up")
        wait(lambda: self.find_primary() is member, "the member that stepped up")

    # What must be so.

    def wait_applied(self):
        """All running members show what the primary has written by now."""
        goal = self.primary.applied()
        for each in self.running:
            if each.state() in ("PRIMARY", "SECONDARY"):
                wait(lambda each=each: each.applied() >= goal, f"member {each.number} up to {goal}")

    def check_equal(self, validate=True):
        """Documents, indexes, options and counts are the same on all members that can be read."""
        self.wait_applied()
        members = [each for each in self.running if each.state() in ("PRIMARY", "SECONDARY")]
        views = [contents(each.direct, validate) for each in members]
        for each, view in zip(members[1:], views[1:]):
            for place in sorted(set(view) | set(views[0])):
                assert view.get(place) == views[0].get(place), (
                    f"member {each.number} ({each.engine}) differs from {members[0].number} ({members[0].engine}) in {place}: "
                    f"{view.get(place)} and {views[0].get(place)}"
                )
        return views[0]

    def stop(self):
        for client in self.clients:
            client.close()
        self.clients = []
        codes = {each.number: each.stop() for each in self.members if each.is_running}
        assert not any(codes.values()), codes

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        try:
            dead = [each for each in self.members if each.process is not None and each.process.poll() is not None]
            if kind is None:
                assert not dead, [(each.number, each.process.returncode, each.tail()) for each in dead]
                self.stop()
        finally:
            for each in self.members:
                if each.process is not None:
                    each.kill() if each.is_running else each.bury()


def contents(client, validate=True):
    """All that a member has in user databases, by place."""
    found = {}
    for database in sorted(client.list_database_names()):
        if database in ("admin", "config", "local"):
            continue
        db = client[database]
        digest = db.command("dbHash")
        for collection in db.list_collections():
            name, place = collection["name"], f"{database}.{collection['name']}"
            uuid = collection["info"].get("uuid")
            found[f"options of {place}"] = (collection["type"], collection["options"], uuid)
            if collection["type"] != "collection":
                continue
            if name == "system.profile":
                # Each member's own.
                del found[f"options of {place}"]
                continue
            indexes = sorted(db[name].list_indexes(), key=lambda index: index["name"])
            found[f"indexes of {place}"] = [dict(index) for index in indexes]
            found[f"hash of {place}"] = digest["collections"].get(name)
            count = db.command("count", name)["n"]
            found[f"count of {place}"] = count
            if validate:
                report = db.command("validate", name, full=True)
                assert report["valid"], (place, report)
                assert report["nrecords"] == count, (place, report["nrecords"], count)
    return found


def persist(collection, key):
    """Writes a document, however often leadership changes meanwhile: drivers try twice."""
    wait(lambda: collection.replace_one({"_id": key}, {}, upsert=True).acknowledged, f"a write of {key}")


def code_of(run, *arguments, **options):
    with pytest.raises(PyMongoError) as refused:
        run(*arguments, **options)
    error = refused.value
    return getattr(error, "details", None) and error.details.get("code") or str(error)


def refused_code(run, *arguments):
    with pytest.raises(OperationFailure) as refused:
        run(*arguments)
    return refused.value.code, refused.value.details["errmsg"]


def mongosh(uri, script):
    program = CLIENTS / "node" / "node_modules" / ".bin" / "mongosh"
    done = subprocess.run([str(program), "--quiet", "--norc", uri, "--eval", script], capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


@contextlib.contextmanager
def database(rs, name):
    """A database of a test's own. Afterwards the set is healthy again, and all members have the same."""
    for each in rs.members:
        if not each.is_running:
            each.start()
    rs.wait_healthy()
    client = rs.client()
    client.drop_database(name)
    yield client[name]
    rs.wait_healthy()
    rs.check_equal()
    client.drop_database(name)
