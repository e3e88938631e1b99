"""Encryption at rest: what is in the files, what opens them, and what a server says of it."""

import base64
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from members import ReplicaSet
from pymongo import WriteConcern
from pymongo.errors import PyMongoError
from server import ENGINES, Server, binary

TENON = Path(os.environ.get("TENON", Path(binary()).with_name("tenon")))
CIPHERED = [engine for engine in ENGINES if engine in ("btree", "betree", "inMemory", "mmapv1")]
# In no document twice, so that nothing compresses it away.
KNOWN = "a sentence that is known word for word"
MARKER = random.Random(41).randbytes(64)


def new_key(folder, name="key", byte=None):
    path = folder / name
    path.write_bytes(base64.b64encode(os.urandom(32) if byte is None else bytes([byte] * 32)) + b"\n")
    path.chmod(0o600)
    return path


def encrypted(folder, engine, key=None, options=()):
    key = key or new_key(folder)
    return Server(folder, engine, ["--enableEncryption", "--encryptionKeyFile", str(key), *options])


def documents(first, count):
    """Each with bytes that do not compress."""
    numbers = range(first, first + count)
    return [{"_id": n, "n": n, "text": f"{KNOWN} {n}", "bytes": MARKER + random.Random(n).randbytes(300)} for n in numbers]


def durable(collection):
    return collection.with_options(write_concern=WriteConcern(j=True))


def sort_with_little_memory(client):
    """A sort that goes on in files, and stays open while they are looked at."""
    client.admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=100_000, internalQuerySpillingMinAvailableDiskSpaceBytes=0)
    cursor = client.secret_db.secret_collection.aggregate([{"$sort": {"bytes": 1, "text": -1}}], allowDiskUse=True, batchSize=2)
    next(cursor)
    return cursor


