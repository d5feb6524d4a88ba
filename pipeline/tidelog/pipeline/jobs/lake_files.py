"""Files of a lake, wherever Spark can write: through the file systems that Spark itself uses.

Paths are relative to the lake. The one thing that must be atomic is making a file that was not
there: of two that try, one learns that it was late.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidelog.pipeline.jobs.failures import LakeDamaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LakeFiles:
    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._hadoop = self._jvm.org.apache.hadoop.fs
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        given = self._hadoop.Path(root)
        self._fs: Any = given.getFileSystem(conf)
        self._conf = conf
        self.root: str = self._fs.makeQualified(given).toString()

    def uri(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(self.uri(path))

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._path(path)))

    def read_text(self, path: str) -> str:
        stream = self._fs.open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def create_text(self, path: str, text: str) -> bool:
        """Whole or not at all. False: there is such a file already."""
        temporary = f"{path}.{uuid4().hex}.tmp"
        stream = self._fs.create(self._path(temporary), False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        try:
            return self._move_if_absent(temporary, path)
        finally:
            self.delete(temporary)

    def _move_if_absent(self, source: str, target: str) -> bool:
        if self._fs.getScheme() == "file":
            # A rename would replace what is there.
            try:
                os.link(self._local(source), self._local(target))
            except FileExistsError:
                return False
            return True
        from py4j.protocol import Py4JJavaError

        context = self._hadoop.FileContext.getFileContext(self._fs.getUri(), self._conf)
        none = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 0
        )
        try:
            context.rename(self._path(source), self._path(target), none)
        except Py4JJavaError as error:
            if "FileAlreadyExists" in str(error.java_exception.getClass().getName()):
                return False
            raise
        return True

    def _local(self, path: str) -> str:
        return str(self._path(path).toUri().getPath())

    def names(self, path: str) -> list[str]:
        """What lies directly below; nothing if there is no such folder."""
        if not self.exists(path):
            return []
        return sorted(str(one.getPath().getName()) for one in self._fs.listStatus(self._path(path)))

    def age_s(self, path: str, now_ms: int) -> float:
        changed: int = self._fs.getFileStatus(self._path(path)).getModificationTime()
        return (now_ms - changed) / 1000

    def sizes_below(self, path: str, suffix: str) -> dict[str, int]:
        """Files at any depth whose name ends so; relative to ``path``."""
        if not self.exists(path):
            return {}
        base = len(self._fs.makeQualified(self._path(path)).toString()) + 1
        found = {}
        walk = self._fs.listFiles(self._path(path), True)
        while walk.hasNext():
            one = walk.next()
            name = str(one.getPath().toString())
            if name.endswith(suffix):
                found[name[base:]] = int(one.getLen())
        return dict(sorted(found.items()))

    def move(self, source: str, target: str) -> None:
        """Done already counts as done."""
        if self.exists(target):
            return
        if not self.exists(source):
            raise LakeDamaged(f"{self.uri(target)} is not there any more")
        place = self._path(target)
        self._fs.mkdirs(place.getParent())
        if not self._fs.rename(self._path(source), place) and not self.exists(target):
            raise LakeDamaged(f"{self.uri(source)} cannot be moved to {self.uri(target)}")

    def delete(self, path: str) -> None:
        self._fs.delete(self._path(path), True)
