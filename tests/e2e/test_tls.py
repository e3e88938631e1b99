"""Encrypted connections, with certificates made here: drivers, modes, client certificates, rotation."""

import contextlib
import json
import os
import socket
import ssl
import struct
import subprocess
from pathlib import Path

import bson
import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from server import Server, binary

CLIENTS = Path(os.environ.get("TENON_CLIENTS", os.path.expanduser("~/.cache/tenon/clients")))


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def certificate(directory, name, ca):
    """Makes `name.pem`: a certificate of the authority, with its key."""
    key, request, made = (directory / f"{name}.{ending}" for ending in ("key", "csr", "crt"))
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"/O=Tenon/CN={name}")
    extensions = directory / f"{name}.ext"
    extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    openssl(
        "x509", "-req", "-in", request, "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial",
        "-out", made, "-days", 3, "-extfile", extensions,
    )  # fmt: skip
    both = directory / f"{name}.pem"
    both.write_text(made.read_text() + key.read_text())
    return both


def authority(directory, name):
    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", directory / f"{name}.key",
        "-out", directory / f"{name}.crt", "-days", 3, "-subj", f"/O=Tenon/CN={name}",
        "-addext", "basicConstraints=critical,CA:TRUE",
    )  # fmt: skip
    return directory / name


@pytest.fixture(scope="module")
def files(new_folder):
    directory = new_folder("certificates")
    ca, other = authority(directory, "ca"), authority(directory, "other")
    return {
        "ca": f"{ca}.crt",
        "server": certificate(directory, "server", ca),
        "second": certificate(directory, "second", ca),
        "client": certificate(directory, "client", ca),
        "stranger": certificate(directory, "stranger", other),
        "key": directory / "server.key",
    }


def serve(tmp_path, mode, files, *options):
    line = ["--tlsMode", mode, "--tlsCertificateKeyFile", files["server"], *options]
    server = Server(tmp_path, "inMemory", options=[str(each) for each in line])
    server.start()
    return server


def connect(server, files, **options):
    encrypted = {"tls": True, "tlsCAFile": files["ca"]} if files else {}
    return MongoClient("localhost", server.port, **{**encrypted, **options})


def works(client):
    try:
        return client.admin.command("ping")["ok"] == 1
    except PyMongoError:
        return False
    finally:
        client.close()


def is_refused(server, files, **options):
    # A driver that finds no server tries on until this is over.
    return not works(connect(server, files, serverSelectionTimeoutMS=1500, **options))


def test_a_driver_over_tls(tmp_path, files):
    server = serve(tmp_path, "requireTLS", files)
    client = connect(server, files, compressors="zlib")
    c = client.t.c
    # Larger than a record, both ways, and many at once.
    documents = [{"_id": n, "text": str(n) * 30000} for n in range(200)]
    c.insert_many(documents)
    assert list(c.find().sort("_id", 1)) == documents
    assert c.find_one({"_id": 7})["text"] == "7" * 30000
    assert client.admin.command("getParameter", tlsMode=1)["tlsMode"] == "requireTLS"
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=files["ca"])
        context.minimum_version = context.maximum_version = version
        with socket.create_connection(("localhost", server.port)) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as wrapped:
                assert wrapped.version() in ("TLSv1.2", "TLSv1.3")
    client.close()
    assert is_refused(server, None), "a plain connection"
    assert is_refused(server, files, tlsCAFile=None), "an unknown authority"
    assert server.stop() == 0


def test_a_quiet_client_is_told_of_the_end(tmp_path, files):
    server = serve(tmp_path, "requireTLS", files)
    context = ssl.create_default_context(cafile=files["ca"])
    body = bson.encode({"ping": 1, "$db": "admin"})
    with socket.create_connection(("localhost", server.port), timeout=60) as plain:
        # Without `close_notify` the end is an error.
        with context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as wrapped:
            wrapped.sendall(struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body)
            assert len(wrapped.recv(65536)) > 16
            assert server.stop() == 0
            assert wrapped.recv(1) == b""


def test_both_kinds_on_one_port(tmp_path, files):
    for mode in ("allowTLS", "preferTLS"):
        server = serve(tmp_path / mode, mode, files)
        assert works(connect(server, None)) and works(connect(server, files))
        assert server.stop() == 0


