"""What members of a cluster prove themselves by: key files, and (below) certificates."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from server import Server, binary

CLIENTS = Path(os.environ.get("TENON_CLIENTS", os.path.expanduser("~/.cache/tenon/clients")))

KEY = "c2VjcmV0IG9mIHRoZSBjbHVzdGVy+/=="


def key_file(directory, text, mode=0o600):
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "cluster.key"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def member(server, key, mechanism="SCRAM-SHA-256"):
    return server.client(username="__system", password=key, authSource="local", authMechanism=mechanism)


def code(run, *arguments, **options):
    with pytest.raises(OperationFailure) as refused:
        run(*arguments, **options)
    return refused.value.code


def log_lines(server):
    return [json.loads(line) for line in server.log.read_text().split("\n") if line]


def test_a_key_logs_members_in(tmp_path):
    # White space is no part of a key.
    server = Server(tmp_path, options=["--keyFile", key_file(tmp_path, f"{KEY[:10]}\n  {KEY[10:]}\n")])
    server.start()
    assert code(server.client().shop.c.insert_one, {}) == 13, "a key file implies --auth"
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-1"):
        client = member(server, KEY, mechanism)
        client.shop.c.insert_one({"by": mechanism})
        assert client.admin["system.keys"].count_documents({}) > 0, "it may read what no role may"
        client.local.mine.insert_one({})
        info = client.admin.command("connectionStatus")["authInfo"]
        assert info["authenticatedUsers"] == [{"user": "__system", "db": "local"}]
        assert code(member(server, KEY[1:], mechanism).shop.c.find_one) == 18
    # It is no user: it is in no list, and cannot be changed or made.
    client = member(server, KEY)
    assert client.local.command("usersInfo", "__system")["users"] == []
    assert code(client.local.command, "updateUser", "__system", pwd="x") == 11
    assert code(client.local.command, "createUser", "__system", pwd="x", roles=[]) == 2
    # The way in for the first user is open as without a key.
    server.client().admin.command("createUser", "root", pwd="r00t", roles=["root"])
    root = server.client(username="root", password="r00t")
    assert code(root.admin["system.keys"].find_one) == 13
    lines = [line for line in log_lines(server) if line.get("attr", {}).get("user") == "__system"]
    failed = [line for line in lines if line["id"] == 5286307]
    assert len(failed) == 2 and len(lines) > 4 and all(line["attr"]["db"] == "local" for line in lines)
    assert KEY not in server.log.read_text() and KEY[:10] not in server.log.read_text()
    assert server.stop() == 0


def test_keys_are_changed_one_member_at_a_time(tmp_path):
    old, new = "oldKey1234", "newKey5678"
    for text, accepted in [(old, [old]), (f"- {old}\n- {new}\n", [old, new]), (f'- "{new}"\n- {old}\n', [old, new]), (new, [new])]:
        server = Server(tmp_path, options=["--keyFile", key_file(tmp_path, text)])
        server.start()
        for key in (old, new):
            client = member(server, key)
            if key in accepted:
                assert client.admin.command("ping")["ok"] == 1 and client.admin["system.keys"].find_one()
            else:
                assert code(client.admin.command, "ping") == 18
        assert server.stop() == 0


def test_guessing_keys_is_slowed_down(tmp_path):
    key = KEY[:31]
    server = Server(tmp_path, options=["--keyFile", key_file(tmp_path, key)])
    server.start()
    for number in range(6):
        assert code(member(server, f"wrongKey{number}").admin.command, "ping") == 18
    failed = [line["t"]["$date"] for line in log_lines(server) if line["id"] == 5286307]
    assert len(failed) == 6
    # The wait ends with a right key, which is heard.
    assert member(server, key).admin.command("ping")["ok"] == 1
    assert server.stop() == 0


def test_a_key_file_that_will_not_do_keeps_the_server_from_starting(tmp_path):
    for name, text, mode, said in [
        ("open", KEY, 0o640, "permissions are too open"),
        ("short", "abc", 0o600, "3 characters"),
        ("long", "a" * 1025, 0o600, "1025 characters"),
        ("other", "abc$defgh", 0o600, "base64"),
        ("empty", "", 0o600, "0 characters"),
        ("missing", None, 0o600, "No such file"),
    ]:
        folder = tmp_path / name
        path = key_file(folder, text or "", mode)
        if text is None:
            (folder / "cluster.key").unlink()
        data = folder / "data"
        data.mkdir()
        line = [binary(), "--dbpath", data, "--port", "0", "--nounixsocket", "--keyFile", path]
        done = subprocess.run([str(part) for part in line], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and said in done.stdout + done.stderr, (name, done.stdout + done.stderr)
        assert list(data.iterdir()) == [], name
    # Modes for the owner alone are right, and the server may listen to others then.
    server = Server(tmp_path / "right", options=["--keyFile", key_file(tmp_path / "right", KEY, 0o400)])
    command = server.command
    server.command = lambda: [part.replace("127.0.0.1", "0.0.0.0") for part in command()]
    server.start()
    assert MongoClient("127.0.0.1", server.port).admin.command("ping")["ok"] == 1
    assert server.stop() == 0


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, directory, name="ca"):
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.name = directory, name
        self.certificate, self.key = directory / f"{name}.crt", directory / f"{name}.key"
        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", self.certificate, "-days", 3,
            "-subj", f"/O=Authority/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE",
        )  # fmt: skip

    def make(self, name, subject):
        """`name.pem`: a certificate of the subject, with its key."""
        key, request, made = (self.directory / f"{name}.{ending}" for ending in ("key", "csr", "crt"))
        openssl("req", "-utf8", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", subject)
        extensions = self.directory / f"{name}.ext"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial",
            "-out", made, "-days", 3, "-extfile", extensions,
        )  # fmt: skip
        both = self.directory / f"{name}.pem"
        both.write_text(made.read_text() + key.read_text())
        return str(both)


def printed_name(pem):
    """As `openssl` prints it for who makes a user."""
    shown = subprocess.run(["openssl", "x509", "-in", pem, "-noout", "-subject", "-nameopt", "RFC2253"], capture_output=True, text=True, check=True)
    return shown.stdout.strip().removeprefix("subject=").strip()


@pytest.fixture(scope="module")
def files(new_folder):
    ca = Authority(new_folder("certificates"))
    return {
        "ca": str(ca.certificate),
        "server": ca.make("server", "/DC=org/DC=shop/O=Shop/OU=db/CN=one"),
        "member": ca.make("member", "/CN=two/OU=db/O=Shop/DC=shop/DC=org"),
        "half": ca.make("half", "/O=Shop/OU=db/CN=half"),
        "amy": ca.make("amy", "/C=DE/O=Shop, Inc./OU=web+UID=7/emailAddress=amy@shop.org/CN=Amy \\+ Co"),
        "bob": ca.make("bob", "/O=Elsewhere/CN=bob"),
        "bare": ca.make("bare", "/"),
        "plain": ca.make("plain", "/CN=plain"),
    }


def serve(tmp_path, files, *options):
    line = ["--tlsMode", "preferTLS", "--tlsCertificateKeyFile", files["server"], "--tlsCAFile", files["ca"]]
    server = Server(tmp_path, "inMemory", options=[*line, "--tlsAllowConnectionsWithoutCertificates", *options])
    return server.start()


def shown_by(server, files, name, **options):
    options = {name: value for name, value in {"authMechanism": "MONGODB-X509", **options}.items() if value}
    shown = {"tlsCertificateKeyFile": files[name]} if name else {}
    return server.client(tls=True, tlsCAFile=files["ca"], **shown, **options)


def who(client):
    return client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]


def make_users(server, files, *names):
    first = server.client()
    first.admin.command("createUser", "root", pwd="r00t", roles=["root"])
    root = server.client(username="root", password="r00t")
    for name in names:
        user = printed_name(files[name])
        root["$external"].command("createUser", user, roles=[{"role": "readWrite", "db": "shop"}])
    return root


def test_a_certificate_logs_a_user_in(tmp_path, files):
    server = serve(tmp_path, files, "--auth")
    root = make_users(server, files, "amy")
    name = printed_name(files["amy"])
    assert name == r"CN=Amy \+ Co,emailAddress=amy@shop.org,UID=7+OU=web,O=Shop\, Inc.,C=DE"
    assert "MONGODB-X509" in root.admin.command("getParameter", authenticationMechanisms=1)["authenticationMechanisms"]
    client = shown_by(server, files, "amy")
    client.shop.c.insert_one({"_id": 1})
    assert who(client) == [{"user": name, "db": "$external"}]
    assert code(client.other.c.find_one) == 13
    assert who(shown_by(server, files, "amy", username=name)) == who(client)
    assert code(shown_by(server, files, "amy", username="CN=root").admin.command, "ping") == 18
    # Nobody's certificate, one without a name, none at all, and one over no TLS.
    assert code(shown_by(server, files, "bob").admin.command, "ping") == 18
    assert code(shown_by(server, files, "bare").admin.command, "ping") == 18
    assert code(shown_by(server, files, None).admin.command, "ping") == 18
    plain = server.client()
    assert code(plain["$external"].command, {"authenticate": 1, "mechanism": "MONGODB-X509", "user": name}) == 18
    assert code(shown_by(server, files, "amy", authMechanism=None)["shop"].command, {"authenticate": 1, "mechanism": "MONGODB-X509"}) == 17
    # The certificate of another authority lets nobody in to begin with: see test_tls.py.
    info = root["$external"].command("usersInfo", name, showCredentials=True)["users"][0]
    assert info["mechanisms"] == ["external"] and info["credentials"] == {"external": True}
    hello = plain.admin.command("hello", saslSupportedMechs=f"$external.{name}")
    assert hello["saslSupportedMechs"] == ["MONGODB-X509"]
    # Passwords are for other users.
    assert code(root["$external"].command, "createUser", "CN=x", pwd="x", roles=[]) == 2
    assert code(root["$external"].command, "createUser", "CN=x", roles=[], mechanisms=["SCRAM-SHA-1"]) == 2
    assert code(root["$external"].command, "updateUser", name, pwd="x") == 2
    assert code(server.client(username=name, password="x", authSource="$external", authMechanism="SCRAM-SHA-256").admin.command, "ping") == 18
    # Rights end at once, and so does the user.
    root["$external"].command("revokeRolesFromUser", name, roles=[{"role": "readWrite", "db": "shop"}])
    assert code(client.shop.c.find_one) == 13
    root["$external"].command("dropUser", name)
    assert code(client.shop.c.find_one) == 13
    assert code(shown_by(server, files, "amy").admin.command, "ping") == 18
    attempts = [line["attr"] for line in log_lines(server) if line["id"] in (5286306, 5286307)]
    of_certificates = [attempt for attempt in attempts if attempt["mechanism"] == "MONGODB-X509"]
    assert {attempt["db"] for attempt in of_certificates} == {"$external"}
    errors = {attempt["user"]: attempt["error"] for attempt in of_certificates if "error" in attempt}
    assert errors["CN=bob,O=Elsewhere"] == "there is no such user"
    assert server.stop() == 0


def test_users_of_certificates_may_be_barred_from_addresses(tmp_path, files):
    server = serve(tmp_path, files, "--auth")
    root = make_users(server, files, "bob")
    restrictions = [{"clientSource": ["10.0.0.0/8"]}]
    root["$external"].command("updateUser", printed_name(files["bob"]), authenticationRestrictions=restrictions)
    assert code(shown_by(server, files, "bob").admin.command, "ping") == 18
    assert server.stop() == 0


def test_a_members_certificate_is_no_users(tmp_path, files):
    server = serve(tmp_path, files, "--auth")
    make_users(server, files, "member")
    with pytest.raises(OperationFailure, match="clusterAuthMode") as refused:
        shown_by(server, files, "member").admin.command("ping")
    assert refused.value.code == 18
    assert server.stop() == 0


@pytest.mark.parametrize("mode", ["keyFile", "sendKeyFile", "sendX509", "x509"])
def test_members_prove_themselves_by_certificate_or_key(tmp_path, files, mode):
    key = [] if mode == "x509" else ["--keyFile", key_file(tmp_path, KEY)]
    server = serve(tmp_path, files, "--clusterAuthMode", mode, *key)
    root = make_users(server, files, "half")
    assert root.admin.command("getParameter", clusterAuthMode=1)["clusterAuthMode"] == mode
    client = shown_by(server, files, "member")
    if mode == "keyFile":
        assert code(client.admin.command, "ping") == 18
    else:
        assert who(client) == [{"user": "__system", "db": "local"}]
        assert client.admin["system.keys"].find_one()
    keyed = member(server, KEY)
    if mode == "x509":
        assert code(keyed.admin.command, "ping") == 18
    else:
        assert keyed.admin["system.keys"].find_one()
    # Some of the organisation is not enough.
    assert who(shown_by(server, files, "half")) == [{"user": printed_name(files["half"]), "db": "$external"}]
    assert code(shown_by(server, files, "half").admin["system.keys"].find_one) == 13
    assert server.stop() == 0


def test_a_certificate_without_an_organisation_makes_no_cluster(tmp_path, files):
    with pytest.raises(RuntimeError, match="no O, OU or DC"):
        serve(tmp_path, {**files, "server": files["plain"]}, "--clusterAuthMode", "x509")
    assert list((tmp_path / "data").iterdir()) == []


def test_mongosh_logs_in_by_certificate(tmp_path, files):
    server = serve(tmp_path, files, "--auth")
    make_users(server, files, "amy")
    shell = CLIENTS / "node" / "node_modules" / ".bin" / "mongosh"
    line = [
        shell, f"mongodb://localhost:{server.port}/shop", "--tls", "--tlsCAFile", files["ca"], "--tlsCertificateKeyFile", files["amy"],
        "--authenticationDatabase", "$external", "--authenticationMechanism", "MONGODB-X509", "--quiet", "--norc",
        "--eval", "db.c.insertOne({_id: 1}); print(db.c.countDocuments())",
    ]  # fmt: skip
    done = subprocess.run([str(part) for part in line], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "1", done.stdout + done.stderr
    assert server.stop() == 0
