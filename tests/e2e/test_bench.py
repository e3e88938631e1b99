"""`tenon bench` on a real server: every workload ends, what it loads is consistent, and whatever ends a run is told."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from disks import file_system_of
from server import ENGINES, Server, binary, is_in_memory, of_extent, send

MEMBER = ["--replSet", "rs0", "--replSetInitiate"]
TENON = Path(os.environ.get("TENON", Path(binary()).with_name("tenon")))


def bench(*arguments, **options):
    """Everything is measured once unless told otherwise."""
    if arguments[0] not in ("compare", "show") and "--repeat" not in arguments:
        arguments = (*arguments, "--repeat", 1)
    return subprocess.run(
        [str(TENON), "bench", *map(str, arguments)], capture_output=True, text=True, timeout=600, **options
    )


def runs(path):
    return json.loads(Path(path).read_text())["runs"]


def test_every_workload_ends(tmp_path):
    out = tmp_path / "all.json"
    engines = of_extent(ENGINES[:1], ENGINES)
    done = bench(
        "all", "--tenond", binary(), "--engines", ",".join(engines), "--directory", tmp_path, "--scale", 0.02, "--loops", 2,
        "--duration", 1, "--insert-seconds", 60, "--warm-up", 0, "--json", out, "--csv", tmp_path / "all.csv", "--report", tmp_path / "all.html", "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = {(run["configuration"]["label"], run["workload"], run["phase"]) for run in runs(out)}
    phases = {
        "book": ["insert", "read", "clients", "search", "filter", "scanFilter"],
        "linkbench": ["load", "query"],
        "iibench": ["load", "insert"],
        "ycsb": ["load", *"abcdef"],
        "hot": ["load", "insertAndCount"],
        "transactions": ["load", "disjoint", "hot"],
    }
    assert found == {(engine, name, phase) for engine in engines for name, list_ in phases.items() for phase in list_}
    for run in runs(out):
        assert run["outcome"] == {"state": "complete"}
        assert sum(operation["count"] for operation in run["operations"].values()) > 0, run
        assert all(operation["errors"] == 0 for operation in run["operations"].values()), run
        assert run["serverCpuUs"] is not None and (run["writtenBytes"] is None) == is_in_memory(tmp_path)
    first = next(run for run in runs(out) if run["workload"] == "book" and run["phase"] == "insert")
    assert first["startSeconds"] > 0 and first["stopSeconds"] > 0 and first["fileBytes"] > 0
    for name, phase, operation in [("book", "insert", "insert"), ("ycsb", "load", "insert"), ("book", "read", "read")]:
        for run in (run for run in runs(out) if (run["workload"], run["phase"]) == (name, phase)):
            times = 2 if phase == "read" else 1
            assert run["operations"][operation]["count"] == int(run["parameters"]["documents"]) * times, "each one counts"
    read = next(run for run in runs(out) if run["workload"] == "book" and run["phase"] == "read")
    assert [iteration["cold"] for iteration in read["iterations"]] == [True, False]
    page = (tmp_path / "all.html").read_text()
    assert all(word in page for word in ["linkbench", "Table 10.3", *engines])
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert len(lines) > len(runs(out))
    assert not list(tmp_path.glob("tenon-bench-*")), "the data was removed"


@pytest.mark.parametrize("indexes", ["covering", "few"])
def test_links_and_their_counts_agree(server, client, tmp_path, indexes):
    out = tmp_path / "linkbench.json"
    done = bench(
        "linkbench", "--uri", server.uri(), "--indexes", indexes, "--scale", 0.03, "--clients", 8, "--duration", 3,
        "--keep", "--json", out, "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    database = client.linkdb
    visible = {}
    for link in database.link.find({"visibility": 1}):
        key = (link["id1"], link["link_type"])
        visible[key] = visible.get(key, 0) + 1
    # The index of `few` on counts is not unique, as published: two clients that add a node's first links at the same time may each
    # insert a count. Together they are right.
    counts = {}
    for count in database.count.find():
        counts.setdefault((count["id"], count["link_type"]), []).append(count["count"])
    assert len(visible) > 1000
    assert {key: sum(parts) for key, parts in counts.items() if sum(parts) != 0} == visible
    if indexes == "covering":
        assert all(len(parts) == 1 for parts in counts.values()), "its index is unique"
    query = next(run for run in runs(out) if run["phase"] == "query")
    assert set(query["operations"]) >= {"addLink", "deleteLink", "updateLink", "getLinkList", "addNode"}
    client.drop_database("linkdb")


def test_io_bound_queries_have_little_cache_or_are_skipped(tmp_path):
    out = tmp_path / "out.json"
    done = bench(
        "linkbench", "--tenond", binary(), "--engines", ",".join(ENGINES), "--indexes", "few", "--scale", 0.02, "--duration", 1, "--warm-up", 0,
        "--io-bound", "--directory", tmp_path, "--json", out, "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    bound = [run for run in runs(out) if run["parameters"].get("bound") == "io"]
    assert [run["configuration"]["label"] for run in bound] == ENGINES
    assert {run["parameters"]["cacheBytes"] for run in bound} == {str(16 << 20)}, "the same for all"
    for run in bound:
        engine = run["configuration"]["label"]
        if engine == "inMemory":
            assert run["outcome"] == {"state": "skipped", "message": f"{engine} has no cache to limit"}
            continue
        assert run["outcome"] == {"state": "complete"}
        size = f"cacheSize: {16 << 20}" if engine == "betree" else "cacheSizeGB: 0.0156"
        assert size in run["configuration"]["yaml"], run["configuration"]
        assert any("I/O-bound: a cache of 16 MiB" in note for note in run["notes"])
    assert "skipped: inMemory has no cache to limit" in done.stdout


def test_iibench_inserts_what_its_definition_says(server, client, tmp_path):
    done = bench("iibench", "--uri", server.uri(), "--scale", 0.02, "--query-threads", 1, "--keep", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    purchases = client.iibench.purchases_index
    assert purchases.count_documents({}) == 20_000
    assert len(purchases.index_information()) == 4
    document = purchases.find_one()
    assert document["cf1"].endswith("a" * 128) and 0 <= document["price"] < 1005
    client.drop_database("iibench")


def test_transactions_tell_of_conflicts_and_add_up(tmp_path):
    out = tmp_path / "transactions.json"
    with Server(tmp_path / "server", ENGINES[0], options=MEMBER) as server:
        # The second one meets sessions that the server knows.
        for _ in range(2):
            done = bench(
                "transactions", "--uri", server.uri(), "--clients", 16, "--scale", 0.02, "--duration", 2, "--warm-up", 0.5, "--reads", 1, "--updates", 3,
                "--backoff", "exponential,none", "--write-concern", "majority", "--keep", "--json", out, "--report", tmp_path / "out.html", "--quiet",
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
        counters = server.client().transactions
        # All that was counted is of the last call, warm-up included; half a transaction is nowhere.
        sums = {name: sum(row["n"] for row in counters[name].find()) for name in ["disjoint", "hot"]}
    found = {(run["phase"], run["parameters"].get("backoff")): run for run in runs(out)}
    assert list(found) == [("load", None), ("disjoint", None), ("hot", "exponential"), ("hot", "none")]
    for (phase, backoff), run in found.items():
        assert run["outcome"] == {"state": "complete"} and run["clients"] == 16
        if phase == "load":
            continue
        operation, figures = run["operations"]["transaction"], run["figures"]
        assert operation["count"] > 0 and operation["errors"] == 0
        assert (figures["restartsPerOperation"] > 0) == (phase == "hot"), "only these are in conflict"
        assert 0 <= figures["slowestClientShare"] <= 1 and figures["longestOperationSeconds"] > 0
        assert sums[phase] % 3 == 0 and sums[phase] >= 3 * operation["count"]
    assert "hot 16 none" in done.stdout and "restarts/op" in done.stdout
    assert "aborted/committed" in (tmp_path / "out.html").read_text()


def test_a_database_that_is_somebodys_is_left_alone(server, client):
    client.hot.orders.insert_one({"_id": 1})
    options = ["hot", "--uri", server.uri(), "--scale", 0.001, "--duration", 1, "--warm-up", 0, "--quiet"]
    for more in ([], ["--keep"]):
        done = bench(*options, *more)
        assert done.returncode == 1 and "has a database hot" in done.stdout + done.stderr, done
        assert client.hot.orders.count_documents({}) == 1
    for more in (["--drop", "--keep"], ["--keep"], []):
        done = bench(*options, *more)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("hot" in client.list_database_names()) == ("--keep" in more)


def test_transactions_need_a_member(server, tmp_path):
    done = bench("transactions", "--uri", server.uri(), "--quiet")
    assert done.returncode == 1 and "is no member of one: start it with --replSet NAME --replSetInitiate" in done.stdout, done.stdout


def test_scan_says_how_cold_it_was(tmp_path):
    out = tmp_path / "scan.json"
    done = bench(
        "scan", "--tenond", binary(), "--engines", ENGINES[-1], "--compressors", "none,zlib", "--scale", 0.02, "--directory", tmp_path,
        "--json", out, "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    cold = [run for run in runs(out) if run["phase"] == "cold"]
    assert cold and all(any("cold" in note for note in run["notes"]) for run in cold)
    assert all(len(run["iterations"]) == 5 for run in runs(out) if run["phase"] == "cached")


def servers(folder):
    """Ids of the processes that `tenon` started with something in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if any(os.fsencode(folder) in word for word in words) and words[0] != os.fsencode(TENON):
            found.append(int(entry.name))
    return found


