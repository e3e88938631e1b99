"""`tenon stress` with a real server: tables, results, refusals, and what is left when it ends early."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from members import free_port
from server import ENGINES, Server, binary, is_in_memory, of_extent

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = """
matrix:
  sizes: [inRam, largerThanRam]
inRam.documents: 512
largerThanRam: {documents: 8192, memory: 64 MiB}
test: {documentSize: 16 KiB, batch: 64, readBatch: 50, threads: 3}
"""


def tenon():
    return os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")


class Run:
    """One call of `tenon stress` on settings of its own, with its data in `folder`."""

    def __init__(self, folder, settings, *options):
        self.folder = folder / "data"
        file = folder / "settings.yaml"
        file.write_text(settings)
        self.json = folder / "out.json"
        line = [tenon(), "stress", str(file)]
        for option, value in (("--directory", str(self.folder)), ("--tenond", binary())):
            line += [] if option in options else [option, value]
        self.process = subprocess.Popen(
            [*line, "--json", str(self.json), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def end(self, timeout=300):
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def servers(self):
        """Process ids of servers whose data is in the folder."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            words = line.split(b"\0")
            if b"--dbpath" in words and words[words.index(b"--dbpath") + 1].startswith(os.fsencode(self.folder)):
                found.append(int(entry.name))
        return found

    def wait_for_load(self):
        """Waits until an inMemory server holds a part of its documents, and returns its process id."""
        for _ in range(10_000):
            for pid in self.servers():
                try:
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                except (OSError, IndexError):
                    continue
                if pages * os.sysconf("SC_PAGE_SIZE") > 100 << 20:
                    return pid
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)
        raise AssertionError("no server takes documents")

    def runs(self):
        return json.loads(self.json.read_text())["runs"]


LONG = """
matrix: {writeConcerns: SAFE, journal: yes, capped: no, sizes: inRam}
inRam.documents: 2^17
test: {documentSize: 4 KiB, threads: 2}
"""


@pytest.mark.parametrize("engine", of_extent(["btree", "inMemory"], ENGINES))
def test_whole_matrix(tmp_path, engine):
    run = Run(
        tmp_path, SETTINGS, "--engines", engine, "--csv", str(tmp_path / "out.csv"), "--report", str(tmp_path / "o.html")
    )
    code, out, err = run.end()
    assert code == 0, out + err
    tables = out[out.index("Test Results 1:") :]
    rows = [line.split() for line in tables.splitlines() if line[2:4].strip() in set("ABCDEFGHIJKL")]
    in_ram = {row[0]: row for row in rows[:12]}
    assert list(in_ram) == list("ABCDEFGHIJKL")
    for row in in_ram.values():
        if row[1] == "SAFE" or (row[1] == "FSYNC_SAFE" and row[2] == "Yes"):
            assert row[-1] == "100%", tables
        elif row[1] == "FSYNC_SAFE":
            assert "refused" in row, tables
    assert "cannot use 'j' option when a host does not have journaling enabled" in tables
    if engine == "inMemory":
        assert "Not possible: inMemory keeps all data in memory." in tables
    else:
        assert len(rows) == 24, tables
    runs = run.runs()
    reads = [made for made in runs if made["phase"] == "inRam.read"]
    assert len(reads) == 10
    for made in reads:
        figures = made["figures"]
        assert figures["torn"] == figures["stale"] == figures["foreign"] == figures["lost"] == 0, made
        assert made["operations"]["read"]["count"] + made["operations"]["read"]["errors"] == 512
        assert made["operations"]["read"]["count"] + figures["late"] == 512, made
    written = [made for made in runs if made["phase"] == "inRam.write" and made["outcome"]["state"] == "complete"]
    assert all(made["operations"]["write"]["count"] == 512 for made in written) and len(written) == 10
    assert (tmp_path / "out.csv").read_text().count("stress,") >= len(runs)
    assert "</html>" in (tmp_path / "o.html").read_text()
    assert list(run.folder.iterdir()) == [], "the data is removed"


