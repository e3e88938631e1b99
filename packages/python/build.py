#!/usr/bin/env python3
"""Makes the wheel: build.py TENOND DIRECTORY. A wheel is an archive with a list of its files (PEP 427); the standard library will do."""

import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def version():
    section = re.search(r"^\[workspace\.package\]$(.*?)^\[", (ROOT / "Cargo.toml").read_text(), re.MULTILINE | re.DOTALL)
    return re.search(r'^version = "(.*)"$', section.group(1), re.MULTILINE).group(1)


def platform(program):
    """The oldest C library that the program runs with."""
    symbols = subprocess.run(["objdump", "-T", program], capture_output=True, text=True, check=True).stdout
    needed = max(tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d+\.\d+)", symbols))
    return f"manylinux_{needed[0]}_{needed[1]}_{os.uname().machine}"


def stripped(program):
    with tempfile.NamedTemporaryFile() as to:
        subprocess.run(["strip", "--strip-debug", "-o", to.name, program], check=True)
        return Path(to.name).read_bytes()


def main(program, directory):
    tag = f"py3-none-{platform(program)}"
    name = f"tenon-{version()}"
    information = f"{name}.dist-info"
    description = (ROOT / "docs" / "test-servers.md").read_text()
    files = [
        ("tenon/__init__.py", (HERE / "tenon" / "__init__.py").read_bytes(), 0o644),
        ("tenon/bin/tenond", stripped(program), 0o755),
        (f"{information}/LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
        (
            f"{information}/METADATA",
            f"Metadata-Version: 2.1\nName: tenon\nVersion: {version()}\nSummary: Throw-away document database servers for tests\n"
            f"License: Apache-2.0\nRequires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n{description}".encode(),
            0o644,
        ),
        (f"{information}/WHEEL", f"Wheel-Version: 1.0\nGenerator: tenon\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644),
    ]
    record = []
    for path, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}\n")
    record.append(f"{information}/RECORD,,\n")
    files.append((f"{information}/RECORD", "".join(record).encode(), 0o644))
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"{name}-{tag}.whl"
    # One that is cut short must not have the final name.
    with tempfile.TemporaryDirectory(prefix=f".{wheel.name}.", dir=directory) as partial:
        made = Path(partial) / wheel.name
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content, mode in files:
                entry = zipfile.ZipInfo(path)
                entry.external_attr = (0o100000 | mode) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        made.replace(wheel)
    print(wheel)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
