"""What is installed, and the packages that carry the server, made of the built programs and used from there."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pymongo import MongoClient
from server import binary

ROOT = Path(__file__).parents[2]
CLIENTS = Path(os.environ.get("TENON_CLIENTS", os.path.expanduser("~/.cache/tenon/clients")))
PROGRAMS = Path(binary()).parent


def run(*line, **options):
    options = {"env": {**os.environ, **options.pop("env", {})}, **options}
    done = subprocess.run([str(part) for part in line], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


def mode(path):
    return path.stat().st_mode & 0o7777


def ends(pid):
    """Waits until there is no such process."""
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        # It may be nobody's child any more, which nothing tells of.
        time.sleep(0.05)
    return False


def check_installed(root, prefix):
    """What is there works: the unit starts this program with that configuration."""
    tenond = root / prefix / "bin" / "tenond"
    assert mode(tenond) == 0o755 and mode(root / prefix / "bin" / "tenon") == 0o755
    assert run(tenond, "--version").startswith("tenond version")
    unit = (root / prefix / "lib/systemd/system/tenond.service").read_text()
    assert f"ExecStart=/{prefix}/bin/tenond --config /etc/tenond.conf\n" in unit and "@" not in unit.replace("@system-service", "")
    if shutil.which("man"):
        page = run("man", "-l", root / prefix / "share/man/man8/tenond.8.gz", env={"MANWIDTH": "200", "PAGER": "cat"})
        assert "--dbpath" in page and "[storage.dbPath]" in page
        assert "SIGUSR1" in page and "a listening socket could not be set up" in page and "/etc/tenond.conf" in page
    pages = {path.name for path in (root / prefix / "share/man/man1").iterdir()}
    assert {"tenon.1.gz", "tenon-dump.1.gz", "tenon-restore.1.gz", "tenon-bench.1.gz"} <= pages, pages
    manual = root / prefix / "share/doc/tenon"
    linked = set(re.findall(r"\]\((docs/[^)#]+)", (manual / "README.md").read_text()))
    assert linked and not [page for page in linked if not (manual / page).exists()], linked
    assert mode(manual / "docs/configuration.md") == 0o644
    configuration = (root / "etc/tenond.conf").read_text()
    assert mode(root / "etc/tenond.conf") == 0o644 and mode(root / "etc/logrotate.d/tenond") == 0o644
    # The same configuration, with folders of the test's.
    for place in ("var/lib/tenond", "var/log/tenond", "run/tenond"):
        (root / place).mkdir(parents=True, exist_ok=True)
        configuration = configuration.replace(f"/{place}", str(root / place))
    config = root / "test.conf"
    config.write_text(configuration.replace("27017", "0"))
    process = subprocess.Popen([tenond, "--config", config, "--portFile", "/dev/stdout"], stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline())
    assert MongoClient("127.0.0.1", port).admin.command("ping")["ok"] == 1
    # As logrotate does it: rename, then tell.
    log = root / "var/log/tenond/tenond.log"
    log.rename(log.with_suffix(".1"))
    process.send_signal(signal.SIGUSR1)
    while not log.exists():
        time.sleep(0.02)
    process.terminate()
    assert process.wait(60) == 0 and process.stdout.close() is None
    assert "Shutting down" in log.read_text()


def test_install(tmp_path):
    run(ROOT / "scripts/install.sh", PROGRAMS, env={"DESTDIR": str(tmp_path), "PREFIX": "/usr/local"})
    (tmp_path / "etc/tenond.conf").write_text("# mine\n")
    run(ROOT / "scripts/install.sh", PROGRAMS, env={"DESTDIR": str(tmp_path), "PREFIX": "/usr/local"})
    assert (tmp_path / "etc/tenond.conf").read_text() == "# mine\n", "a configuration that is there stays"
    shutil.copy(ROOT / "packaging/tenond.conf", tmp_path / "etc/tenond.conf")
    check_installed(tmp_path, "usr/local")


def make(*arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in ("TENON_CACHE", "XDG_CACHE_HOME", "CARGO_TARGET_DIR", "SUDO_USER")}
    line = ["make", "--no-print-directory", "-C", str(ROOT), *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, env={**clean, **environment})
    return done.returncode, done.stdout + done.stderr


def test_make_install(tmp_path):
    """By sudo, HOME is root's, whose cache has no programs: they were built anew, as root."""
    code, said = make("install", f"PROGRAMS={PROGRAMS}", f"DESTDIR={tmp_path}/a b")
    assert code == 0 and (tmp_path / "a b/usr/local/bin/tenond").exists(), said
    code, said = make("install", f"DESTDIR={tmp_path}/none", HOME=str(tmp_path))
    assert code != 0 and "make programs && sudo make install" in said and "cargo" not in said, said
    home = Path("~nobody").expanduser()
    code, said = make("-n", "install", HOME=str(tmp_path), SUDO_USER="nobody")
    assert f'scripts/install.sh "{home}/.cache/tenon/target/release"' in said, said
    # A root shell of sudo keeps SUDO_USER: what was built there is meant.
    own = tmp_path / ".cache/tenon/target/release"
    own.mkdir(parents=True)
    shutil.copy(shutil.which("true"), own / "tenond")
    code, said = make("-n", "install", HOME=str(tmp_path), SUDO_USER="nobody")
    assert f'scripts/install.sh "{own}"' in said, said