def test_commands_can_be_repeated(tmp_path):
    """A dry run tells the same commands as a real one, and starts nothing."""
    settings = f"matrix: {{writeConcerns: SAFE, journal: no, capped: yes, sizes: inRam}}\ninRam.documents: 256\nserver.port: {free_port()}\n"
    tell = ("CMD> mkdir", "CMD> " + binary(), "CMD> mongosh", "mongosh>")
    dry = Run(tmp_path, settings, "--engines", "inMemory", "--dry-run")
    code, out, err = dry.end()
    assert code == 0, err
    told = [line for line in out.splitlines() if line.startswith(tell)]
    assert all("/tenon-stress-XXXXXX/" in line for line in told[:2])
    assert len(told) == 7 and not dry.json.exists() and not dry.folder.exists()
    assert 'db.runCommand({ "create": "stress.test", "capped": true, "size": 4278016 })' in told[4]
    code, out, err = Run(tmp_path, settings, "--engines", "inMemory").end()
    assert code == 0, out + err
    # But for the name of the directory, which nobody can foresee.
    out = re.sub("/tenon-stress-[^/]{6}/", "/tenon-stress-XXXXXX/", out)
    assert [line for line in out.splitlines() if line.startswith(tell)] == told


def test_a_server_that_dies_is_said_and_the_rest_goes_on(tmp_path):
    settings = LONG.replace("capped: no", "capped: [no, yes]").replace("2^17", "2^16")
    run = Run(tmp_path, settings, "--engines", "inMemory")
    os.kill(run.wait_for_load(), signal.SIGKILL)
    code, out, err = run.end()
    assert code == 1, out + err
    assert "has ended by itself (signal: 9 (SIGKILL))" in out
    first, *rest = run.runs()
    assert first["outcome"]["state"] == "failed" and "SIGKILL" in first["outcome"]["message"]
    assert [made["outcome"]["state"] for made in rest] == ["complete", "complete"], rest
    assert run.servers() == []
    kept = {file.name for file in run.folder.glob("tenon-stress-*/*/*")}
    assert kept == {"server.log", "output.txt"}, "the dead server's words are kept, its data is not"


def test_a_repetition_leaves_the_logs_of_others(tmp_path):
    run = Run(tmp_path, LONG.replace("2^17", "2^16"), "--engines", "inMemory", "--repeat", "2")
    os.kill(run.wait_for_load(), signal.SIGKILL)
    code, out, err = run.end()
    assert code == 1 and "# repetition 2 of 2" in out, out + err
    first, *rest = run.runs()
    assert (first["repetition"], first["outcome"]["state"]) == (0, "failed")
    assert [made["outcome"]["state"] for made in rest] == ["complete", "complete"], rest
    (kept,) = run.folder.glob("tenon-stress-*/*/*/server.log")
    assert kept.parents[1].name == "repetition1" and any(str(kept) in note for note in first["notes"]), first["notes"]


def test_servers_end_with_the_tool_that_is_killed(tmp_path):
    run = Run(tmp_path, LONG, "--engines", "inMemory")
    run.wait_for_load()
    run.process.kill()
    run.end()
    end = time.monotonic() + 30
    while run.servers() and time.monotonic() < end:
        time.sleep(0.05)
    assert run.servers() == []


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    run = Run(tmp_path, LONG.replace("SAFE,", "[NORMAL, SAFE],").replace("2^17", "2^18"), "--engines", "inMemory")
    run.wait_for_load()
    run.process.send_signal(signal.SIGINT)
    code, out, err = run.end(timeout=60)
    assert code == 130, out + err
    assert "Stopped by the user" in out and "Test Results 1" in out
    assert [made["outcome"]["state"] for made in run.runs()] == ["interrupted"]
    assert run.runs()[0]["operations"]["write"]["count"] > 0
    assert run.servers() == [] and list(run.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "options", "said"),
    [
        ("test:\n  batch: 0\n", (), "settings.yaml: line 2: test.batch: '0' is not within 1 to 100000"),
        ("topology: sharded\n", (), "line 1: topology: topology sharded is not built yet"),
        ("test.seed: 1\n", ("--tenond", "/nowhere/tenond"), "/nowhere/tenond"),
        ("inRam.documents: 1,5 KiB\n", (), "inRam.documents"),
        ("test.seed: 1\n", ("--scale", "0"), "the scale is a number from"),
        ("test.seed: 1\n", ("--csv", "/nowhere/out.csv"), "/nowhere is no directory"),
    ],
)
def test_wrong_choices_are_refused_before_anything_starts(tmp_path, settings, options, said):
    run = Run(tmp_path, settings, *options)
    code, out, err = run.end()
    assert code == 1 and said in err, out + err
    assert not run.json.exists()