def look_for_plain_text(data):
    """Every file, for what was written and for parts of it; their names."""
    seen = {}
    for path in sorted(data.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        seen[str(path.relative_to(data))] = len(content)
        for part in [b"a sentence", b"word for word", b"secret_collection", MARKER[:12], MARKER[40:52]]:
            assert part not in content, f"{part} in {path}"
    return seen


def checkpoint(client):
    client.admin.command("fsync")


@pytest.mark.parametrize("engine", CIPHERED)
def test_nothing_is_to_be_seen_in_any_file_and_all_is_there_after_a_kill(tmp_path, engine):
    server = encrypted(tmp_path, engine).start()
    client = server.client()
    collection = durable(client.secret_db.secret_collection)
    collection.create_index("text")
    collection.insert_many(documents(0, 3000))
    checkpoint(client)
    look_for_plain_text(server.data)
    collection.insert_many(documents(3000, 500))
    collection.update_many({"n": {"$lt": 100}}, {"$set": {"more": KNOWN}})
    cursor = sort_with_little_memory(client)
    seen = look_for_plain_text(server.data)
    assert any(name.startswith("_tmp/spill-") and size > 100_000 for name, size in seen.items()), seen
    cursor.close()
    server.kill()
    seen = look_for_plain_text(server.data)
    assert {"encryption.keys", "storage.bson"} <= set(seen)
    assert any(name.startswith("journal/") for name in seen) and any(name.startswith(f"{engine}/") for name in seen), seen
    for _ in range(2):
        server.start()
        collection = server.client().secret_db.secret_collection
        assert collection.count_documents({"more": KNOWN}) == 100
        assert sorted(collection.find(), key=lambda each: each["_id"]) == [
            {**each, **({"more": KNOWN} if each["n"] < 100 else {})} for each in documents(0, 3500)
        ]
        assert server.client().secret_db.command("validate", "secret_collection", full=True)["valid"]
        assert server.stop() == 0
        look_for_plain_text(server.data)


def refusal(server):
    """What a server says that does not start, and that its directory is as it was."""

    def fingerprint():
        return {path: path.read_bytes() for path in server.data.rglob("*") if path.is_file()}

    before = fingerprint()
    with pytest.raises(RuntimeError) as error:
        server.start()
    after = fingerprint()
    server.process.stdout.close()
    server.process = None
    assert before == after
    return str(error.value)


@pytest.mark.parametrize("engine", CIPHERED)
def test_a_directory_opens_with_its_key_and_with_nothing_else(tmp_path, engine):
    server = encrypted(tmp_path, engine)
    with server:
        server.client().db.c.insert_one({"_id": 1})
    options = list(server.options)
    server.options = []
    assert "it is encrypted: start with --enableEncryption" in refusal(server)
    server.options = [*options[:2], str(new_key(tmp_path, "other"))]
    assert "was made with the master key" in refusal(server)
    key = Path(options[2])
    server.options = options
    key.chmod(0o644)
    assert "permissions are too open" in refusal(server)
    key.chmod(0o400)
    store, second = (server.data / name for name in ("encryption.keys", "encryption.keys.copy"))
    store.rename(tmp_path / "aside")
    second.unlink()
    assert "encryption.keys is missing" in refusal(server)
    # One whole copy is enough, and makes the other one whole.
    whole = (tmp_path / "aside").read_bytes()
    second.write_bytes(whole)
    store.write_bytes(whole[:100] + b"?" + whole[101:])
    with server:
        assert server.client().db.c.find_one() == {"_id": 1}
    assert store.read_bytes() == second.read_bytes() == whole
    server.options = ["--enableEncryption", "--encryptionKeyCommand", f"cat {key}"]
    with server:
        assert server.client().db.c.find_one() == {"_id": 1}
        assert key.read_text().strip() not in str(server.client().admin.command("getCmdLineOpts"))


def test_a_directory_that_is_not_encrypted_stays_so(tmp_path):
    server = Server(tmp_path)
    with server:
        server.client().db.c.insert_one({"_id": 1})
        assert server.client().admin.command("serverStatus")["encryptionAtRest"] == {"encryptionEnabled": False}
    server.options = ["--enableEncryption", "--encryptionKeyFile", str(new_key(tmp_path))]
    said = refusal(server)
    assert "it is not encrypted" in said and "initial sync" in said
    server.options = []
    with server:
        assert server.client().db.c.find_one() == {"_id": 1}


@pytest.mark.parametrize(
    "options, said",
    [
        (["--enableEncryption"], "has to be used with security.encryptionKeyFile"),
        (["--encryptionKeyFile", "KEY"], "have to be used with security.enableEncryption"),
        (["--enableEncryption", "--encryptionKeyFile", "KEY", "--encryptionKeyCommand", "cat KEY"], "cannot both be given"),
        (["--enableEncryption", "--encryptionKeyFile", "KEY", "--encryptionCipherMode", "AES256-CBC"], "AES256-CBC is not built"),
        (["--enableEncryption", "--encryptionKeyFile", "KEY", "--encryptionCipherMode", "ROT13"], "ROT13 is not known"),
        (["--enableEncryption", "--kmipServerName", "host"], "KMIP or Vault"),
        (["--enableEncryption", "--vaultServerName", "host"], "KMIP or Vault"),
        (["--enableEncryption", "--encryptionKeyFile", "KEY", "--encryptionRotateMasterKey"], "--encryptionNewKeyFile"),
        (["--enableEncryption", "--encryptionKeyCommand", "false"], "false ended with"),
        (["--enableEncryption", "--encryptionKeyCommand", "/no/such/program"], "cannot start /no/such/program"),
        (["--enableEncryption", "--encryptionKeyCommand", " "], "names no program"),
        (["--enableEncryption", "--encryptionKeyCommand", "echo no key"], "is not one key in base64"),
        (["--enableEncryption", "--encryptionKeyCommand", "cat /dev/zero"], "printed more than 1 KiB"),
    ],
)
def test_options_that_do_not_go_together_are_refused_by_name(tmp_path, options, said):
    key = str(new_key(tmp_path))
    server = Server(tmp_path, options=[option.replace("KEY", key) for option in options])
    assert said in refusal(server)
    assert not list(server.data.iterdir())


def test_a_key_command_that_fails_has_an_exit_code_of_its_own(tmp_path):
    # A service manager tries again: what fetches the key may not be reached yet.
    server = Server(tmp_path, CIPHERED[0], options=["--enableEncryption", "--encryptionKeyCommand", "false"])
    done = subprocess.run(server.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 75


def test_a_key_command_that_does_not_end_is_ended(tmp_path):
    # It held the start up for as long as it ran.
    command = tmp_path / "fetch-key"
    command.write_text(f"#!/bin/sh\ncat {new_key(tmp_path)}\nexec >&- sleep 1000\n")
    command.chmod(0o700)
    server = Server(tmp_path, options=["--enableEncryption", "--encryptionKeyCommand", str(command)])
    assert "closed its output and did not end" in refusal(server)
    assert not list(server.data.iterdir())


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine not in CIPHERED])
def test_an_engine_that_cannot_encrypt_is_refused(tmp_path, engine):
    server = encrypted(tmp_path, engine)
    assert f"the storage engine {engine} cannot encrypt" in refusal(server)
    assert not list(server.data.iterdir())


