"""The Node and Java drivers and mongosh, each with a program of its own."""

import os
import subprocess
from pathlib import Path

import pytest
from server import ENGINES, Server, of_extent

CLIENTS = Path(os.environ.get("TENON_CLIENTS", os.path.expanduser("~/.cache/tenon/clients")))
HERE = Path(__file__).parents[1]

# What a driver sees does not depend on the engine; a release tries every pair of them.
TRIED = of_extent(ENGINES[:1], ENGINES)
pytestmark = pytest.mark.parametrize("server", TRIED, indirect=True, scope="module")


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_node_driver(server):
    environment = {**os.environ, "NODE_PATH": str(CLIENTS / "node" / "node_modules"), "TENON_URI": server.uri()}
    out = run(["node", "--test", "--test-reporter=tap", str(HERE / "clients" / "node" / "driver.test.cjs")], env=environment)
    assert "# fail 0" in out and "# pass 0" not in out, out


def test_java_driver(server, tmp_path):
    out = run(
        ["mvn", "--batch-mode", "--offline", "-f", str(HERE / "clients" / "java" / "pom.xml"), f"-Dtenon.build={tmp_path}", "test"],
        env={**os.environ, "TENON_URI": server.uri()},
    )
    assert "BUILD SUCCESS" in out and "Tests run:" in out, out


@pytest.fixture
def replica_set(server, tmp_path):
    made = Server(tmp_path / "set", server.engine, options=["--replSet", "rs0", "--replSetInitiate", "--setParameter", "enableTestCommands=1"])
    made.start()
    yield f"mongodb://127.0.0.1:{made.port}/?replicaSet=rs0"
    assert made.stop() == 0, made.tail()


def test_node_clients_of_a_set(replica_set):
    """Transactions, retries and change streams of the Node driver, mongoose and an ORM."""
    environment = {**os.environ, "NODE_PATH": str(CLIENTS / "node" / "node_modules"), "TENON_URI": replica_set}
    out = run(["node", "--test", "--test-reporter=tap", str(HERE / "clients" / "node" / "set.test.cjs")], env=environment)
    assert "# fail 0" in out and "# pass 7" in out, out


def test_java_driver_of_a_set(replica_set, tmp_path):
    out = run(
        ["mvn", "--batch-mode", "--offline", "-f", str(HERE / "clients" / "java" / "pom.xml"), f"-Dtenon.build={tmp_path}", "-Dtest=SetTest", "test"],
        env={**os.environ, "TENON_SET_URI": replica_set},
    )
    assert "BUILD SUCCESS" in out and "Tests run: 3" in out, out


def mongosh(server, *arguments):
    program = CLIENTS / "node" / "node_modules" / ".bin" / "mongosh"
    return run([str(program), "--quiet", "--norc", f"mongodb://127.0.0.1:{server.port}/t_shell", *arguments])


def test_mongosh(server):
    out = mongosh(server, str(HERE / "clients" / "shell.js"))
    assert "shell checks passed" in out, out


def test_mongosh_helpers(server):
    assert '"ok":1' in mongosh(server, "--eval", "JSON.stringify(db.runCommand({ping:1}))").replace(" ", "")
    assert "8.0" in mongosh(server, "--eval", "db.version()")