def test_the_socket_of_this_machine_needs_none(tmp_path, files):
    options = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", files["server"], "--unixSocketPrefix", tmp_path]
    server = Server(tmp_path, "inMemory", options=[str(option) for option in options])
    command = server.command
    server.command = lambda: [part for part in command() if part != "--nounixsocket"]
    server.start()
    path = str(tmp_path / f"mongodb-{server.port}.sock").replace("/", "%2F")
    assert works(MongoClient(f"mongodb://{path}"))
    assert server.stop() == 0


def test_certificates_of_clients(tmp_path, files):
    server = serve(tmp_path / "strict", "requireTLS", files, "--tlsCAFile", files["ca"])
    assert is_refused(server, files)
    assert works(connect(server, files, tlsCertificateKeyFile=str(files["client"])))
    assert is_refused(server, files, tlsCertificateKeyFile=str(files["stranger"]))
    assert server.stop() == 0
    loose = ["--tlsCAFile", files["ca"], "--tlsAllowConnectionsWithoutCertificates"]
    server = serve(tmp_path / "loose", "requireTLS", files, *loose)
    assert works(connect(server, files))
    assert is_refused(server, files, tlsCertificateKeyFile=str(files["stranger"]))
    assert server.stop() == 0


def seen(server):
    with socket.create_connection(("localhost", server.port)) as plain:
        context = ssl._create_unverified_context()
        with context.wrap_socket(plain) as wrapped:
            return ssl.DER_cert_to_PEM_cert(wrapped.getpeercert(True)).strip()


def test_certificates_are_rotated(tmp_path, files):
    own = tmp_path / "own.pem"
    own.write_text(files["server"].read_text())
    server = serve(tmp_path, "requireTLS", {**files, "server": own})
    client = connect(server, files)
    first = seen(server)
    assert first in files["server"].read_text().replace("\r", "")
    own.write_text(files["second"].read_text())
    assert seen(server) == first
    client.admin.command("rotateCertificates")
    assert seen(server) != first and seen(server) in files["second"].read_text()
    own.write_text("nonsense")
    with pytest.raises(PyMongoError, match="the former certificates stay in use"):
        client.admin.command("rotateCertificates")
    assert seen(server) in files["second"].read_text() and client.admin.command("ping")["ok"] == 1
    client.close()
    assert server.stop() == 0


def test_what_comes_before_the_end_is_carried_out(tmp_path, files):
    """A client writes without asking for a reply and closes, all in one packet, as drivers do when a program ends."""
    server = serve(tmp_path, "requireTLS", files)
    context = ssl.create_default_context(cafile=files["ca"])
    for number in range(20):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
            while True:
                try:
                    session.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    raw.sendall(outgoing.read())
                    incoming.write(raw.recv(1 << 16))
            body = bson.encode({"insert": "c", "documents": [{"_id": number}], "writeConcern": {"w": 0}, "$db": "t"})
            more_to_come = struct.pack("<I", 2)
            session.write(struct.pack("<iiii", 21 + len(body), 1, 0, 2013) + more_to_come + b"\0" + body)
            with contextlib.suppress(ssl.SSLWantReadError):
                session.unwrap()
            raw.sendall(outgoing.read())
            # The server closes when it has carried out what came.
            with contextlib.suppress(ConnectionError):
                while raw.recv(1 << 16):
                    pass
    assert connect(server, files).t.c.count_documents({}) == 20
    assert server.stop() == 0


