"""A replica set under faults, and clients whose histories are checked.

Members are killed, stopped and held up, lead and cease to, lose their data, cannot reach each other, find their disk full, and have
their clock put forward and back (small file systems take root, clocks a C compiler); meanwhile clients insert,
increment, run transactions, write and read registers, read their own writes on secondaries, and follow a change stream. What they
were promised has to be so at the end:

- no acknowledged insert is lost, and increments that are sent again happen once;
- transactions on lists are isolated, in real time (`isolation.py`);
- linearizable reads of registers are that; sessions read their writes and never go back; a change stream misses nothing
  (`histories.py`);
- all members have the same, `validate` is clean and counts are right.

    python tests/crash/set_chaos.py --seconds 600 --members 5 [--seed N] [--engines btree,inMemory]
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "e2e"), str(Path(__file__).parent)]

from histories import Operation, bad_stream, broken_promises, not_linearizable  # noqa: E402
from isolation import check  # noqa: E402
from list_workload import Workload  # noqa: E402
from members import ReplicaSet, free_port, wait  # noqa: E402
from pymongo import MongoClient, ReadPreference, WriteConcern  # noqa: E402
from pymongo.errors import PyMongoError  # noqa: E402
from pymongo.read_concern import ReadConcern  # noqa: E402
from server import ENGINES  # noqa: E402

# A list history is checked as a whole, which takes memory by the square of its length.
EPOCH_SECONDS = 20
REGISTERS = 4
COUNTERS = 6
# Of a member's disk, when it can be made.
DISK_MB = 3000


class CutSet(ReplicaSet):
    """A set whose members reach each other, and are reached, through `partition.py`; each has a clock of its own, and a disk."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.disks, self.shim = [], self.build_shim()
        for each in self.members:
            if os.geteuid() == 0 and subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(each.directory)], check=False
            ).returncode == 0:
                self.disks.append(each.directory)
                each.data.mkdir()
                each.log = self.directory / f"member{each.number}.log"
            if self.shim:
                self.set_clock(each, 0)
                each.prefix = ["env", f"LD_PRELOAD={self.shim}", f"TENON_CLOCK={self.clock(each)}"]

    def build_shim(self):
        """What changes the time of day of a process; None without a compiler."""
        shim, source = self.directory / "clock.so", Path(__file__).parent / "clock.c"
        compiler = shutil.which("cc")
        line = [compiler, "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl"]
        return shim if compiler and subprocess.run(line, check=False).returncode == 0 else None

    def clock(self, member):
        return self.directory / f"clock{member.number}"

    def set_clock(self, member, seconds):
        # In place: the process has it mapped.
        descriptor = os.open(self.clock(member), os.O_RDWR | os.O_CREAT)
        os.pwrite(descriptor, struct.pack("=q", seconds * 10**9), 0)
        os.close(descriptor)

    def __enter__(self):
        pairs = []
        for each in self.members:
            through = free_port()
            each.host = f"localhost:{through}"
            pairs.append(f"{through}:{each.port}")
        program = [sys.executable, str(Path(__file__).parent / "partition.py"), *pairs]
        self.network = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.network.stdout.readline() == "ready\n"
        return super().__enter__()

    def __exit__(self, *failure):
        try:
            super().__exit__(*failure)
        finally:
            self.network.stdin.close()
            self.network.wait(30)
            self.network.stdout.close()
            for disk in self.disks:
                if failure[0] is not None:
                    shutil.copytree(disk, disk.with_suffix(".kept"))
                subprocess.run(["umount", "-l", str(disk)], check=False)

    def tell(self, **order):
        """Has the network do something, with the processes as they are now."""
        order["pids"] = [each.process.pid if each.process else 0 for each in self.members]
        self.network.stdin.write(json.dumps(order) + "\n")
        self.network.stdin.flush()
        assert self.network.stdout.readline() == "done\n"


