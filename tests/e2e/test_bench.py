"""`tenon bench` on a real server: every workload ends, what it loads is consistent, and whatever ends a run is told."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from server import ENGINES, binary

TENON = Path(os.environ.get("TENON", Path(binary()).with_name("tenon")))


def bench(*arguments, **options):
    return subprocess.run(
        [str(TENON), "bench", *map(str, arguments)], capture_output=True, text=True, timeout=600, **options
    )


def runs(path):
    return json.loads(Path(path).read_text())["runs"]


def test_every_workload_ends_on_every_engine(tmp_path):
    out = tmp_path / "all.json"
    done = bench(
        "all", "--tenond", binary(), "--engines", ",".join(ENGINES), "--directory", tmp_path, "--scale", 0.02, "--loops", 2,
        "--duration", 1, "--warm-up", 0, "--json", out, "--csv", tmp_path / "all.csv", "--report", tmp_path / "all.html", "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = {(run["configuration"]["label"], run["workload"], run["phase"]) for run in runs(out)}
    phases = {
        "book": ["insert", "read", "clients", "search", "filter", "scanFilter"],
        "linkbench": ["load", "query"],
        "iibench": ["load", "insert"],
        "ycsb": ["load", *"abcdef"],
    }
    assert found == {(engine, name, phase) for engine in ENGINES for name, list_ in phases.items() for phase in list_}
    for run in runs(out):
        assert run["outcome"] == {"state": "complete"}
        assert sum(operation["count"] for operation in run["operations"].values()) > 0
        assert all(operation["errors"] == 0 for operation in run["operations"].values()), run
        assert run["serverCpuUs"] is not None and run["writtenBytes"] is not None
    first = next(run for run in runs(out) if run["workload"] == "book" and run["phase"] == "insert")
    assert first["startSeconds"] > 0 and first["stopSeconds"] > 0 and first["fileBytes"] > 0
    read = next(run for run in runs(out) if run["workload"] == "book" and run["phase"] == "read")
    assert [iteration["cold"] for iteration in read["iterations"]] == [True, False]
    page = (tmp_path / "all.html").read_text()
    assert all(word in page for word in ["linkbench", "Table 10.3", *ENGINES])
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
    counts = {(count["id"], count["link_type"]): count["count"] for count in database.count.find({"count": {"$ne": 0}})}
    assert len(visible) > 1000
    assert counts == visible
    query = next(run for run in runs(out) if run["phase"] == "query")
    assert set(query["operations"]) >= {"addLink", "deleteLink", "updateLink", "getLinkList", "addNode"}
    client.drop_database("linkdb")


def test_iibench_inserts_what_its_definition_says(server, client, tmp_path):
    done = bench("iibench", "--uri", server.uri(), "--scale", 0.02, "--query-threads", 1, "--keep", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    purchases = client.iibench.purchases_index
    assert purchases.count_documents({}) == 20_000
    assert len(purchases.index_information()) == 4
    document = purchases.find_one()
    assert document["cf1"].endswith("a" * 128) and 0 <= document["price"] < 1005
    client.drop_database("iibench")


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


def start(tmp_path, *arguments):
    """A long run, and the process of its server once the workload is under way."""
    process = subprocess.Popen(
        [
            str(TENON), "bench", "ycsb", "--tenond", binary(), "--engines", ENGINES[0], "--scale", "0.01", "--workloads", "a",
            "--duration", "120", "--warm-up", "0", "--directory", str(tmp_path), "--json", str(tmp_path / "out.json"), "--quiet", *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        # The load is kept when it is over; then the timed phase begins.
        if (tmp_path / "out.json").exists():
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if children:
                time.sleep(1)
                return process, int(children[0])
        time.sleep(0.05)
    process.kill()
    raise AssertionError(process.communicate())


def test_ctrl_c_stops_the_server_and_keeps_what_was_measured(tmp_path):
    process, server = start(tmp_path)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert not Path(f"/proc/{server}").exists()
    last = runs(tmp_path / "out.json")[-1]
    assert last["outcome"] == {"state": "interrupted"} and last["operations"]["read"]["count"] > 0


def test_a_server_that_dies_is_told(tmp_path):
    process, server = start(tmp_path)
    os.kill(server, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out + err
    last = runs(tmp_path / "out.json")[-1]
    assert last["outcome"]["state"] == "failed" and "has ended by itself" in last["outcome"]["message"], last["outcome"]
    assert "FAILED" in out


def test_choices_that_are_not_possible_are_refused_at_once(tmp_path):
    for arguments, words in [
        (["ycsb", "--uri", "mongodb://u:p@h"], "authentication"),
        (["ycsb", "--tenond", binary(), "--workloads", "z"], "no workload"),
        (["ycsb", "--tenond", "/nonexistent"], "no program"),
        (["ycsb", "--tenond", binary(), "--engines", "nonesuch", "--directory", str(tmp_path)], "nonesuch"),
        (["ycsb", "--tenond", binary(), "--json", "/nonexistent/x.json"], "no directory"),
        (["ycsb", "--scale", "0"], "--scale"),
    ]:
        done = bench(*arguments, "--quiet")
        assert done.returncode != 0 and words in done.stdout + done.stderr, done.stdout + done.stderr