def test_an_engine_that_is_not_built_is_a_failed_cell_in_the_servers_words(tmp_path):
    run = Run(tmp_path, LONG.replace("2^17", "256"), "--engines", "nosuch,inMemory")
    code, out, _ = run.end()
    assert code == 1 and "Unknown storage engine 'nosuch'" in out, out
    assert [made["outcome"]["state"] for made in run.runs()] == ["failed", "complete", "complete"]


SHORT = LONG.replace("2^17", "256")


def test_a_server_that_has_the_port_is_left_alone(tmp_path):
    """Its answers were taken for those of the tool's own server: it got the documents, and its figures were shown."""
    with Server(tmp_path / "somebody", "inMemory") as server:
        run = Run(tmp_path, f"{SHORT}server.port: {server.port}\n", "--engines", "inMemory")
        code, out, err = run.end()
        assert code == 1 and f"taking the port {server.port}" in out and "MB/s" in out, out + err
        assert run.runs()[0]["outcome"]["state"] == "failed" and run.runs()[0]["operations"] == {}
        assert "MOSTDB" not in server.client().list_database_names()
    assert list(run.folder.iterdir()) == []


def test_two_calls_at_once_and_folders_of_others(tmp_path):
    """They shared folders of known names, and each removed the other's data, or whatever a link led to."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    precious = tmp_path / "precious" / "data"
    precious.mkdir(parents=True)
    (precious / "file").write_text("mine")
    shared = tmp_path / "one" / "data"
    (shared / "tenon-stress").mkdir(parents=True)
    (shared / "tenon-stress" / "inMemory-inRam-A-SAFE-journal-plain").symlink_to(precious.parent)
    settings = LONG.replace("2^17", "2^13")
    calls = [Run(tmp_path / name, settings, "--engines", "inMemory", "--directory", str(shared)) for name in ("one", "other")]
    for call in calls:
        code, out, err = call.end()
        assert code == 0 and "8192 of 8192 documents consistent" in out, out + err
    assert (precious / "file").read_text() == "mine"
    assert [folder.name for folder in shared.iterdir()] == ["tenon-stress"]


def test_ctrl_c_does_not_wait_for_a_server_that_stands_still(tmp_path):
    run = Run(tmp_path, LONG.replace("2^17", "2^18"), "--engines", "inMemory")
    os.kill(run.wait_for_load(), signal.SIGSTOP)
    run.process.send_signal(signal.SIGINT)
    code, out, err = run.end(timeout=60)
    assert code == 130 and "asking again kills it" in out, out + err
    assert run.servers() == [] and list(run.folder.iterdir()) == []


def test_what_is_no_rule_is_a_failure(tmp_path):
    run = Run(tmp_path, f"{SHORT}server.arguments: --noSuchOption\n", "--engines", "inMemory")
    code, out, err = run.end()
    assert code == 1 and "FAILED" in out and "noSuchOption" in out, out + err
    # A rule, but of all cells: nothing was measured.
    settings = SHORT.replace("SAFE", "FSYNC_SAFE").replace("journal: yes", "journal: no")
    run = Run(tmp_path, settings, "--engines", "inMemory")
    code, out, err = run.end()
    assert code == 1 and "The server refuses it" in out, out + err
    assert [made["outcome"]["state"] for made in run.runs()] == ["refused"]


def test_repetitions_of_equal_settings_are_set_up_alike(tmp_path):
    run = Run(tmp_path, SHORT, "--engines", "btree", "--repeat", "2")
    code, out, err = run.end()
    assert code == 0 and "# repetition 2 of 2" in out, out + err
    made = run.runs()
    assert [(one["repetition"], one["phase"]) for one in made] == [
        (number, phase) for number in (0, 1) for phase in ("inRam.write", "inRam.read")
    ]
    assert made[0]["configuration"]["options"] == made[2]["configuration"]["options"]
    # All of the documents have gone to the disk, not only what the log had by the last answer.
    written = made[0]["writtenBytes"]
    assert (written is None) if is_in_memory(tmp_path) else written >= made[0]["documentBytes"] // 2
    assert made[1]["writtenBytes"] is None
    shown = subprocess.run([tenon(), "bench", "compare", str(run.json), str(run.json)], capture_output=True, text=True)
    assert shown.returncode == 0 and "set up differently" not in shown.stdout, shown.stdout


def test_the_shipped_files(tmp_path):
    for name in ("most.properties", "quick.yaml", "set.yaml"):
        line = [tenon(), "stress", str(REPOSITORY / "stress" / name), "--tenond", binary(), "--dry-run"]
        done = subprocess.run([*line, "--directory", str(tmp_path)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout.count("CMD> kill") >= 12, done.stderr


SET = """
topology: replicaSet
set: {members: 3, electionTimeoutMillis: 3000}
matrix: {writeConcerns: [NORMAL, MAJORITY, REPLICA_ALL], journal: yes, capped: CAPPED, failover: [no, yes], sizes: inRam}
inRam.documents: 1024
test: {documentSize: 4 KiB, batch: 16, readBatch: 50, threads: 3}
""".replace("CAPPED", of_extent("no", "[no, yes]"))


def test_a_set_with_and_without_a_failover(tmp_path):
    engines = "+".join((ENGINES * 3)[:3])
    run = Run(tmp_path, SET, "--engines", engines)
    code, out, err = run.end(timeout=900)
    assert code == 0, out + err
    cells = of_extent(6, 12)
    assert out.count('"replSetInitiate"') == cells and out.count("CMD> kill -KILL") == cells // 2, out
    assert f"Test Results 1: {engines} (replica set of 3 members, all in RAM)" in out
    assert f"Test Results 2: {engines} (replica set of 3 members, all in RAM, the primary killed in the middle)" in out
    runs = run.runs()
    by_phase = {phase: [made for made in runs if made["phase"] == phase] for phase in {made["phase"] for made in runs}}
    assert {phase: len(made) for phase, made in by_phase.items()} == {
        "inRam.write": cells,
        "inRam.read": cells,
        "inRam.readPrimary": cells,
    }
    for secondary, primary, write in zip(by_phase["inRam.read"], by_phase["inRam.readPrimary"], by_phase["inRam.write"]):
        options, found = secondary["configuration"]["options"], secondary["figures"]
        assert found["torn"] == found["stale"] == found["foreign"] == 0, secondary
        assert write["operations"]["write"]["count"] == 1024
        if options["failover"] == "on":
            assert write["figures"]["secondsWithoutPrimary"] > 0
        if options["writeConcern"] != "NORMAL":
            assert found["lost"] == 0 and primary["figures"]["missing"] == 0, (secondary, primary)
        if options["writeConcern"] == "REPLICA_ALL" and options["failover"] == "off":
            assert found["missing"] == 0, "everybody had acknowledged it"
    assert run.servers() == [] and list(run.folder.iterdir()) == [], "nothing is left"


def test_a_set_cannot_be_of_more_engines_than_members(tmp_path):
    code, out, err = Run(tmp_path, SET, "--engines", "btree+inMemory").end()
    assert code == 1 and "names the engines of the 2 members of a set" in err, out + err