class Clients:
    """The workloads. Each thread has a client, a session where it needs one, and a history of its own."""

    def __init__(self, rs, seed):
        self.rs, self.seed = rs, seed
        self.ended = threading.Event()
        self.failures, self.threads, self.errors = [], [], Counter()
        self.inserted, self.sure, self.unsure = set(), Counter(), Counter()
        self.registers = [[] for _ in range(REGISTERS)]
        self.sessions, self.seen = [], []
        self.numbers = itertools.count()
        self.lists = []
        self.follows, self.expected = False, None

    def connect(self, **options):
        return MongoClient(self.rs.uri(), **{"serverSelectionTimeoutMS": 15000, "socketTimeoutMS": 15000, "heartbeatFrequencyMS": 1000, **options})

    def prepare(self):
        db = self.connect(w="majority").t
        db.counters.insert_many([{"_id": number, "n": 0} for number in range(COUNTERS)])
        db.registers.insert_many([{"_id": number, "v": None} for number in range(REGISTERS)])
        # Rolled back and copied by keys as well as by numbers.
        clustered = {"clusteredIndex": {"key": {"_id": 1}, "unique": True}} if self.seed % 2 else {}
        db.create_collection("inserts", **clustered)
        db.inserts.create_index("pad")

    def start(self):
        works = [self.insert, self.insert, self.increment, self.increment, self.register, self.register, self.register, self.causal, self.causal]
        # The stream sees what comes after its beginning.
        self.begin(self.follow)
        wait(lambda: self.follows or self.failures, "the change stream")
        for place, work in enumerate(works):
            self.begin(self.repeat, work, place)

    def begin(self, work, *arguments):
        def run():
            try:
                work(*arguments)
            except Exception as error:  # noqa: BLE001
                self.failures.append(error)

        # What fails elsewhere ends the program without waiting for these.
        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def repeat(self, work, place):
        """Rounds of a workload until the end. A round that fails is one whose outcome nobody knows."""
        client, rng = self.connect(), random.Random(self.seed * 1000 + place)
        round_of = work(client.t, place, rng)
        for _ in range(1 << 30):
            if self.ended.is_set():
                break
            try:
                next(round_of)
            except PyMongoError as error:
                self.errors[f"{work.__name__}: {type(error).__name__}"] += 1
                round_of = work(client.t, place, rng)
        client.close()

    def insert(self, db, place, rng):
        weak = db.get_collection("inserts", write_concern=WriteConcern(w=1))
        while True:
            key = {"writer": place, "number": next(self.numbers)}
            # What w: 1 acknowledged stays as well as what a majority did.
            collection = weak if rng.random() < 0.5 else db.inserts
            collection.insert_one({"_id": key, "pad": "x" * rng.randrange(400)})
            self.inserted.add(tuple(key.values()))
            yield

    def increment(self, db, place, rng):
        while True:
            number = rng.randrange(COUNTERS)
            try:
                db.counters.update_one({"_id": number}, {"$inc": {"n": 1}})
                self.sure[number] += 1
            except PyMongoError:
                self.unsure[number] += 1
                raise
            yield

    def register(self, db, place, rng):
        linearizable = db.get_collection("registers", read_concern=ReadConcern("linearizable"))
        while True:
            number = rng.randrange(REGISTERS)
            is_write = rng.random() < 0.4
            operation = Operation("write" if is_write else "read", next(self.numbers) if is_write else None, time.monotonic())
            self.registers[number].append(operation)
            if is_write:
                db.registers.update_one({"_id": number}, {"$set": {"v": operation.value}})
            else:
                operation.value = linearizable.find_one({"_id": number})["v"]
            operation.end = time.monotonic()
            yield

    def causal(self, db, place, rng):
        """One session at a time writes a rising number and reads it somewhere."""
        events, key = [], f"{place}:{next(self.numbers)}"
        self.sessions.append(events)
        with db.client.start_session(causal_consistency=True) as session:
            majority = WriteConcern("majority")
            own = db.get_collection("causal", write_concern=majority, read_concern=ReadConcern("majority"))
            number = 0
            while True:
                if rng.random() < 0.4:
                    number += 1
                    events.append(("lost", number))
                    own.update_one({"_id": key}, {"$set": {"n": number}}, upsert=True, session=session)
                    events[-1] = ("wrote", number)
                else:
                    preference = rng.choice([ReadPreference.SECONDARY, ReadPreference.SECONDARY_PREFERRED, ReadPreference.NEAREST])
                    document = own.with_options(read_preference=preference).find_one({"_id": key}, session=session)
                    events.append(("read", document["n"] if document else 0))
                yield

    def follow(self):
        """A change stream, resumed by hand when even the driver gives up."""
        client, token = self.connect(), None
        while not self.ended.is_set() or not self.has_seen_all():
            try:
                with client.t.inserts.watch(max_await_time_ms=200, resume_after=token) as stream:
                    token = stream.resume_token or token
                    self.follows = True
                    while not self.ended.is_set() or not self.has_seen_all():
                        change = stream.try_next()
                        token = stream.resume_token or token
                        if change is not None:
                            self.seen.append(tuple(change["documentKey"]["_id"].values()))
            except PyMongoError as error:
                self.errors[f"stream: {type(error).__name__}"] += 1
        client.close()

    def has_seen_all(self):
        return self.expected is not None and (len(self.seen) >= len(self.expected) or time.monotonic() > self.follow_until)

    def begin_lists(self):
        # Statements are sent once: an attempt whose answer is lost is another transaction.
        workload = Workload(lambda: self.connect(retryWrites=False), isolated=True, always_writes=True)
        self.lists.append((workload, workload.start(4)))

    def end_lists(self):
        workload, threads = self.lists[-1]
        workload.stop.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()

    def end(self):
        """On a healthy set: all that is there, against all that was promised. Answers what the clients did."""
        self.end_lists()
        self.ended.set()
        follower, *others = self.threads
        for thread in others:
            thread.join(60)
            assert not thread.is_alive()
        db = self.rs.primary.direct.t
        found = {tuple(each["_id"].values()) for each in db.inserts.find({}, {"_id": 1})}
        self.follow_until = time.monotonic() + 60
        self.expected = found
        follower.join(90)
        assert not follower.is_alive()
        assert not self.failures, self.failures
        return found, {each["_id"]: each["n"] for each in db.counters.find()}

    def broken(self, found, counters):
        """All promises that were not kept."""
        broken = []
        if lost := self.inserted - found:
            broken.append(f"{len(lost)} acknowledged inserts are lost: {sorted(lost)[:5]}")
        for number in range(COUNTERS):
            sure, unsure = self.sure[number], self.unsure[number]
            if not sure <= counters[number] <= sure + unsure:
                broken.append(f"counter {number} is {counters[number]} after {sure} increments and {unsure} that may be")
        for number, history in enumerate(self.registers):
            if reason := not_linearizable([each for each in history if each.kind == "write" or each.end < float("inf")]):
                broken.append(f"register {number}: {reason}")
        for events in self.sessions:
            if reason := broken_promises(events):
                broken.append(f"a causal session: {reason}")
        if reason := bad_stream(self.seen, found):
            broken.append(f"the change stream: {reason}")
        for workload, _ in self.lists:
            for anomaly in check(workload.txns)[:3]:
                broken.append(f"transactions: {anomaly}")
        return broken

    def figures(self):
        outcomes = Counter(txn.outcome for workload, _ in self.lists for txn in workload.txns)
        reads = sum(1 for history in self.registers for each in history if each.kind == "read" and each.end < float("inf"))
        events = Counter(kind for events in self.sessions for kind, _ in events)
        return {
            "inserts": len(self.inserted),
            "increments": sum(self.sure.values()),
            "linearizable reads": reads,
            "causal": dict(events),
            "changes": len(self.seen),
            "transactions": dict(outcomes),
            "errors": dict(self.errors),
        }


