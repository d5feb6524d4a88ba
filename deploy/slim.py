"""Remove from an installed tree what a running node never reads: tests, stubs, headers, sources.

``slim.py ROOT`` runs once, while the image is built, and prints the ten largest packages that stay.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

UNREAD_FOLDERS: Final = frozenset({"tests", "testing_data", "include", "_pyinstaller", "f2py"})
UNREAD_SUFFIXES: Final = frozenset({".pyi", ".pyx", ".pxd", ".c", ".h", ".hpp", ".a", ".md"})
UNREAD_FILES: Final = ("zstandard/_cffi.*.so",)
"""zstandard has two backends; CPython takes the other."""
KEPT_PACKAGES: Final = frozenset({"tidelog"})
"""Nothing of ours is dropped: what is not needed is not in the wheel."""


def unread(site: Path) -> Iterator[Path]:
    """Folders and files below ``site`` that only people, compilers and test runs read."""
    for pattern in UNREAD_FILES:
        yield from sorted(site.glob(pattern))
    for package in sorted(site.iterdir()):
        if not package.is_dir() or package.name in KEPT_PACKAGES:
            continue
        if package.name.endswith(".dist-info"):  # licences
            continue
        for path in sorted(package.rglob("*")):
            unread_by = UNREAD_FOLDERS if path.is_dir() else UNREAD_SUFFIXES
            if (path.name if path.is_dir() else path.suffix) in unread_by:
                yield path


def size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else iter([path])
    return sum(file.lstat().st_size for file in files if file.is_file())


def main(root: Path) -> None:
    [site] = root.glob("lib/python3*/site-packages")
    for path in list(unread(site)):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # gone with its folder
    sizes = sorted(((size(path), path.name) for path in site.iterdir()), reverse=True)
    print(f"{sum(number for number, _ in sizes) / 1e6:7.1f} MB of packages, the largest:")
    for number, name in sizes[:10]:
        print(f"{number / 1e6:7.1f} MB  {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
