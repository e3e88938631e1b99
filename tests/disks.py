"""Small file systems, where this user may mount one."""

import subprocess
from contextlib import contextmanager

import pytest
from server import IS_WHOLE


@contextmanager
def file_system_of(folder, size):
    """A file system of this size in a new folder. Where none can be mounted the test is skipped, and before a release it fails."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, text=True)
    if mounted.returncode != 0:
        cannot = pytest.fail if IS_WHOLE else pytest.skip
        cannot(f"no file system can be mounted here, which takes root: {mounted.stderr}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