def test_the_server_says_that_it_encrypts(tmp_path):
    with encrypted(tmp_path, CIPHERED[0]) as server:
        status = server.client().admin.command("serverStatus")["encryptionAtRest"]
        assert status == {"encryptionEnabled": True, "encryptionCipherMode": "AES256-GCM", "encryptionKeyId": "1"}
        log = server.log.read_text()
        assert "Encryption at rest is on" in log
        assert (tmp_path / "key").read_text().strip() not in log
        parsed = server.client().admin.command("getCmdLineOpts")["parsed"]["security"]
        assert parsed["enableEncryption"] is True and parsed["encryptionKeyFile"].endswith("/key")


def rotate(server, *options):
    command = [binary(), "--dbpath", str(server.data), *server.options, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("engine", CIPHERED)
def test_keys_are_rotated(tmp_path, engine):
    server = encrypted(tmp_path, engine)
    with server:
        server.client().db.c.insert_many(documents(0, 500))
        busy = rotate(server, "--encryptionRotateDataKey")
        assert busy.returncode == 1 and "already running" in busy.stderr
    done = rotate(server, "--encryptionRotateDataKey")
    assert done.returncode == 0 and "data key 2" in done.stdout, done
    old, new = list(server.options), new_key(tmp_path, "new")
    done = rotate(server, "--encryptionRotateMasterKey", "--encryptionNewKeyFile", str(new))
    assert done.returncode == 0, done
    assert "was made with the master key" in refusal(server)
    again = rotate(server, "--encryptionRotateMasterKey", "--encryptionNewKeyFile", str(new))
    assert again.returncode == 1 and "was made with the master key" in again.stderr
    server.options = [*old[:2], str(new)]
    with server:
        client = server.client()
        assert client.admin.command("serverStatus")["encryptionAtRest"]["encryptionKeyId"] == "2"
        assert client.db.c.count_documents({}) == 500
        client.db.c.insert_many(documents(500, 500))
        checkpoint(client)
    server.start()
    assert server.client().db.c.count_documents({}) == 1000
    server.kill()
    with server:
        assert sorted(server.client().db.c.find(), key=lambda each: each["_id"]) == documents(0, 1000)
    look_for_plain_text(server.data)


def test_a_rotation_that_is_killed_leaves_one_of_both_keys_in_force(tmp_path):
    server = encrypted(tmp_path, CIPHERED[0])
    with server:
        server.client().db.c.insert_one({"_id": 1})
    keys = [Path(server.options[2]), new_key(tmp_path, "new")]
    dice = random.Random(3)
    turned, longest = 0, 0.08
    for _ in range(15):
        old, new = keys
        options = ["--enableEncryption", "--encryptionKeyFile", str(old), "--encryptionRotateMasterKey", "--encryptionNewKeyFile", str(new)]
        killed = subprocess.Popen([binary(), "--dbpath", str(server.data), *options], stdout=subprocess.DEVNULL)
        try:
            killed.wait(dice.random() * longest)
        except subprocess.TimeoutExpired:
            killed.kill()
        killed.wait()
        # A run that changes nothing of the keys that are there, with either.
        fits = [tenon("log", server.data, "--encryptionKeyFile", key).returncode == 0 for key in keys]
        assert sorted(fits) == [False, True], fits
        if fits[1]:
            keys.reverse()
            turned += 1
        elif not turned:
            # On a machine with much to do it takes longer.
            longest *= 1.5
    assert turned
    server.options[2] = str(keys[0])
    with server:
        assert server.client().db.c.find_one() == {"_id": 1}


def tenon(*arguments):
    return subprocess.run([str(TENON), *map(str, arguments)], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("engine", CIPHERED)
def test_tools_read_it_with_the_key_and_find_what_was_changed(tmp_path, engine):
    server = encrypted(tmp_path, engine).start()
    client = server.client()
    client.db.c.insert_many(documents(0, 2000))
    checkpoint(client)
    durable(client.db.c).insert_one({"_id": "what the log shows"})
    server.kill()
    key = ["--encryptionKeyFile", server.options[2]]
    without = tenon("verify", server.data)
    assert without.returncode == 2 and "it is encrypted" in without.stderr
    assert "it is encrypted" in tenon("log", server.data).stderr
    whole = tenon("verify", server.data, *key)
    assert whole.returncode == 0 and "2002 documents of" in whole.stdout, whole
    shown = tenon("log", server.data, *key)
    assert shown.returncode == 0 and "what the log shows" in shown.stdout
    # The last quarter of the files may be room that was reserved.
    dice = random.Random(7)
    changed = 0
    files = [path for path in (server.data / engine).rglob("*") if path.is_file() and path.stat().st_size > 20_000]
    assert files
    for path in files:
        content = path.read_bytes()
        used = [at for at in range(0, len(content) - 512, 512) if content[at : at + 512].count(0) < 100]
        for at in dice.sample(used, min(3, len(used))):
            place = at + dice.randrange(512)
            path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
            found = tenon("verify", server.data, *key)
            changed += found.returncode == 1
            path.write_bytes(content)
    # What was freed is nobody's, and may change.
    assert changed >= len(files), changed


def test_damaged_files_are_repaired_and_stay_encrypted(tmp_path):
    server = encrypted(tmp_path, "btree").start()
    server.client().secret_db.secret_collection.insert_many(documents(0, 3000))
    checkpoint(server.client())
    assert server.stop() == 0
    main = server.data / "btree" / "main.blocks"
    key = ["--encryptionKeyFile", server.options[2]]
    content = main.read_bytes()
    # Whole sectors of noise, from the middle on, until something that is needed is hit.
    for at in range(len(content) // 2 // 512 * 512, len(content), 4096):
        main.write_bytes(content[:at] + random.Random(at).randbytes(512) + content[at + 512 :])
        if tenon("verify", server.data, *key).returncode == 1:
            break
    without = subprocess.run([binary(), "--dbpath", str(server.data), "--repair"], capture_output=True, text=True, timeout=60)
    assert without.returncode == 1 and "it is encrypted" in without.stderr
    done = rotate(server, "--repair")
    assert done.returncode == 0 and "are damaged" in done.stdout, done
    with server:
        found = list(server.client().secret_db.secret_collection.find())
        assert 2000 < len(found) <= 3000 and all(each == documents(each["_id"], 1)[0] for each in found)
    look_for_plain_text(server.data)


def test_a_backup_by_files_has_its_keys(tmp_path):
    server = encrypted(tmp_path, CIPHERED[0]).start()
    client = server.client()
    client.db.c.insert_many(documents(0, 100))
    cursor = client.admin.command("aggregate", 1, pipeline=[{"$backupCursor": {}}], cursor={})["cursor"]
    backup = tmp_path / "backup" / "data"
    for file in cursor["firstBatch"][1:]:
        source = Path(file["filename"])
        target = backup / source.relative_to(server.data)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes()[: file["fileSize"]])
    client.admin.command("killCursors", "$cmd.aggregate", cursors=[cursor["id"]])
    assert server.stop() == 0
    look_for_plain_text(backup)
    copy = Server(tmp_path / "backup", server.engine)
    assert "it is encrypted" in refusal(copy)
    copy.options = server.options
    with copy:
        assert sorted(copy.client().db.c.find(), key=lambda each: each["_id"]) == documents(0, 100)


def test_a_backup_is_restored_to_a_point_in_time(tmp_path):
    server = encrypted(tmp_path, CIPHERED[0])
    with server:
        server.client().db.c.insert_many(documents(0, 100))
    backup = tmp_path / "backup"
    shutil.copytree(server.data, backup)
    with server:
        durable(server.client().db.c).insert_one({"_id": "later"})
    out = tmp_path / "out" / "data"
    arguments = ["restore", "--backup", backup, "--log", server.data / "journal", "--out", out, "--to-end"]
    refused = tenon(*arguments)
    assert refused.returncode != 0 and "it is encrypted" in refused.stderr and not out.exists()
    done = tenon(*arguments, "--encryptionKeyFile", server.options[2])
    assert done.returncode == 0, done
    look_for_plain_text(out)
    restored = Server(tmp_path / "out", server.engine, server.options)
    with restored:
        assert restored.client().db.c.count_documents({}) == 101
        assert restored.client().db.c.find_one({"_id": "later"})


@pytest.mark.parametrize("engine", CIPHERED[:1])
def test_members_have_keys_of_their_own_and_copy_rows(tmp_path, engine):
    """An encrypted member joins a set that is not encrypted, and another one copies from an encrypted one."""
    rs = ReplicaSet(tmp_path, engines=[engine])
    with rs:
        rs.initiate()
        client = rs.client()
        client.secret_db.secret_collection.insert_many(documents(0, 500))
        for name, number in [("first", 1), ("second", 2)]:
            key = new_key(tmp_path, name)
            added = rs.add_server(engine, ["--enableEncryption", "--encryptionKeyFile", str(key)])
            added.start()
            rs.reconfig(lambda config, added=added, number=number: config["members"].append({"_id": number, "host": added.host}))
            rs.wait_healthy()
            rs.make_primary(added)
            method = added.log.read_text()
            assert '"method":"logical"' in method and "fileCopyBased" not in method
        rs.check_equal()
        for each in rs.members[1:]:
            assert each.direct.admin.command("serverStatus")["encryptionAtRest"]["encryptionEnabled"]
            each.direct.admin.command("fsync")
            look_for_plain_text(each.data)


def test_a_log_that_is_added_brings_the_key_that_it_needs(tmp_path):
    """The server got another data key since the backup was made: what it wrote then could be read by nobody."""
    server = encrypted(tmp_path / "live", CIPHERED[0], new_key(tmp_path), ["--replSet", "rs0", "--replSetInitiate"])
    key = ["--encryptionKeyFile", server.options[2]]
    backup, early = tmp_path / "backup", tmp_path / "early"
    with server:
        client = server.client(replicaSet="rs0")
        client.db.c.insert_many(documents(0, 100))
        assert tenon("backup", "--uri", server.uri(), "--out", backup).returncode == 0
        shutil.copytree(backup, early)
    assert rotate(server, "--encryptionRotateDataKey").returncode == 0
    with server:
        client = server.client(replicaSet="rs0", w="majority")
        client.db.c.insert_many(documents(100, 100))
        done = tenon("backup", "--uri", server.uri(), "--add-log", backup)
        assert done.returncode == 0 and "master key" in done.stderr, done
        assert not list(backup.rglob("*.unfinished"))
        again = tenon("backup", "--uri", server.uri(), "--add-log", backup)
        assert again.returncode == 0 and "master key" not in again.stderr, again
    for number, arguments in enumerate([[backup], [early, "--log", server.data / "journal"]]):
        copy = encrypted(tmp_path / f"copy{number}", server.engine, key[1])
        copy.data.rmdir()
        done = tenon("restore", "--backup", *arguments, "--to-end", "--out", copy.data, *key)
        assert done.returncode == 0, done
        with copy:
            assert sorted(copy.client().db.c.find(), key=lambda each: each["_id"]) == documents(0, 200)
