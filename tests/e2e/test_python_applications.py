"""Small applications on MongoEngine and on Django with its backend for MongoDB, each a program with a database of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from server import Server

PROGRAMS = Path(__file__).parents[1] / "clients" / "python"


def run(program, uri, *arguments):
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "TENON_URI": uri, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def set_uri(server, tmp_path):
    made = Server(tmp_path / "set", server.engine, options=["--replSet", "rs0", "--replSetInitiate"])
    made.start()
    yield made.uri("replicaSet=rs0")
    assert made.stop() == 0, made.tail()


def test_mongoengine(server):
    assert "library checks passed" in run("mongoengine_library.py", server.uri())


def test_django(server, tmp_path):
    out = run("django_shop.py", server.uri(), tmp_path)
    assert "shop checks passed" in out and "transactions" not in out, out


def test_mongoengine_and_django_of_a_set(set_uri, tmp_path):
    """Retried writes, and orders in transactions that roll back."""
    out = run("mongoengine_library.py", set_uri) + run("django_shop.py", set_uri, tmp_path)
    assert "library checks passed" in out and "shop checks passed" in out and "transactions" in out, out
