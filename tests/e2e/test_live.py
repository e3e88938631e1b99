"""`tenon stat` and `tenon top` with a real server: what it did is in their rows."""

import json
import os
import signal
import subprocess
from pathlib import Path

from server import Server, binary

TENON = Path(os.environ.get("TENON", Path(binary()).with_name("tenon")))


def start(port, command, *arguments):
    line = [str(TENON), command, "--uri", f"mongodb://127.0.0.1:{port}", *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows_until(process, is_last):
    """Rows of JSON up to one that says what is waited for."""
    rows = []
    for line in process.stdout:
        rows.append(json.loads(line))
        if is_last(rows):
            return rows
    raise AssertionError(f"ended early: {rows} {process.stderr.read()}")


def end(process):
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_stat_counts_operations(server, db):
    process = start(server.port, "stat", "--json")
    first = rows_until(process, lambda rows: True)[0]
    db.a.insert_many({"_id": number} for number in range(500))
    rows_until(process, lambda rows: any(row["insert"] > 0 for row in rows))
    assert first["host"] == f"127.0.0.1:{server.port}"
    for name in ["query", "update", "delete", "getmore", "command", "flushes", "queuedReaders", "activeWriters"]:
        assert first[name] >= 0, name
    assert first["res"] > 0 and first["vsize"] >= first["res"] and first["conn"] >= 1 and "$date" in first["time"]
    end(process)


def test_stat_has_columns(server):
    out, err = start(server.port, "stat", "-n", 2).communicate(timeout=60)
    lines = out.splitlines()
    assert lines[0].split() == (
        "insert query update delete getmore command dirty used flushes vsize res qrw arw net_in net_out conn time".split()
    )
    assert len(lines) == 3 and all(len(line.split()) == 17 for line in lines), (out, err)
    out, _ = start(server.port, "stat", "-n", 1, "--noheaders").communicate(timeout=60)
    assert len(out.splitlines()) == 1 and "insert" not in out


def test_top_has_the_collection_that_was_used(server, db):
    db.a.insert_one({"_id": 1})
    process = start(server.port, "top", "--json")
    rows_until(process, lambda rows: True)
    db.a.update_one({"_id": 1}, {"$set": {"x": 1}})
    list(db.a.find())
    name = db.a.full_name
    rows = rows_until(process, lambda rows: sum(row["totals"][name]["total"]["count"] for row in rows) >= 2)
    assert sum(row["totals"][name]["read"]["count"] for row in rows) >= 1
    assert sum(row["totals"][name]["write"]["count"] for row in rows) >= 1
    end(process)
    out, _ = start(server.port, "top", "-n", 1).communicate(timeout=60)
    assert out.split()[:4] == ["ns", "total", "read", "write"] and name in out


def test_names_do_not_command_the_terminal(server, db):
    """A user's collection could clear the screen of who looked, and set its title."""
    db["a\x1b]0;title\x07\x1b[2J"].insert_one({})
    out, _ = start(server.port, "top", "-n", 1, "--collections", 100000).communicate(timeout=60)
    assert "a\\u{1b}]0;title\\u{7}\\u{1b}[2J" in out and "\x1b" not in out


def test_refusals(server):
    process = start(server.port, "stat", "--discover")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "--discover is not supported" in err
    process = start(1, "top")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "connecting" in err


def test_a_server_that_comes_back_is_shown_again(tmp_path):
    own = Server(tmp_path)
    with own:
        process = start(own.port, "stat", "--json")
        rows_until(process, lambda rows: True)
        own.stop()
        assert process.stderr.readline()
        own.start()
        rows = rows_until(process, lambda rows: True)
        assert rows[0]["insert"] == 0
        end(process)