def counted(pid, *kinds):
    """How many operations of these kinds a server has carried out; 0 while it does not listen yet."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        place = SimpleNamespace(port=int(words[words.index(b"--port") + 1]))
        counters = send(place, "admin", {"serverStatus": 1})["opcounters"]
    except (OSError, ValueError):
        return 0
    return sum(counters[kind] for kind in kinds)


class Session:
    """A call of `tenon bench ycsb` that would take minutes, with its data in `folder`."""

    def __init__(self, folder, *arguments, scale="0.01", tenond=None):
        self.folder, self.json = folder, folder / "out.json"
        line = [
            str(TENON), "bench", "ycsb", "--tenond", str(tenond or binary()), "--engines", ENGINES[0], "--scale", scale, "--workloads", "a",
            "--duration", "120", "--warm-up", "0", "--directory", str(folder / "data"), "--json", str(self.json),
            "--report", str(folder / "out.html"), "--repeat", "1", "--quiet", *arguments,
        ]  # fmt: skip
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(self, stage):
        """Returns the server's process id when the stage, `load` or `measure`, is under way."""
        end = time.monotonic() + 120
        kinds = {"load": ["insert"], "measure": ["query", "update"]}[stage]
        while time.monotonic() < end and self.process.poll() is None:
            found = servers(self.folder)
            # Of the load nothing is kept before its end; the file is there when the timed phase begins.
            if found and (stage == "measure") == self.json.exists() and counted(found[0], *kinds) > 0:
                time.sleep(1.5)
                return found[0]
            time.sleep(0.02)
        self.process.kill()
        raise AssertionError(self.process.communicate())

    def end(self, timeout=60):
        """Exit code and words; nothing is left running, and no data."""
        out, err = self.process.communicate(timeout=timeout)
        assert servers(self.folder) == []
        assert list((self.folder / "data").iterdir()) == [], "the data was removed"
        assert "</html>" in (self.folder / "out.html").read_text(), "there is a page of what was measured"
        return self.process.returncode, out + err

    def last(self):
        return runs(self.json)[-1]


