"""The experiments of MongoDB in Action, chapter 10, at a small size: they run and print the book's tables."""

import os
import subprocess
import sys
from pathlib import Path

from server import ENGINES, binary, of_extent


def test_the_tables_are_printed():
    engines = of_extent(["btree"], ENGINES)
    run = Path(__file__).parents[2] / "book" / "run.py"
    done = subprocess.run(
        [sys.executable, str(run), "--loops", "2", "--documents", "50"],
        env={**os.environ, "TENOND": binary(), "TENON_ENGINES": ",".join(engines)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for table in ["Table 10.3", "Table 10.4", "Table 10.5", "Disk use", "btree none", "btree snappy", "btree zlib", *engines]:
        assert table in done.stdout, done.stdout