class Faults:
    """What happens to the members, one fault at a time or two."""

    def __init__(self, rs, rng):
        self.rs, self.rng = rs, rng
        self.done = Counter()

    def one(self):
        kinds = ["kill", "kill", "pause", "restart", "step down", "isolate", "one way", "halves", "ring", "wipe"]
        kinds += ["full disk", "clock"]
        kind = self.rng.choice(kinds)
        if kind == "full disk" and not self.rs.disks or kind == "clock" and not self.rs.shim:
            return
        self.done[kind] += 1
        getattr(self, kind.replace(" ", "_"))(self.rng.choice(self.rs.members))

    def pause_between(self, shortest, longest):
        time.sleep(self.rng.uniform(shortest, longest))

    def start(self, member):
        member.start()
        self.rs.tell()

    def kill(self, member):
        member.kill()
        if self.rng.random() < 0.3:
            self.step_down(member)
        self.pause_between(0, 2)
        self.start(member)

    def restart(self, member):
        assert member.stop() == 0, member.tail()
        self.start(member)

    def pause(self, member):
        member.process.send_signal(signal.SIGSTOP)
        self.pause_between(0.2, 4)
        member.process.send_signal(signal.SIGCONT)

    def step_down(self, _):
        primary = self.rs.find_primary()
        if primary is None:
            return
        try:
            force = self.rng.random() < 0.5
            primary.direct.admin.command("replSetStepDown", 5, secondaryCatchUpPeriodSecs=self.rng.randrange(3), force=force)
        except PyMongoError:
            # Nobody caught up, or it led no more.
            pass

    def block(self, pairs):
        self.rs.tell(blocked=[list(pair) for pair in pairs], cut=self.rng.random() < 0.3)
        self.pause_between(0.5, 5)
        # A member that is cut off may be killed besides.
        self.rs.tell(blocked=[], cut=self.rng.random() < 0.5)

    def isolate(self, member):
        primary = self.rs.find_primary()
        alone = (primary if primary and self.rng.random() < 0.6 else member).number
        others = [each.number for each in self.rs.members if each.number != alone]
        self.block([(alone, other) for other in others] + [(other, alone) for other in others])

    def one_way(self, member):
        others = [each.number for each in self.rs.members if each is not member]
        hears_nobody = self.rng.random() < 0.5
        self.block([(other, member.number) if hears_nobody else (member.number, other) for other in others])

    def halves(self, _):
        numbers = [each.number for each in self.rs.members]
        self.rng.shuffle(numbers)
        one, other = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
        self.block([pair for a in one for b in other for pair in ((a, b), (b, a))])

    def ring(self, _):
        """Everybody reaches two others; with three members one link is cut."""
        count = len(self.rs.members)
        near = {(a, (a + 1) % count) for a in range(count if count > 3 else 2)}
        pairs = itertools.permutations(range(count), 2)
        self.block([(a, b) for a, b in pairs if (a, b) not in near and (b, a) not in near])

    def clock(self, member):
        """Its clock is put forward or back, and may stay so."""
        self.rs.set_clock(member, self.rng.choice([-86400, -3600, -60, -2, 2, 60, 3600, 86400]))
        self.pause_between(1, 4)
        if self.rng.random() < 0.5:
            self.rs.set_clock(member, 0)

    def full_disk(self, member):
        """Its disk is full for a while. Some engines end their process then, others wait or refuse."""
        ballast = member.directory / "ballast"
        # The last bytes go to who asks for them first: more than once.
        for _ in range(3):
            room = os.statvfs(member.directory)
            with open(ballast, "ab") as file, contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), file.tell(), room.f_bfree * room.f_frsize)
            self.pause_between(0.2, 1.5)
        ballast.unlink()
        if not member.is_running:
            self.done["full disk ended a member"] += 1
            member.bury()
            self.start(member)

    def wipe(self, member):
        """A member's data are gone. Not while another one lacks its vote: a majority has to be left."""
        try:
            self.rs.wait_healthy(patience=20)
        except AssertionError:
            return
        member.kill()
        member.wipe(self.rng.choice(ENGINES))
        self.start(member)


