"""The monitoring page's port: metrics as Prometheus reads them, who may ask, and clients that mean no good."""

import base64
import http.client
import json
import re
import socket
import ssl
import subprocess

import pytest
from members import ReplicaSet, wait
from prometheus_client.parser import text_string_to_metric_families
from pymongo import WriteConcern
from pymongo.errors import OperationFailure
from server import Server, engines_for
from test_tls import authority, certificate

PATIENCE = 60


def http_port(server):
    with open(server.log, "rb") as log:
        log.seek(server.log_from)
        lines = [json.loads(line) for line in log if b"The monitoring page is served" in line]
    return lines[-1]["attr"]["port"]


def ask(server, path, headers=None, method="GET", host="127.0.0.1"):
    """The status, the headers and the content of one answer."""
    connection = http.client.HTTPConnection("127.0.0.1", http_port(server), timeout=PATIENCE)
    try:
        connection.request(method, path, headers={"Host": host, **(headers or {})})
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read().decode()
    finally:
        connection.close()


def basic(user, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def metrics(server, headers=None):
    """Every sample by its name and labels, after the official parser has read them."""
    status, found, text = ask(server, "/metrics", headers)
    assert status == 200 and found["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "each family stands together"
    assert all(family.documentation for family in families)
    return {(sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples}


def raw(server, request):
    """What comes back for these bytes, until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", http_port(server)), timeout=PATIENCE) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(65536):
            received += piece
    return received


@pytest.fixture(scope="module", params=engines_for(__name__))
def served(request, new_folder):
    made = Server(new_folder("http"), request.param, options=["--httpPort", "0"])
    made.start()
    yield made
    assert made.process.poll() is None, made.tail()
    assert made.stop() == 0, made.tail()


def test_metrics_are_what_the_server_counts(served):
    client = served.client()
    client.shop.drop_collection("orders")
    before = metrics(served)
    client.shop.orders.insert_many([{"_id": i} for i in range(50)])
    for i in range(7):
        assert client.shop.orders.find_one({"_id": i})
    client.shop.orders.update_one({"_id": 1}, {"$set": {"a": 1}})
    with pytest.raises(OperationFailure):
        client.shop.command("nonesuch")
    client.admin.command("fsync")
    after = metrics(served)
    grown = lambda name, *labels: after[(name, *labels)] - before.get((name, *labels), 0)
    assert grown("tenon_operations_total", ("type", "insert")) == 50
    assert grown("tenon_operations_total", ("type", "query")) == 7
    assert grown("tenon_operations_total", ("type", "update")) == 1
    assert grown("tenon_documents_total", ("action", "inserted")) == 50
    assert grown("tenon_errors_total") == 1
    assert grown("tenon_commands_total", ("command", "find")) == 7
    assert grown("tenon_log_entries_total") >= 2 and grown("tenon_log_entry_bytes_total") > 0
    assert grown("tenon_checkpoints_total") >= 1
    assert grown("tenon_operation_latency_seconds_count", ("type", "reads")) == 7
    assert after[("tenon_cache_bytes",)] > 0 and after[("tenon_resident_memory_bytes",)] > 1 << 20
    assert after[("tenon_threads",)] > 3 and after[("tenon_open_files",)] > 3
    assert after[("tenon_collections",)] >= 1
    # The same source: nothing is counted for the page alone.
    status = client.admin.command("serverStatus")
    assert status["opcounters"]["insert"] == after[("tenon_operations_total", ("type", "insert"))]
    assert status["metrics"]["document"]["inserted"] == after[("tenon_documents_total", ("action", "inserted"))]
    info = [key for key in after if key[0] == "tenon_build_info"]
    assert dict(info[0][1:])["engine"] == status["storageEngine"]["name"]


def test_an_open_change_stream_is_no_slow_read(tmp_path):
    """Waits for news counted as latency, so that an idle server was slow."""
    with Server(tmp_path, options=["--httpPort", "0", "--replSet", "rs0", "--replSetInitiate"]) as server:
        orders = server.client(replicaSet="rs0").shop.orders
        orders.insert_one({})
        waits = 4
        with orders.watch(max_await_time_ms=1000) as stream:
            for _ in range(waits):
                assert stream.try_next() is None
        status = server.client().admin.command("serverStatus")
        assert status["opLatencies"]["reads"]["latency"] < waits * 1_000_000 / 2
        used = server.client().admin.command("top")["totals"]["shop.orders"]["getmore"]
        assert used["count"] >= waits and used["time"] < waits * 1_000_000 / 2
        assert '"getMore"' not in server.log.read_text(), "nor is it a slow operation"


def test_histograms_agree_with_themselves(served):
    client = served.client()
    client.shop.c.insert_one({})
    found = metrics(served)
    name = "tenon_operation_latency_seconds"
    for kind in ["reads", "writes", "commands"]:
        buckets = {
            dict(key[1:])["le"]: value
            for key, value in found.items()
            if key[0] == f"{name}_bucket" and dict(key[1:])["type"] == kind
        }
        counts = [buckets[le] for le in sorted(buckets, key=float)]
        assert len(counts) > 10 and counts == sorted(counts)
        assert buckets["+Inf"] == found[(f"{name}_count", ("type", kind))]
    assert found[(f"{name}_sum", ("type", "writes"))] > 0


def test_server_status_has_the_same_histograms(served):
    client = served.client()
    client.shop.c.insert_one({})
    plain = client.admin.command("serverStatus")["opLatencies"]["writes"]
    assert set(plain) == {"latency", "ops"}
    full = client.admin.command("serverStatus", opLatencies={"histograms": True})["opLatencies"]["writes"]
    assert sum(row["count"] for row in full["histogram"]) == full["ops"] > 0
    assert all(row["count"] > 0 for row in full["histogram"])
    with pytest.raises(OperationFailure) as unknown:
        client.admin.command("serverStatus", opLatencies={"nonesuch": True})
    assert unknown.value.code == 40415


def test_the_page_is_told_what_happens_but_not_what_is_in_documents(served):
    client = served.client()
    client.admin.command("profile", 0, slowms=0)
    try:
        client.shop.secrets.insert_one({"card": "4711-0815"})
        client.shop.secrets.find_one({"card": "4711-0815"})
    finally:
        client.admin.command("profile", 0, slowms=100)
    status, _, text = ask(served, "/status.json")
    page = json.loads(text)
    assert status == 200 and page["refused"] == {}
    assert page["engine"] == client.admin.command("serverStatus")["storageEngine"]["name"]
    assert "shop.secrets" in {row["ns"] for row in page["collections"]}
    slow = [row for row in page["slow"] if row["ns"] == "shop.secrets"]
    assert {row["command"] for row in slow} == {"insert", "find"}
    assert "4711" not in text
    assert page["status"]["opLatencies"]["reads"]["histogram"]


def test_requests_that_are_none(served):
    malformed = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/3.9\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
    ]
    for request in malformed:
        assert raw(served, request).startswith(b"HTTP/1.1 400 "), request
    local = b"Host: localhost\r\n"
    for request, status in [
        (b"POST / HTTP/1.1\r\n" + local + b"\r\n", 405),
        (b"GET / HTTP/1.1\r\n" + local + b"Content-Length: 10\r\n\r\n0123456789", 413),
        (b"GET / HTTP/1.1\r\n" + local + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\n" + local + b"X: " + b"y" * 20000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + local + b"X: y\r\n" * 100 + b"\r\n", 431),
        (b"GET /nonesuch HTTP/1.1\r\n" + local + b"Connection: close\r\n\r\n", 404),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
    ]:
        assert raw(served, request).startswith(b"HTTP/1.1 %d " % status), request
    # Part of a request, and nothing at all, are answered by nothing.
    assert raw(served, b"GET / HTTP/1.1\r\nHost: a\r\n") == raw(served, b"") == b""
    assert served.client().admin.command("ping")["ok"] == 1


def test_one_connection_takes_many_requests(served):
    connection = http.client.HTTPConnection("127.0.0.1", http_port(served), timeout=PATIENCE)
    for _ in range(3):
        for path in ["/", "/metrics", "/status.json"]:
            connection.request("GET", path)
            reply = connection.getresponse()
            assert reply.status == 200 and len(reply.read()) == int(reply.headers["Content-Length"])
            assert reply.headers["Connection"] == "keep-alive"
    connection.request("HEAD", "/metrics")
    reply = connection.getresponse()
    assert reply.status == 200 and int(reply.headers["Content-Length"]) > 1000 and reply.read() == b""
    connection.close()


def test_the_page_lets_nothing_else_in(served):
    status, headers, text = ask(served, "/")
    policy = headers["Content-Security-Policy"]
    nonce = re.search(r"script-src 'nonce-([0-9a-f]{32})'", policy).group(1)
    assert status == 200 and "default-src 'none'" in policy and text.count(f'nonce="{nonce}"') == 2
    assert "{nonce}" not in text and "{script}" not in text and "{style}" not in text
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    assert headers["X-Frame-Options"] == "DENY" and headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers
    assert ask(served, "/")[2] != text, "each answer has a nonce of its own"


def test_names_of_others_are_not_answered_to(served):
    """A page elsewhere could give its own name this machine's address, and read what the browser may."""
    for host in ["127.0.0.1:1", "localhost", "LOCALHOST:28017", "[::1]:5", "10.0.0.1"]:
        assert ask(served, "/metrics", host=host)[0] == 200, host
    for host in ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example"]:
        assert ask(served, "/status.json", host=host)[0] == 421, host


def test_slow_clients_hold_nothing_up(served):
    client = served.client()
    connections = []
    try:
        for number in range(100):
            connection = socket.create_connection(("127.0.0.1", http_port(served)), timeout=PATIENCE)
            connections.append(connection)
            if number % 3 == 0:
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
            elif number % 3 == 1:
                # Asks for much and reads nothing.
                connection.sendall(b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        assert metrics(served)[("tenon_connections",)] < 60
        assert client.shop.c.insert_one({}).acknowledged
        assert client.shop.c.count_documents({}) > 0
    finally:
        for connection in connections:
            connection.close()
    assert metrics(served)


def test_it_is_off_unless_it_is_asked_for(tmp_path):
    with Server(tmp_path) as server:
        assert "monitoring page" not in server.log.read_text()
        table = subprocess.run(["ss", "-ltnp"], capture_output=True, text=True)
        if table.returncode == 0:
            own = [line for line in table.stdout.splitlines() if f"pid={server.process.pid}," in line]
            assert len(own) == 1, own


def test_a_port_that_is_taken_keeps_the_server_from_starting(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = Server(tmp_path, options=["--httpPort", str(taken.getsockname()[1])])
        with pytest.raises(RuntimeError, match="48"):
            server.start()


@pytest.fixture(scope="module")
def guarded(new_folder):
    with Server(new_folder("guarded"), options=["--httpPort", "0", "--auth"]) as made:
        admin = made.client().admin
        admin.command("createUser", "root", pwd="pw", roles=["root"])
        admin = made.client(username="root", password="pw").admin
        admin.command("createUser", "watcher", pwd="p:w", roles=["clusterMonitor"])
        admin.command("createUser", "old", pwd="pw", roles=["clusterMonitor"], mechanisms=["SCRAM-SHA-1"])
        admin.command("createUser", "nobody", pwd="pw", roles=[])
        privilege = {"resource": {"cluster": True}, "actions": ["serverStatus"]}
        admin.command("createRole", "figures", privileges=[privilege], roles=[])
        admin.command("createUser", "scraper", pwd="pw", roles=["figures"])
        yield made


def test_users_prove_who_they_are(guarded):
    for path in ["/", "/metrics", "/status.json", "/nonesuch"]:
        for headers in [{}, basic("watcher", "wrong"), basic("nonesuch", "pw"), {"Authorization": "Bearer x"}]:
            status, found, text = ask(guarded, path, headers)
            assert status == 401 and found["WWW-Authenticate"].startswith("Basic realm="), (path, headers)
            assert "tenon_" not in text and "<html" not in text
    for user, password in [("watcher", "p:w"), ("old", "pw"), ("root", "pw")]:
        assert ask(guarded, "/", basic(user, password))[0] == 200
        assert metrics(guarded, basic(user, password))
        page = json.loads(ask(guarded, "/status.json", basic(user, password))[2])
        assert page["refused"] == {}
    log = guarded.log.read_text()
    assert "Successfully authenticated" in log and "Failed to authenticate" in log and "p:w" not in log


def test_users_see_what_they_may(guarded):
    assert ask(guarded, "/metrics", basic("nobody", "pw"))[0] == 403
    assert ask(guarded, "/status.json", basic("nobody", "pw"))[0] == 403
    assert metrics(guarded, basic("scraper", "pw"))
    page = json.loads(ask(guarded, "/status.json", basic("scraper", "pw"))[2])
    assert set(page["refused"]) == {"top", "running", "slow"} and page["collections"] == page["slow"] == []


def test_who_was_let_in_is_asked_again_when_that_changes(guarded):
    admin = guarded.client(username="root", password="pw").admin
    admin.command("createUser", "leaver", pwd="pw", roles=["clusterMonitor"])
    connection = http.client.HTTPConnection("127.0.0.1", http_port(guarded), timeout=PATIENCE)

    def status(headers):
        connection.request("GET", "/metrics", headers=headers)
        reply = connection.getresponse()
        reply.read()
        return reply.status

    assert [status(basic("leaver", "pw")) for _ in range(2)] == [200, 200]
    # Another user on the same connection has nothing of the former's.
    assert status(basic("nobody", "pw")) == 403
    assert status({}) == 401
    assert status(basic("leaver", "pw")) == 200
    admin.command("dropUser", "leaver")
    assert status(basic("leaver", "pw")) == 403
    connection.close()


def test_beyond_this_machine_it_is_encrypted(tmp_path):
    ca = authority(tmp_path, "ca")
    pem = certificate(tmp_path, "server", ca)
    bind = ["--httpPort", "0", "--httpBindIp", "0.0.0.0"]
    for options, missing in [(bind, "--auth"), ([*bind, "--auth"], "TLS")]:
        done = subprocess.run(
            [*Server(tmp_path / "refused").command(), *options], capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 2 and missing in done.stdout + done.stderr
    tls = ["--tlsMode", "allowTLS", "--tlsCertificateKeyFile", str(pem)]
    with Server(tmp_path / "served", options=[*bind, "--auth", *tls]) as server:
        server.client().admin.command("createUser", "root", pwd="pw", roles=["root"])
        context = ssl.create_default_context(cafile=f"{ca}.crt")
        connection = http.client.HTTPSConnection("localhost", http_port(server), timeout=PATIENCE, context=context)
        connection.request("GET", "/metrics", headers=basic("root", "pw"))
        reply = connection.getresponse()
        assert reply.status == 200 and b"tenon_operations_total" in reply.read()
        connection.close()
        # In the clear nothing is answered, whatever the mode says for drivers.
        assert not raw(server, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP")


def test_a_member_tells_of_its_set(tmp_path):
    options = ["--httpPort", "0", "--replSet", "rs0", "--replSetInitiate"]
    with Server(tmp_path, options=options) as server:
        server.client(replicaSet="rs0").shop.c.insert_one({})
        found = metrics(server)
        (state,) = [value for key, value in found.items() if key[0] == "tenon_member_state"]
        (lag,) = [value for key, value in found.items() if key[0] == "tenon_member_lag_seconds"]
        assert (state, lag) == (1, 0) and found[("tenon_member_term",)] >= 1
        page = json.loads(ask(server, "/status.json")[2])
        assert page["set"]["members"][0]["stateStr"] == "PRIMARY"


def test_members_tell_of_each_other_and_serve_the_page_after_a_copy(tmp_path):
    """A member that has copied all data starts anew within its process: its page is at the same port again."""
    with ReplicaSet(tmp_path, options=["--httpPort", "0"]) as rs:
        rs.initiate()
        rs.client().shop.c.with_options(write_concern=WriteConcern(w=3)).insert_one({})
        rs.wait_healthy()
        primary = rs.primary
        expected = {of.host: 1 if of is primary else 2 for of in rs.members}

        def told(member):
            found = metrics(member)
            states = {dict(key[1:])["member"]: value for key, value in found.items() if key[0] == "tenon_member_state"}
            lags = [value for key, value in found.items() if key[0] == "tenon_member_lag_seconds"]
            return states, len(lags), min(lags, default=None)

        for each in rs.members:
            lines = [json.loads(line) for line in each.log.read_text().splitlines() if "The monitoring page is served" in line]
            assert len({line["attr"]["port"] for line in lines}) == 1 and (len(lines) == 2 or each is primary)
            # Of the others each knows what they said last.
            wait(lambda each=each: told(each) == (expected, 3, 0), lambda each=each: told(each))
        host = rs.secondaries[0].host
        rs.secondaries[0].stop()
        wait(lambda: metrics(rs.primary)[("tenon_member_up", ("member", host))] == 0, "the member is seen to be down")
        # Of who does not answer nobody knows how far behind it is, or how far away.
        found = metrics(rs.primary)
        assert ("tenon_member_lag_seconds", ("member", host)) not in found
        assert ("tenon_member_ping_seconds", ("member", host)) not in found
