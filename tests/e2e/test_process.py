"""The server as a process: in the background, with an output that nobody reads, under signals, and what it leaves."""

import os
import signal
import socket
import subprocess
import time

import pytest
from pymongo import MongoClient
from server import Server, binary


def broken_pipe():
    """The writing end of a pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def wait_for(server, text, process=None):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if server.log.exists() and text in server.log.read_text(errors="replace"):
            return
        assert process is None or process.poll() is None, server.tail()
        time.sleep(0.01)
    raise AssertionError(server.tail())


def test_a_server_serves_on_when_its_launcher_has_gone(tmp_path):
    """Ctrl-C while it recovered: the child said that it serves to nobody, and that was its end."""
    server = Server(tmp_path)
    output = broken_pipe()
    environment = {**os.environ, "TENOND_FORKED": "1"}
    child = subprocess.Popen([*server.command(), "--fork"], stdout=output, stderr=subprocess.PIPE, env=environment)
    os.close(output)
    wait_for(server, "Waiting for connections", child)
    port = int(server.log.read_text().split('"msg":"Waiting for connections"')[1].split('"port":')[1].split(",")[0].split("}")[0])
    with MongoClient("127.0.0.1", port) as client:
        client.t.c.insert_one({"_id": 1})
    child.terminate()
    assert child.wait(60) == 0, server.tail()
    assert b"panic" not in child.stderr.read()
    with server:
        assert server.client().t.c.find_one() == {"_id": 1}


def test_a_launcher_without_an_output_launches(tmp_path):
    server = Server(tmp_path)
    output = broken_pipe()
    launched = subprocess.run([*server.command(), "--fork"], stdout=output, stderr=subprocess.PIPE, timeout=120)
    os.close(output)
    assert launched.returncode == 0, launched.stderr
    stopped = subprocess.run([binary(), "--dbpath", str(server.data), "--shutdown"], capture_output=True, text=True, timeout=120)
    assert stopped.returncode == 0, stopped.stderr


def test_an_output_that_nobody_reads_stops_nothing(tmp_path):
    """Whoever logged a line waited for the pipe's reader: connections, slow operations, and the end."""
    server = Server(tmp_path)
    port_file = tmp_path / "port"
    line = [word for word in server.command() if word not in ("--logpath", str(server.log), "--logappend")]
    process = subprocess.Popen([*line, "-v", "--portFile", str(port_file)], stdout=subprocess.PIPE)
    while not port_file.exists():
        assert process.poll() is None
        time.sleep(0.01)
    client = MongoClient("127.0.0.1", int(port_file.read_text()))
    # Each is logged: several times what a pipe takes, and less than what waits.
    for number in range(1000):
        client.t.command("ping", comment=f"{number} {'x' * 500}")
    assert client.admin.command("serverStatus")["tenon"]["serverLog"]["lostLines"] == 0
    # More than both.
    for number in range(1000, 2000):
        client.t.command("ping", comment=f"{number} {'y' * 6000}")
    lost = client.admin.command("serverStatus")["tenon"]["serverLog"]["lostLines"]
    assert lost > 0
    client.close()
    process.terminate()
    assert process.wait(60) == 0
    read = process.stdout.read().decode()
    process.stdout.close()
    # The pipe still has what it took, from the beginning and in order.
    numbers = [int(line.split('"comment":"')[1].split(" ")[0]) for line in read.splitlines()[:-1] if '"comment":"' in line]
    assert numbers == list(range(len(numbers))) and len(numbers) > 50


@pytest.mark.parametrize("destination", [["console"], ["file", "--auditFormat", "JSON", "--auditPath", "/dev/stdout"]], ids=["console", "path"])
def test_an_audit_log_that_nobody_reads_stops_nothing(tmp_path, destination):
    """Whoever did what is audited waited for the pipe's reader, and so did the end, before its last checkpoint."""
    server = Server(tmp_path, options=["--auditDestination", *destination])
    port_file = tmp_path / "port"
    process = subprocess.Popen([*server.command(), "--portFile", str(port_file)], stdout=subprocess.PIPE)
    wait_for(server, "Waiting for connections", process)
    with MongoClient("127.0.0.1", int(port_file.read_text())) as client:
        # More than waits, and what the pipe takes.
        for _ in range(4000):
            client.admin.command("logApplicationMessage", "x" * 1500)
        assert client.admin.command("serverStatus")["tenon"]["audit"]["lost"] > 0
    process.terminate()
    assert process.wait(60) == 0
    process.stdout.close()
    assert "The storage is closed" in server.log.read_text()