def test_a_cache_with_a_blank_in_its_name_is_cleaned(tmp_path):
    """What was called like the first word was removed instead."""
    other, cache = tmp_path / "a", tmp_path / "a b"
    for folder in (other, cache):
        (folder / "target").mkdir(parents=True)
    code, said = make("clean-cache", f"CACHE={cache}")
    assert code == 0 and other.exists() and not cache.exists(), said
    assert make("clean-cache", "CACHE=")[0] != 0


@pytest.mark.parametrize("runs", [True, False])
def test_rotation_tells_a_server_that_runs(tmp_path, runs):
    """As logrotate runs it. The server alone is told, and not the program that fetches its key."""
    text = (ROOT / "packaging/tenond.logrotate").read_text()
    script = text.split("postrotate\n")[1].split("endscript")[0]
    server = subprocess.Popen(["sleep", "600"])
    try:
        (tmp_path / "systemctl").write_text(
            '#!/bin/sh\n[ "$*" = "show -p MainPID --value tenond.service" ] || exit 1\n' f"echo {server.pid if runs else 0}\n"
        )
        (tmp_path / "systemctl").chmod(0o755)
        run("sh", "-ec", script, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
        if runs:
            assert server.wait(60) == -signal.SIGUSR1
        else:
            assert server.poll() is None
    finally:
        server.kill()
        server.wait()


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no Debian")
def test_debian_package(tmp_path):
    package = run(ROOT / "scripts/deb.sh", PROGRAMS, tmp_path / "build").strip()
    fields = run("dpkg-deb", "--field", package)
    assert "Package: tenon\n" in fields and "Depends: libc6 (>= 2." in fields
    listed = [line.split(None, 5) for line in run("dpkg-deb", "--contents", package).splitlines()]
    assert {line[1] for line in listed} == {"root/root"}
    modes = {line[5]: line[0] for line in listed}
    assert modes["./usr/bin/tenond"] == "-rwxr-xr-x" and modes["./etc/tenond.conf"] == "-rw-r--r--"
    assert not [path for path, mode in modes.items() if mode[5] == "w" or mode[8] == "w"]
    run("dpkg-deb", "--raw-extract", package, tmp_path / "root")
    control = tmp_path / "root/DEBIAN"
    assert (control / "conffiles").read_text().split() == ["/etc/tenond.conf", "/etc/logrotate.d/tenond"]
    run("md5sum", "--check", "--quiet", control / "md5sums", cwd=tmp_path / "root")
    shutil.move(control, tmp_path / "DEBIAN")
    check_installed(tmp_path / "root", "usr")


@pytest.mark.skipif(shutil.which("dpkg") is None or os.geteuid() != 0, reason="needs Debian and root")
def test_debian_package_comes_and_goes(tmp_path):
    """By dpkg, with its scripts, in a root of the test's: what a script calls is noted, not done."""
    package = run(ROOT / "scripts/deb.sh", PROGRAMS, tmp_path / "build").strip()
    root, stubs, calls = tmp_path / "root", tmp_path / "stubs", tmp_path / "calls"
    for folder in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "var/lib/dpkg/triggers"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text("")
    stubs.mkdir()
    for name, body in {
        "adduser": 'echo "adduser $*" >> "$CALLS"',
        "systemctl": 'echo "systemctl $*" >> "$CALLS"',
        "getent": "exit 2",
        "install": 'echo "install $*" >> "$CALLS"',
        # dpkg itself calls it too, below its root.
        "rm": f'case "$*" in *"$DPKG_ROOT"*) exec {shutil.which("rm")} "$@";; esac; echo "rm $*" >> "$CALLS"',
        "rmdir": 'echo "rmdir $*" >> "$CALLS"',
    }.items():
        (stubs / name).write_text(f"#!/bin/sh\n{body}\n")
        (stubs / name).chmod(0o755)
    calls.write_text("")
    # The scripts see the machine's own /run/systemd and /var: what they would do there is noted.
    dpkg = ["dpkg", f"--root={root}", "--force-script-chrootless", "--force-depends", "--force-not-root", "--log=/dev/null"]
    environment = {"PATH": f"{stubs}:{os.environ['PATH']}", "CALLS": str(calls), "DPKG_ROOT": str(root)}
    run(*dpkg, "--install", package, env=environment)
    assert "adduser --quiet --system --group" in calls.read_text()
    assert (root / "usr/bin/tenond").exists()
    (root / "etc/tenond.conf").write_text("# mine\n")
    # The same version again is an upgrade to dpkg.
    run(*dpkg, "--force-confdef", "--force-confold", "--install", package, env=environment)
    assert (root / "etc/tenond.conf").read_text() == "# mine\n"
    run(*dpkg, "--remove", "tenon", env=environment)
    assert not (root / "usr/bin/tenond").exists() and (root / "etc/tenond.conf").exists()
    assert "rm -rf" not in calls.read_text()
    run(*dpkg, "--purge", "tenon", env=environment)
    assert not (root / "etc/tenond.conf").exists()
    assert "rm -rf /var/log/tenond\n" in calls.read_text() and "rm -rf /var/lib" not in calls.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_the_unit_is_one(tmp_path):
    unit = tmp_path / "tenond.service"
    unit.write_text((ROOT / "packaging/tenond.service").read_text().replace("@BINDIR@", str(PROGRAMS)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert done.returncode == 0 and "Unknown" not in done.stderr, done.stderr


def test_tarball(tmp_path):
    first = Path(run(ROOT / "scripts/tarball.sh", PROGRAMS, tmp_path / "a").strip())
    run("sha256sum", "--check", f"{first.name}.sha256", cwd=first.parent)
    second = Path(run(ROOT / "scripts/tarball.sh", PROGRAMS, tmp_path / "b").strip())
    assert first.with_suffix(".gz.sha256").read_text() == second.with_suffix(".gz.sha256").read_text(), "the same programs, the same file"
    run("tar", "-xzf", first, "-C", tmp_path)
    [folder] = [path for path in tmp_path.iterdir() if path.name.startswith("tenon-")]
    assert run(folder / "bin/tenond", "--version").startswith("tenond version")
    assert (folder / "share/man/tenond.8").exists() and (folder / "docs/quick-start.md").exists()
    assert "ExecStart=/usr/local/bin/tenond " in (folder / "packaging/tenond.service").read_text()


# What ends in the middle of writing each package, under the name of the program that writes it.
CUT_SHORT = {
    "scripts/tarball.sh": {"gzip": "head -c 1000; exit 1"},
    "scripts/deb.sh": {"dpkg-deb": 'for file; do :; done; head -c 1000 /dev/zero >"$file"; exit 1'},
    "scripts/npm.sh": {"npm": 'for folder; do :; done; head -c 1000 /dev/zero >"$folder/tenon-server-1.tgz"; exit 1', "node": "echo x64"},
}


@pytest.mark.parametrize("script", CUT_SHORT)
def test_a_package_that_is_cut_short_has_no_name(tmp_path, script):
    """What was there of it had the final name; of a tarball, beside the sum of an older one."""
    stubs, programs = tmp_path / "stubs", tmp_path / "programs"
    stubs.mkdir()
    for name, does in CUT_SHORT[script].items():
        (stubs / name).write_text(f"#!/bin/sh\n{does}\n")
        (stubs / name).chmod(0o755)
    programs.mkdir()
    for name in ["tenond", "tenon"]:
        shutil.copy("/bin/true", programs / name)
    path = f"{stubs}:{os.environ['PATH']}"
    done = subprocess.run([ROOT / script, programs, tmp_path / "out"], env={**os.environ, "PATH": path}, capture_output=True)
    assert done.returncode != 0 and list((tmp_path / "out").iterdir()) == [], done.stderr


def test_a_wheel_that_is_cut_short_has_no_name(tmp_path, monkeypatch):
    specification = importlib.util.spec_from_file_location("build", ROOT / "packages/python/build.py")
    build = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(build)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(build.zipfile.ZipFile, "writestr", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build.main("/bin/true", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_what_builds_without_a_profile_refuses_one():
    """PGO=yes was passed over without a word."""
    # Nothing of the make that runs the tests.
    clean = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "PGO")}
    plan = lambda goal: subprocess.run(["make", "-n", goal, "PGO=yes"], cwd=ROOT, env=clean, capture_output=True, text=True)
    for goal in ["test", "test-all", "engine-bench", "soak-engine"]:
        refused = plan(goal)
        assert refused.returncode != 0 and f"make {goal}" in refused.stderr and refused.stdout == "", refused
    soak = plan("soak")
    assert soak.returncode == 0 and "scripts/pgo.sh" in soak.stdout and "/pgo/release/tenond" in soak.stdout, soak


@pytest.fixture(scope="module")
def wheel(new_folder):
    """A folder with the wheel's module, installed by pip without an index."""
    folder = new_folder("wheel")
    made = run(sys.executable, ROOT / "packages/python/build.py", PROGRAMS / "tenond", folder / "build").strip()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    run(*pip, "--target", folder / "site", made)
    return folder / "site"


def python(wheel, text, **environment):
    variables = {"PYTHONPATH": str(wheel), **environment}
    clean = {name: value for name, value in os.environ.items() if name != "TENOND"}
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env={**clean, **variables})


PYTHON = """
import json, os, tenon
from pymongo import MongoClient
with tenon.Server() as one, tenon.server(replica_set="rs0") as uri, tenon.server(engine="btree", options=["--quiet"]) as third:
    client = MongoClient(uri)
    with client.start_session() as session, session.start_transaction():
        client.t.c.insert_one({"_id": 1}, session=session)
    MongoClient(one.uri).t.c.insert_one({"_id": 1})
    engine = MongoClient(third).admin.command("serverStatus")["storageEngine"]["name"]
    counts = [MongoClient(each).t.c.count_documents({}) for each in (one.uri, uri, third)]
    print(json.dumps({"counts": counts, "engine": engine, "folder": one.directory, "pid": one._process.pid, "program": tenon.program()}))
    assert os.path.isdir(one.directory)
assert not os.path.exists(one.directory)
try:
    tenon.Server(options=["--nonesuch"])
except tenon.ServerError as error:
    assert "nonesuch" in str(error)
else:
    raise AssertionError("it started")
left = tenon.Server()
print(json.dumps({"folder": left.directory, "pid": left._process.pid}), flush=True)
"""


def test_python(wheel, tmp_path):
    process = python(wheel, PYTHON, TMPDIR=str(tmp_path))
    first, last = (json.loads(line) for line in process.communicate(timeout=120)[0].splitlines())
    assert process.returncode == 0
    assert first["counts"] == [1, 1, 0] and first["engine"] == "btree" and first["program"].startswith(str(wheel))
    assert ends(first["pid"]) and ends(last["pid"])
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_python_that_is_killed_takes_its_server_along(wheel, tmp_path):
    text = "import tenon, time\nrunning = tenon.Server()\nprint(running._process.pid, flush=True)\ntime.sleep(600)"
    process = python(wheel, text, TMPDIR=str(tmp_path))
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    assert ends(pid)


FORKED = """
import os, sys, tenon
from pymongo import MongoClient
kept = tenon.Server(engine="btree")
with tenon.Server() as one:
    child = os.fork()
    if child == 0:
        kept.stop()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for server in (one, kept):
        client = MongoClient(server.uri)
        client.t.c.insert_one({})
        client.admin.command("fsync")
        assert os.path.isdir(server.directory)
"""


def test_a_forked_process_leaves_the_servers_alone(wheel, tmp_path):
    process = python(wheel, FORKED, TMPDIR=str(tmp_path))
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == [], "nothing is left"


NODE = """
const { server, program } = require("tenon-server");
const { MongoClient } = require("mongodb");
const fs = require("node:fs");
(async () => {
    const one = await server();
    const set = await server({ replicaSet: "rs0" });
    const counts = [];
    for (const running of [one, set]) {
        const client = await MongoClient.connect(running.uri);
        await client.db("t").collection("c").insertOne({ _id: 1 });
        counts.push(await client.db("t").collection("c").countDocuments());
        await client.close();
    }
    await one.stop();
    const gone = !fs.existsSync(one.directory);
    const refused = await server({ options: ["--nonesuch"] }).then(() => "", (error) => error.message);
    console.log(JSON.stringify({ counts, gone, refused, program: program(), left: set.directory }));
})();
"""


@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm")
def test_node(tmp_path):
    package = run(ROOT / "scripts/npm.sh", PROGRAMS, tmp_path / "build").strip()
    folder = tmp_path / "application"
    folder.mkdir()
    (folder / "package.json").write_text("{}")
    run("npm", "install", "--offline", "--no-audit", "--no-fund", package, cwd=folder)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    (folder / "test.cjs").write_text(NODE)
    clean = {name: value for name, value in os.environ.items() if name != "TENOND"}
    environment = {**clean, "NODE_PATH": str(CLIENTS / "node/node_modules"), "TMPDIR": str(temporary)}
    done = subprocess.run(["node", "test.cjs"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["counts"] == [1, 1] and said["gone"] and "nonesuch" in said["refused"]
    assert said["program"].startswith(str(folder))
    assert list(temporary.iterdir()) == [], "the server that was not stopped ended with the program"