def program(folder, after_version):
    """A server's program that knows its version and then does something else."""
    path = folder / "server.sh"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {binary()} --version\n{after_version}\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("stage", ["start", "load", "measure"])
def test_ctrl_c_stops_the_server_and_keeps_what_was_measured(tmp_path, stage):
    mute = program(tmp_path, f"exec tail -f /dev/null {tmp_path}/server.sh")
    # A program that never answers, a load that takes minutes, a timed phase.
    made = {"start": {"tenond": mute}, "load": {"scale": "100"}, "measure": {}}[stage]
    session = Session(tmp_path, **made)
    if stage == "start":
        time.sleep(2)
        assert session.process.poll() is None
    else:
        session.wait_for(stage)
    session.process.send_signal(signal.SIGINT)
    # It does not wait for the server.
    code, words = session.end(timeout=30)
    assert code == 130 and "what was measured is kept" in words, words
    if stage == "start":
        assert runs(session.json) == []
        return
    last = session.last()
    assert (last["phase"], last["outcome"]) == ({"load": "load", "measure": "a"}[stage], {"state": "interrupted"})
    assert sum(operation["count"] for operation in last["operations"].values()) > 0
    series = last["series"]
    assert set(series["latencyP99Ns"]) == set(series["operations"])
    # On a machine that does much else, the first second may pass before the first reply.
    assert series["operations"] or last["seconds"] < 3


