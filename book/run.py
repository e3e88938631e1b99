"""Chapter 10 of MongoDB in Action, for every engine in the build: start-up, insert, shut-down, disk use, cold and warm reads.

The btree engine runs with the book's own configuration files for wiredTiger.
Prints tables 10.3 (a fresh directory), 10.4 (an existing one) and 10.5 (each of the read loops).

    make book                       the book's size: 16 loops of 10,000 documents through mongosh
    make book BOOK="--loops 2 --documents 1000"
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from server import ENGINES, Server  # noqa: E402

CONFIGURATIONS = {
    "btree none": ("btree", ["--config", str(HERE / "configs" / "wiredtiger-uncompressed.conf")]),
    "btree snappy": ("btree", ["--config", str(HERE / "configs" / "wiredtiger-snappy.conf")]),
    "btree zlib": ("btree", ["--config", str(HERE / "configs" / "wiredtiger-zlib.conf")]),
    "betree": ("betree", []),
    "inMemory": ("inMemory", []),
    "mmapv1": ("mmapv1", []),
    "rocksdb none": ("rocksdb", ["--rocksdbCompression", "none"]),
    "rocksdb snappy": ("rocksdb", ["--rocksdbCompression", "snappy"]),
    "rocksdb zlib": ("rocksdb", ["--rocksdbCompression", "zlib"]),
}


def mongosh():
    clients = os.environ.get("TENON_CLIENTS", os.path.expanduser("~/.cache/tenon/clients"))
    return str(Path(clients) / "node" / "node_modules" / ".bin" / "mongosh")


def timed(action):
    start = time.monotonic()
    action()
    return time.monotonic() - start


def shell(server, script, documents):
    command = [mongosh(), "--quiet", "--norc", f"mongodb://127.0.0.1:{server.port}/benchmark", str(HERE / script)]
    done = subprocess.run(command, env={**os.environ, "DOCUMENTS": str(documents)}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{script} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def megabytes(directory):
    return sum(path.stat().st_blocks * 512 for path in Path(directory).rglob("*") if path.is_file()) / (1 << 20)


def drop_caches():
    """True when the page cache could be emptied, so that the first read is a cold one."""
    subprocess.run(["sync"], check=True)
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
        return True
    except OSError:
        return False


def table(title, columns, rows):
    widths = [max(len(str(row[i])) for row in [["", *columns], *rows]) for i in range(len(columns) + 1)]
    print(f"\n{title}\n")
    for row in [["", *columns], *rows]:
        print("  ".join(str(cell).ljust(width) if i == 0 else str(cell).rjust(width) for i, (cell, width) in enumerate(zip(row, widths))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--loops", type=int, default=16)
    parser.add_argument("--documents", type=int, default=10_000, help="documents of one insert loop")
    arguments = parser.parse_args()
    chosen = {name: c for name, c in CONFIGURATIONS.items() if c[0] in ENGINES}
    fresh, again, reads, cold = {}, {}, {}, True
    with tempfile.TemporaryDirectory() as directory:
        for name, (engine, options) in chosen.items():
            server = Server(Path(directory) / name.replace(" ", "-"), engine, options)
            print(f"==== RUNNING {name} ====", flush=True)
            start = timed(server.start)
            insert = timed(lambda: [shell(server, "insert.js", arguments.documents) for _ in range(arguments.loops)])
            count = int(server.client().benchmark.benchmark.estimated_document_count())
            if count != arguments.loops * arguments.documents:
                raise SystemExit(f"{count} documents instead of {arguments.loops * arguments.documents}")
            stop = timed(server.stop)
            fresh[name] = (start, insert, stop, megabytes(server.data))
            cold = drop_caches() and cold
            start = timed(server.start)
            reads[name] = []
            for _ in range(arguments.loops):
                reads[name].append(timed(lambda: shell(server, "read.js", arguments.documents)))
            again[name] = (start, sum(reads[name]), timed(server.stop))
    columns = list(chosen)
    documents = arguments.loops * arguments.documents
    table(
        f"Table 10.3: {documents} documents into a fresh directory",
        columns,
        [
            [label, *(f"{fresh[name][i]:.2f} {unit}" for name in columns)]
            for i, (label, unit) in enumerate([("Starting up", "sec"), ("Insert job", "sec"), ("Shut down", "sec"), ("Disk use", "MB")])
        ],
    )
    table(
        "Table 10.4: the same directory again",
        columns,
        [[label, *(f"{again[name][i]:.2f} sec" for name in columns)] for i, label in enumerate(["Starting up", "Read job", "Shut down"])],
    )
    table(
        f"Table 10.5: each read of all documents, in seconds ({'the first one cold' if cold else 'page cache not dropped: needs root'})",
        columns,
        [[i + 1, *(f"{reads[name][i]:.2f}" for name in columns)] for i in range(arguments.loops)],
    )


if __name__ == "__main__":
    main()
