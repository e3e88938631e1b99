"""A mongoose application that knows nothing of members keeps working while its primary is killed. TENON_KILLS has more of them."""

import json
import os
import subprocess
import time

from members import CLIENTS, ReplicaSet
from pymongo import MongoClient

KILLS = int(os.environ.get("TENON_KILLS", "3"))
# Of these the application does some work, and has a primary for most.
SECONDS_BETWEEN = float(os.environ.get("TENON_SECONDS_BETWEEN_KILLS", "4"))
PROGRAM = os.path.join(os.path.dirname(__file__), "..", "clients", "node", "application.cjs")


def test_an_application_through_kills_of_the_primary(tmp_path):
    with ReplicaSet(tmp_path, 3, election_ms=3000) as rs:
        rs.initiate()
        rs.wait_healthy()
        hosts = ",".join(member.host for member in rs.members)
        environment = {
            **os.environ,
            "NODE_PATH": str(CLIENTS / "node" / "node_modules"),
            "TENON_URI": f"mongodb://{hosts}/?replicaSet={rs.name}&w=majority",
        }
        application = subprocess.Popen(["node", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        try:
            assert application.stdout.readline() == "begun\n", application.communicate()
            for _ in range(KILLS):
                time.sleep(SECONDS_BETWEEN)
                primary = rs.primary
                primary.kill()
                # The others have to do without it for a while.
                assert rs.primary is not primary
                primary.start()
                rs.wait_healthy()
            out, err = application.communicate("", timeout=120)
        finally:
            application.kill()
        assert application.returncode == 0, err
        found = json.loads(out)
        print(found["counts"])
        # The Node driver does not try an operation again whose connection ended after that of another one to the same
        # server (`connectionIsStale`): each of the four loops can see one at a kill.
        unknown = [failure for failure in found["failures"] if "MongoNetworkError" in failure]
        assert found["failures"] == unknown and len(unknown) <= 4 * KILLS, found
        assert found["lost"] == [] and found["sum"] == 2000, found
        bumps_unknown = sum(failure.startswith("bumped") for failure in unknown)
        assert 0 <= found["bumps"] - found["counts"]["bumped"] <= bumps_unknown, found
        assert all(count > KILLS for count in found["counts"].values()), found
        rs.check_equal()
        with MongoClient([member.host for member in rs.members], replicaSet=rs.name) as client:
            assert client.application.orders.count_documents({}) >= found["counts"]["saved"]
