"""Strip the compiled modules in a folder of wheels; some projects publish theirs unstripped.

``strip_wheels.py WHEELHOUSE``: without ``strip`` (binutils) on this machine the wheels stay as they
are and the image is some 40 MB larger. Libraries in ``*.libs`` are left alone: the tool that put
them there moved their headers, and stripping such files is known to break them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def is_strippable(name: str) -> bool:
    return name.endswith(".so") and ".libs/" not in name


def strip_one(command: str, content: bytes) -> bytes:
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(content)
        file.flush()
        subprocess.run([command, "--strip-unneeded", file.name], check=True)
        return Path(file.name).read_bytes()


def strip_wheel(command: str, wheel: Path) -> int:
    """How many bytes were saved; the wheel is written anew only if any were."""
    saved = 0
    smaller = wheel.with_suffix(".stripped")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            content = old.read(entry)
            if is_strippable(entry.filename):
                stripped = strip_one(command, content)
                saved += len(content) - len(stripped)
                content = stripped
            new.writestr(entry, content)
    if saved:
        smaller.replace(wheel)
    else:
        smaller.unlink()
    return saved


def main(wheelhouse: Path) -> None:
    command = shutil.which("strip")
    if command is None:
        print("strip is not installed (Debian: binutils): the image will be larger")
        return
    for wheel in sorted(wheelhouse.glob("*.whl")):
        with zipfile.ZipFile(wheel) as file:
            has_modules = any(is_strippable(name) for name in file.namelist())
        saved = strip_wheel(command, wheel) if has_modules else 0
        if saved > 100_000:
            print(f"{wheel.name.partition('-')[0]}: {saved / 1e6:.1f} MB stripped")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