def test_what_is_no_handshake_ends_its_own_connection(tmp_path, files):
    server = serve(tmp_path, "allowTLS", files)
    client = connect(server, files)
    hello = bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]) + bytes(200)
    for sent in (hello, hello[:20], bytes(range(256)) * 4, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", hello + b"\xff" * 70000):
        with socket.create_connection(("localhost", server.port), timeout=5) as raw:
            # The server may have closed the connection before all is sent.
            with contextlib.suppress(OSError):
                raw.sendall(sent)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(4096):
                    pass
        assert client.admin.command("ping")["ok"] == 1
    # A handshake that is never finished keeps nobody else waiting.
    waiting = [socket.create_connection(("localhost", server.port)) for _ in range(50)]
    for each in waiting:
        each.sendall(hello[:15])
    assert works(connect(server, files))
    for each in waiting:
        each.close()
    client.close()
    assert server.stop() == 0


def test_wrong_files_are_told_before_anything_is_made(tmp_path, files):
    for name, options, said in [
        ("missing", ["--tlsCertificateKeyFile", "/nowhere.pem"], "/nowhere.pem"),
        ("none", ["--tlsCertificateKeyFile", files["key"]], "has no certificate"),
        ("keyless", ["--tlsCertificateKeyFile", files["ca"]], "has no private key"),
    ]:
        folder = tmp_path / name
        folder.mkdir()
        line = [binary(), "--dbpath", folder, "--port", "0", "--tlsMode", "requireTLS", *options]
        done = subprocess.run([str(each) for each in line], capture_output=True, text=True, timeout=30)
        assert done.returncode != 0 and said in done.stdout + done.stderr, done.stdout + done.stderr
        assert list(folder.iterdir()) == []


def test_mongosh_and_node(tmp_path, files):
    server = serve(tmp_path, "requireTLS", files)
    uri = f"mongodb://localhost:{server.port}/t?tls=true&tlsCAFile={files['ca']}"
    shell = CLIENTS / "node" / "node_modules" / ".bin" / "mongosh"
    script = "db.c.insertOne({_id: 1}); print(JSON.stringify(db.c.find().toArray()))"
    done = subprocess.run([str(shell), uri, "--quiet", "--norc", "--eval", script], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == [{"_id": 1}], done.stdout + done.stderr
    program = """
        const { MongoClient } = require("mongodb");
        (async () => {
            const client = new MongoClient(process.env.TENON_URI);
            await client.db("t").collection("c").insertOne({ _id: 2, text: "x".repeat(3e6) });
            console.log((await client.db("t").collection("c").findOne({ _id: 2 })).text.length);
            await client.close();
        })();
    """
    environment = {**os.environ, "NODE_PATH": str(CLIENTS / "node" / "node_modules"), "TENON_URI": uri}
    done = subprocess.run(["node", "-e", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "3000000\n", done.stdout + done.stderr
    assert server.stop() == 0


def tenon(*arguments):
    program = os.environ.get("TENON") or os.path.join(os.path.dirname(binary()), "tenon")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_the_tools(tmp_path, files):
    server = serve(tmp_path, "requireTLS", files, "--tlsCAFile", files["ca"])
    client = connect(server, files, tlsCertificateKeyFile=str(files["client"]))
    documents = [{"_id": n, "text": str(n) * 20000} for n in range(300)]
    client.t.c.insert_many(documents)
    secure = ["--tls", "--tlsCAFile", files["ca"], "--tlsCertificateKeyFile", files["client"], "--host", "localhost"]
    secure += ["--port", server.port]
    done = tenon("dump", *secure, "--out", tmp_path / "dump")
    assert done.returncode == 0, done.stderr
    client.t.c.drop()
    uri = f"mongodb://localhost:{server.port}/?tls=true&tlsCAFile={files['ca']}&tlsCertificateKeyFile={files['client']}"
    done = tenon("restore", "--uri", uri, tmp_path / "dump")
    assert done.returncode == 0, done.stderr
    assert list(client.t.c.find().sort("_id", 1)) == documents
    host = ["--host", "localhost", "--port", server.port, "--out", tmp_path / "none"]
    for options, said in [
        ([], ""),
        (["--tls", "--tlsCAFile", files["ca"]], ""),
        (["--tls"], "TLS with"),
        (["--tlsCAFile", files["ca"]], "--tls is missing"),
        (["--tls", "--tlsCAFile", "/nowhere.pem"], "/nowhere.pem"),
    ]:
        refused = tenon("dump", *host, *options)
        assert refused.returncode == 1 and said in refused.stderr, refused.stderr
    named = tenon("dump", "--uri", uri.replace("localhost", "127.0.0.2"), "--out", tmp_path / "none")
    assert named.returncode == 1, "the certificate names another host"
    client.close()
    assert server.stop() == 0