def test_ctrl_c_does_not_wait_for_a_server_that_stands_still(tmp_path):
    session = Session(tmp_path)
    os.kill(session.wait_for("measure"), signal.SIGSTOP)
    time.sleep(1)
    session.process.send_signal(signal.SIGINT)
    code, words = session.end(timeout=30)
    assert code == 130, words
    assert session.last()["outcome"] == {"state": "interrupted"}


def test_ctrl_c_keeps_a_run_whose_server_does_not_stop(tmp_path):
    # The server ends; what it was started by does not.
    told = tmp_path / "told"
    stubborn = program(tmp_path, f'{binary()} "$@"; echo > {told}; exec tail -f /dev/null {tmp_path}/server.sh')
    out = tmp_path / "out.json"
    line = [
        str(TENON), "bench", "book", "--tenond", str(stubborn), "--engines", ENGINES[0], "--scale", "0.01", "--loops", "1",
        "--directory", str(tmp_path / "data"), "--json", str(out), "--quiet",
    ]  # fmt: skip
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while time.monotonic() < end and not told.exists():
        time.sleep(0.05)
    assert told.exists(), "it was never told to end"
    time.sleep(1)
    assert process.poll() is None and not out.exists(), "it waits for all that it has started"
    process.send_signal(signal.SIGINT)
    words = process.communicate(timeout=30)
    assert process.returncode == 130 and servers(tmp_path) == [], words
    (run,) = runs(out)
    assert (run["phase"], run["outcome"]) == ("insert", {"state": "interrupted"})
    assert run["operations"]["insert"]["count"] == 100


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_server_behind_a_wrapper(tmp_path, sent):
    """The wrapper alone was ended, and its processor time was the server's."""
    session = Session(tmp_path, tenond=program(tmp_path, f'{binary()} "$@"'))
    session.wait_for("measure")
    session.process.send_signal(sent)
    if sent == signal.SIGINT:
        code, words = session.end(timeout=30)
        assert code == 130 and session.last()["serverCpuUs"] > 0, words
        return
    session.process.communicate(timeout=30)
    end = time.monotonic() + 30
    while time.monotonic() < end and servers(tmp_path):
        time.sleep(0.1)
    assert servers(tmp_path) == []


def test_who_is_started_by_nohup_outlives_the_terminal(tmp_path):
    out = tmp_path / "out.json"
    line = [
        "nohup", str(TENON), "bench", "ycsb", "--tenond", binary(), "--engines", "inMemory", "--workloads", "c", "--scale", "0.01",
        "--duration", "3", "--warm-up", "0", "--directory", str(tmp_path), "--json", str(out), "--quiet", "--repeat", "1",
    ]  # fmt: skip
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while time.monotonic() < end and not out.exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    words = process.communicate(timeout=60)
    assert process.returncode == 0 and "(interrupted)" not in words[0], words
    assert [run["outcome"]["state"] for run in runs(out)] == ["complete", "complete"]


