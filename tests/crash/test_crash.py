"""Crashes of the real process on the real file system."""

import os
import random
import subprocess

import pytest
from crash.kill_loop import run
from disks import file_system_of
from pymongo.errors import PyMongoError
from server import ENGINES, Server

ROUNDS = int(os.environ.get("TENON_KILL_ROUNDS", "8"))


@pytest.mark.parametrize("engine", ENGINES)
def test_kill_loop(tmp_path, engine):
    seed = int(os.environ.get("TENON_SEED", random.randrange(1 << 32)))
    print("seed", seed)
    run(engine, ROUNDS, seed, tmp_path)


@pytest.mark.parametrize("engine", ENGINES)
def test_full_disk(tmp_path, engine):
    """A disk that fills up: clear errors, nothing acknowledged lost, the server up or ended cleanly, and back with space."""
    with file_system_of(tmp_path / "data", "400m") as data:
        server = Server(tmp_path, engine)
        acknowledged = []
        with server:
            collection = server.client().t.c
            errors = []
            for number in range(3000):
                try:
                    collection.with_options(write_concern=__import__("pymongo").WriteConcern(j=True)).insert_one({"_id": number, "pad": os.urandom(400_000)})
                    acknowledged.append(number)
                except PyMongoError as error:
                    errors.append(error)
                    if len(errors) > 3:
                        break
            assert errors, "the disk never filled up"
            if server.process.poll() is None:
                assert any(getattr(error, "code", None) in (14031, None) or "space" in str(error).lower() for error in errors), errors
                assert server.client().admin.command("ping")["ok"] == 1
            server.kill()
        assert subprocess.run(["mount", "-o", "remount,size=2000m", str(data)]).returncode == 0
        with server:
            found = {d["_id"] for d in server.client().t.c.find({}, {"_id": 1})}
            assert set(acknowledged) <= found
            assert server.client().t.command("validate", "c")["valid"]
            server.client().t.c.insert_one({"_id": "after"})