def run(directory, seconds, members, seed, engines=ENGINES):
    rng = random.Random(seed)
    chosen = list(itertools.islice(itertools.cycle(engines), members))
    with CutSet(directory, chosen, election_ms=1000) as rs:
        rs.tell()
        rs.initiate()
        clients, faults = Clients(rs, seed), Faults(rs, rng)
        clients.prepare()
        clients.start()
        clients.begin_lists()
        end, epoch = time.monotonic() + seconds, time.monotonic() + EPOCH_SECONDS
        while time.monotonic() < end:
            faults.pause_between(0.3, 2)
            faults.one()
            dead = [each for each in rs.members if each.process.poll() is not None]
            assert not dead, [(each.number, each.process.returncode, each.tail()) for each in dead]
            if time.monotonic() > epoch:
                rs.wait_healthy()
                finish_lists(rs, clients)
                clients.begin_lists()
                epoch = time.monotonic() + EPOCH_SECONDS
        rs.wait_healthy()
        found, counters = clients.end()
        finish_lists(rs, clients)
        broken = clients.broken(found, counters)
        figures = {"faults": dict(faults.done), **clients.figures()}
        assert not broken, (broken, figures)
        rs.check_equal()
        return figures


def finish_lists(rs, clients):
    """The lists as they are at the end, as one more transaction; on a healthy set."""
    workload, threads = clients.lists[-1]
    workload.client = lambda: MongoClient("127.0.0.1", rs.primary.port, directConnection=True)
    wait(lambda: workload.finish(threads) or True, "the lists")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--engines", type=lambda text: text.split(","), default=ENGINES)
    parser.add_argument("--directory", type=Path, help="keep the members' data and logs there")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        place = arguments.directory or Path(directory)
        print(run(place, arguments.seconds, arguments.members, arguments.seed, arguments.engines))


if __name__ == "__main__":
    main()