@pytest.mark.parametrize("stands_still", [False, True])
def test_ctrl_c_leaves_a_running_server_as_it_was(tmp_path, stands_still):
    out = tmp_path / "out.json"
    with Server(tmp_path / "server", ENGINES[0]) as server:
        line = [str(TENON), "bench", "ycsb", "--uri", server.uri(), "--scale", "0.01", "--workloads", "a", "--duration", "120"]
        process = subprocess.Popen([*line, "--json", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 60
        while time.monotonic() < end and not out.exists():
            time.sleep(0.05)
        time.sleep(1)
        if stands_still:
            server.process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=30)
        server.process.send_signal(signal.SIGCONT)
        assert process.returncode == 130, said
        assert ("may be left behind" in said) == stands_still
        if not stands_still:
            assert "ycsb" not in server.client().list_database_names()
    assert runs(out)[-1]["outcome"] == {"state": "interrupted"}
    assert {run["configuration"]["label"] for run in runs(out)} == {f"127.0.0.1:{server.port}"}


def test_ctrl_c_leaves_no_transaction_open(tmp_path):
    """An open transaction keeps its collection from being dropped, until it expires after a minute."""
    out = tmp_path / "out.json"
    with Server(tmp_path / "server", ENGINES[0], options=MEMBER) as server:
        line = [str(TENON), "bench", "transactions", "--uri", server.uri(), "--clients", "32", "--scale", "0.01", "--duration", "60", "--json", str(out)]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 60
        while time.monotonic() < end and not out.exists():
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 130 and "may be left behind" not in said, said
        assert "transactions" not in server.client().list_database_names()
    assert [(run["phase"], run["outcome"]["state"]) for run in runs(out)] == [("load", "complete"), ("disjoint", "interrupted")]


@pytest.mark.parametrize("stage", ["load", "measure"])
def test_a_server_that_dies_is_told(tmp_path, stage):
    session = Session(tmp_path, scale={"load": "100", "measure": "0.01"}[stage])
    os.kill(session.wait_for(stage), signal.SIGKILL)
    code, words = session.end()
    assert code == 1 and "FAILED" in words, words
    assert "Connection accepted" not in words, "each connection that came says nothing about the end"
    outcome = session.last()["outcome"]
    assert outcome["state"] == "failed" and "has ended by itself (signal: 9 (SIGKILL))" in outcome["message"], outcome


def test_a_server_that_does_not_start_is_told_in_its_own_words(tmp_path):
    session = Session(tmp_path, tenond=program(tmp_path, "echo the flux is broken; exit 7"))
    code, words = session.end()
    assert code == 1 and "the flux is broken" in words, words
    assert session.last()["phase"] == "start" and "exit status: 7" in session.last()["outcome"]["message"]


def test_a_full_disk_is_told(tmp_path):
    with file_system_of(tmp_path / "data", "200m"):
        session = Session(tmp_path, scale="100")
        code, words = session.end(timeout=120)
        assert code == 1 and "is full" in words, words
        assert session.last()["outcome"]["state"] == "failed"
        assert session.last()["operations"]["insert"]["count"] > 0


def test_repetitions_take_turns(tmp_path):
    out = tmp_path / "out.json"
    done = bench(
        "ycsb", "--tenond", binary(), "--engines", f"{ENGINES[0]},inMemory", "--workloads", "c", "--scale", 0.01, "--duration", 1,
        "--warm-up", 0, "--repeat", 4, "--directory", tmp_path, "--json", out, "--report", tmp_path / "out.html", "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    shares = [run["othersCpuShare"] for run in runs(out) if run["phase"] == "c"]
    assert all(0 <= share <= 1 for share in shares), shares
    order = [(run["repetition"], run["configuration"]["label"]) for run in runs(out) if run["phase"] == "c"]
    first, second = ENGINES[0], "inMemory"
    assert order == [(0, first), (0, second), (1, second), (1, first), (2, first), (2, second), (3, second), (3, first)]
    assert "measured 4 times, in turns" in (tmp_path / "out.html").read_text()
    shown = bench("show", out, "--markdown", tmp_path / "out.md", "--report", tmp_path / "again.html", "--title", "Four times")
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "again.html").read_text() == (tmp_path / "out.html").read_text()
    text = (tmp_path / "out.md").read_text()
    assert text.startswith("# Four times\n") and "each 4 times in turns" in text and "| c | " in text
    assert bench("show", out).stdout.count("\n") > 16
    session = json.loads(out.read_text())
    # On a machine that does much else repetitions differ, and nothing can be told of throughput.
    firsts = {(run["configuration"]["label"], run["phase"]): run for run in session["runs"] if run["repetition"] == 0}
    alike = [firsts[run["configuration"]["label"], run["phase"]] | {"repetition": run["repetition"], "othersCpuShare": 0} for run in session["runs"]]
    (tmp_path / "alike.json").write_text(json.dumps(session | {"runs": alike}))
    same = bench("compare", tmp_path / "alike.json", tmp_path / "alike.json", "--check")
    assert same.returncode == 0 and ", 0 worse," in same.stdout and "FAILED" not in same.stdout, same.stdout
    failing = json.loads(json.dumps(session | {"runs": alike}))
    failing["runs"][-1]["operations"]["read"]["errors"] = 90
    (tmp_path / "failing.json").write_text(json.dumps(failing))
    worse = bench("compare", tmp_path / "alike.json", tmp_path / "failing.json", "--check")
    assert worse.returncode == 1 and "90 operations of a run of" in worse.stdout, worse.stdout
    alone = session | {"runs": [run for run in session["runs"] if run["repetition"] == 0]}
    (tmp_path / "once.json").write_text(json.dumps(alone))
    once = bench("compare", tmp_path / "once.json", tmp_path / "once.json", "--check")
    assert once.returncode == 3 and "FAILED: of no throughput" in once.stdout, once.stdout
    empty = json.loads(out.read_text()) | {"runs": []}
    (tmp_path / "empty.json").write_text(json.dumps(empty))
    nothing = bench("compare", out, tmp_path / "empty.json", "--check")
    assert nothing.returncode == 1 and "Nothing was compared" in nothing.stdout, nothing.stdout


def test_a_configuration_file_is_not_the_whole_of_its_server(tmp_path):
    """The production server's pid file was removed and its audit log written to, or the server went away as a daemon."""
    pid, audit, file = tmp_path / "mongod.pid", tmp_path / "audit.json", tmp_path / "mongod.conf"
    pid.write_text("4711")
    audit.write_text("theirs\n")
    file.write_text(
        f"processManagement: {{fork: true, pidFilePath: {pid}}}\n"
        f"auditLog: {{destination: file, format: JSON, path: {audit}}}\n"
        "net: {bindIpAll: true, tls: {mode: requireTLS, certificateKeyFile: /nonexistent.pem}}\n"
        "systemLog: {destination: syslog}\nstorage: {engine: inMemory}\n"
        "replication: {replSetName: theirs}\nsecurity: {authorization: enabled}\n"
    )
    out = tmp_path / "out.json"
    done = bench(
        "ycsb", "--tenond", binary(), "--configs", file, "--workloads", "c", "--scale", 0.01, "--duration", 1, "--warm-up", 0,
        "--directory", tmp_path, "--json", out, "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (pid.read_text(), audit.read_text()) == ("4711", "theirs\n")
    told = "left out of the configuration file: processManagement.fork, processManagement.pidFilePath, auditLog"
    told += ", net.tls, replication.replSetName, security.authorization"
    assert all(told in run["notes"] for run in runs(out)), runs(out)
    assert servers(tmp_path) == []


def test_a_document_that_is_gone_fails_the_run(server, client, tmp_path):
    out = tmp_path / "out.json"
    line = [str(TENON), "bench", "ycsb", "--uri", server.uri(), "--workloads", "c", "--scale", "0.01", "--duration", "60", "--warm-up", "0"]
    process = subprocess.Popen([*line, "--json", str(out), "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while time.monotonic() < end and not out.exists():
        time.sleep(0.05)
    loaded = client.ycsb.usertable
    gone = [document["_id"] for document in loaded.find({}, {"_id": 1}).limit(500)]
    loaded.delete_many({"_id": {"$in": gone}})
    shown, said = process.communicate(timeout=60)
    assert process.returncode == 1, shown + said
    last = runs(out)[-1]
    assert last["outcome"]["state"] == "failed" and "lost: a document that was inserted" in last["outcome"]["message"], last


def test_choices_that_are_not_possible_are_refused_at_once(tmp_path):
    for arguments, words in [
        (["ycsb", "--uri", "mongodb://127.0.0.1:1/?tls=true"], "the option tls is not supported"),
        (["ycsb", "--tenond", binary(), "--rate", "1e-300"], "--rate is from 0.000001"),
        (["ycsb", "--uri", "mongodb://u:p@h"], "authentication"),
        (["ycsb", "--tenond", binary(), "--workloads", "z"], "no workload"),
        (["ycsb", "--tenond", binary(), "--workloads", ""], "choose YCSB's workloads"),
        (["iibench", "--tenond", binary(), "--rate", "10", "--query-threads", "1"], "leave --query-threads out"),
        (["linkbench", "--uri", "127.0.0.1:1", "--io-bound"], "cannot be used with '--io-bound'"),
        (["ycsb", "--uri", "127.0.0.1:1", "--cache", "64"], "cannot be used with '--cache"),
        (["ycsb", "--cache", str(2**44)], "--cache"),
        (["ycsb", "--tenond", binary(), "--json", "/dev/null"], "is no file that could be replaced"),
        (["compare", "a.json", "b.json", "--tolerance", "nan"], "a share is"),
        (["show", "/nonexistent.json"], "tenon: reading /nonexistent.json: No such file or directory (os error 2)\n"),
        (["ycsb", "--tenond", "/nonexistent"], "no program"),
        (["ycsb", "--tenond", binary(), "--engines", "nonesuch", "--directory", str(tmp_path)], "nonesuch"),
        (["ycsb", "--tenond", binary(), "--json", "/nonexistent/x.json"], "no directory"),
        (["ycsb", "--scale", "0"], "--scale"),
        (["transactions", "--hot-documents", "1"], "touches 2 different documents"),
    ]:
        done = bench(*arguments)
        assert done.returncode != 0 and words in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_replica_set_is_measured_and_loses_nothing(tmp_path):
    out = tmp_path / "set.json"
    engines = [ENGINES[0], "inMemory"]
    done = bench(
        "replica-set", "--tenond", binary(), "--engines", ",".join(engines), "--scale", 0.01, "--clients", 4, "--duration", 1, "--warm-up", 0.5,
        "--failovers", 1, "--election-timeouts", "1500", "--directory", tmp_path / "data", "--json", out, "--csv", tmp_path / "set.csv",
        "--report", tmp_path / "set.html", "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "data").iterdir()) == [], "the data was removed"
    found = runs(out)
    inserts = {(concern, size) for concern in ["1", "majority"] for size in ["1", "3"]}
    for engine in engines:
        of_engine = [run for run in found if run["configuration"]["label"].startswith(f"{engine} x")]
        phases = [(run["phase"], run["configuration"]["options"]["members"]) for run in of_engine]
        assert sorted(phases) == sorted(
            [("insert", "1"), ("insert", "3")] * 2 + [("load", "1")] + [("initialSync", "1")] * 2 + [("failover", "3"), ("stepDown", "3")]
        )
        measured = {
            (run["parameters"]["writeConcern"], run["configuration"]["options"]["members"]) for run in of_engine if run["phase"] == "insert"
        }
        assert measured == inserts
        assert {run["parameters"]["to"] for run in of_engine if run["phase"] == "initialSync"} == set(engines)
    for run in found:
        assert run["outcome"] == {"state": "complete"}, run
        figures, count = run["figures"], sum(operation["count"] for operation in run["operations"].values())
        assert count > 0
        if run["phase"] == "insert" and run["configuration"]["options"]["members"] == "3":
            assert figures["wirePerOperationAndFollowerBytes"] > 1000, "each follower got each document"
            assert figures["catchUpSeconds"] >= 0 and figures["lagMaxSeconds"] >= figures["lagMedianSeconds"] >= 0
            assert {f"follower{number}.catchUpSeconds" for number in (1, 2)} <= set(figures)
        if run["phase"] in ("failover", "stepDown"):
            assert figures["lostWriteCount"] == 0 and figures["failoverCount"] == 1
            assert figures["firstWriteMaxSeconds"] > 0 and ("rejoinMaxSeconds" in figures) == (run["phase"] == "failover")
            told = sum(value for name, value in figures.items() if name.startswith("errors."))
            assert told == run["operations"]["insert"]["errors"] and (run["phase"] == "stepDown" or figures["errors.connection"] > 0)
        if run["phase"] == "initialSync":
            assert run["operations"]["copy"]["count"] == int(run["parameters"]["documents"]) == 2000
            assert figures["megabytesPerSecond"] > 0
    page = (tmp_path / "set.html").read_text()
    for title in ["What a write costs", "How far followers are behind", "When the primary goes", "When a member joins"]:
        assert title in page
    assert "no primary max" in done.stdout and "follower rate" in done.stdout


def test_other_workloads_run_on_sets_of_mixed_engines(tmp_path):
    out = tmp_path / "out.json"
    done = bench(
        "ycsb", "--tenond", binary(), "--member-engines", f"{ENGINES[0]},inMemory,{ENGINES[0]}", "--workloads", "a", "--scale", 0.01,
        "--duration", 1, "--warm-up", 0, "--directory", tmp_path, "--json", out, "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    label = f"{ENGINES[0]}+inMemory+{ENGINES[0]}"
    assert [(run["phase"], run["configuration"]["label"], run["configuration"]["engine"]) for run in runs(out)] == [
        ("load", label, label),
        ("a", label, label),
    ]
    for run in runs(out):
        assert run["outcome"] == {"state": "complete"} and "follower2.catchUpSeconds" in run["figures"]
        assert any("follower1 is" in note for note in run["notes"])
    for arguments, words in [
        (["replica-set", "--uri", "127.0.0.1:1"], "leave --uri out"),
        (["book", "--members", "3"], "leave --members out"),
        (["ycsb", "--members", "8"], "--members"),
        (["ycsb", "--members", "3", "--memory", "100"], "cannot be used with"),
        (["replica-set", "--rate", "10"], "--rate is for --phases insert alone"),
    ]:
        refused = bench(*arguments)
        assert refused.returncode != 0 and words in refused.stdout + refused.stderr, refused.stdout + refused.stderr