def test_the_end_is_logged_for_a_reader_that_reads(tmp_path):
    server = Server(tmp_path)
    line = [word for word in server.command() if word not in ("--logpath", str(server.log), "--logappend")]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    for text in process.stdout:
        if "Waiting for connections" in text:
            break
    process.terminate()
    rest = process.stdout.read()
    assert process.wait(60) == 0
    assert rest.splitlines()[-1].startswith('{"t"') and '"msg":"Shutting down","attr":{"exitCode":0}' in rest.splitlines()[-1]
    # A line of a start that fails is its last, too.
    refused = subprocess.run([*line[:1], "--dbpath", str(tmp_path / "none")], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 100 and '"s":"F"' in refused.stdout and "not found" in refused.stdout


def test_a_recovery_ends_when_it_is_told_to(tmp_path):
    # A machine that is busy elsewhere may see the signal come too late: the replay of more takes longer.
    for attempt, batches in enumerate((6, 24, 96)):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        server = Server(folder, "btree", options=["--syncdelay", "0"])
        server.start()
        collection = server.client().t.c
        collection.create_index([("a", 1), ("b", 1)])
        for start in range(0, batches * 10_000, 10_000):
            collection.insert_many([{"_id": start + i, "a": i % 7, "b": i, "pad": "x" * 50} for i in range(10_000)])
        collection.with_options(write_concern=collection.write_concern.__class__(j=True)).insert_one({"_id": -1})
        server.kill()
        server.log.unlink()
        process = subprocess.Popen(server.command(), stdout=subprocess.DEVNULL)
        wait_for(server, "Recovery from the log begins", process)
        process.terminate()
        assert process.wait(120) == 0
        log = server.log.read_text()
        if "Recovery from the log is over" not in log:
            break
    assert "Shutting down during recovery" in log and "Waiting for connections" not in log
    with server:
        client = server.client()
        assert client.t.c.count_documents({}) == batches * 10_000 + 1
        assert client.t.command("validate", "c")["valid"]


def test_a_server_of_nohup_outlives_its_terminal(tmp_path):
    server = Server(tmp_path)
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    process = subprocess.Popen(server.command(), stdout=subprocess.DEVNULL, preexec_fn=ignore)
    wait_for(server, "Waiting for connections", process)
    process.send_signal(signal.SIGHUP)
    process.terminate()
    assert process.wait(60) == 0
    assert '"reason":"SIGTERM"' in server.log.read_text()
    # Without nohup the end of a terminal is a server's.
    process = subprocess.Popen(server.command(), stdout=subprocess.DEVNULL)
    while server.log.read_text().count("Waiting for connections") < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 0
    assert '"reason":"SIGHUP"' in server.log.read_text()


def shutdown(server):
    done = subprocess.run([binary(), "--dbpath", str(server.data), "--shutdown"], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_shutdown_signals_the_server_and_nobody_else(tmp_path):
    """The number in the lock file was taken for granted: that of another container means another process here."""
    with Server(tmp_path) as server:
        stranger = subprocess.Popen(["sleep", "600"])
        lock = server.data / "tenond.lock"
        own = lock.read_text()
        lock.write_text(f"{stranger.pid}\n")
        code, said = shutdown(server)
        assert code == 1 and "its process is not known here" in said, said
        assert stranger.poll() is None and server.client().admin.command("ping")["ok"] == 1
        stranger.kill()
        stranger.wait()
        lock.write_text(own)
        lock.rename(server.data / "moved")
        code, said = shutdown(server)
        assert code == 1 and "A server is running" in said, said
        (server.data / "moved").rename(lock)
        code, said = shutdown(server)
        assert code == 0, said
        assert server.process.wait(60) == 0
    code, said = shutdown(server)
    assert code == 1 and "doesn't seem to be a server" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_shutdown_by_who_may_not_look(tmp_path):
    with Server(tmp_path) as server:
        line = [binary(), "--dbpath", str(server.data), "--shutdown"]
        # By its descriptor: the other user may not look for the program either.
        program = os.open(binary(), os.O_RDONLY)

        def run_as_other():
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
            os.execve(program, line, os.environ)

        done = subprocess.run(line, preexec_fn=run_as_other, pass_fds=[program], capture_output=True, text=True, timeout=60)
        os.close(program)
        assert done.returncode == 1 and "for its user, or root" in done.stderr, done.stderr
        assert server.client().admin.command("ping")["ok"] == 1


def test_starts_that_fail_leave_no_files(tmp_path):
    server, pid_file = Server(tmp_path), tmp_path / "pid"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = [*server.command(), "--pidfilepath", str(pid_file), "--httpPort", port]
        done = subprocess.run(line, capture_output=True, timeout=120)
        assert done.returncode == 48 and not pid_file.exists()
    line = [*server.command(), "--pidfilepath", str(pid_file), "--portFile", str(tmp_path / "none" / "port")]
    done = subprocess.run(line, capture_output=True, timeout=120)
    assert done.returncode == 100 and not pid_file.exists()
    assert "Waiting for connections" not in server.log.read_text()
    with server:
        assert server.client().admin.command("ping")["ok"] == 1


def test_output_that_cannot_be_printed():
    output = broken_pipe()
    for option in ("--help", "--version"):
        done = subprocess.run([binary(), option], stdout=output, stderr=subprocess.PIPE)
        assert done.returncode == 0 and done.stderr == b""
    os.close(output)
    with open("/dev/full", "w") as full:
        done = subprocess.run([binary(), "--help"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"cannot print" in done.stderr and b"panic" not in done.stderr
