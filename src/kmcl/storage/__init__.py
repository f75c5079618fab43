"""Files that survive interruptions and are shared by processes: atomic writes, locks, chunk files.

    atomic      a file is replaced as a whole or not at all
    locks       one process at a time; released when the process ends, however it ends
    chunk_file  a large array, computed in chunks with checksums, resumed after an interruption
    chunk_parts the same, computed by several processes together
    file_rows   rows of such an array, read when they are wanted
    archives    what reading a damaged archive raises

It imports nothing else of kmcl and runs on Linux, macOS and Windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names
from kmcl.storage.atomic import WriteError, replacing, write_bytes, write_json, write_text, write_with
from kmcl.storage.locks import file_lock, is_locked, locked, try_lock

if TYPE_CHECKING:
    from kmcl.storage.chunk_file import Chunk, ChunkFile
    from kmcl.storage.file_rows import FileRows

__all__ = [
    "Chunk",
    "ChunkFile",
    "FileRows",
    "WriteError",
    "file_lock",
    "is_locked",
    "locked",
    "replacing",
    "try_lock",
    "write_bytes",
    "write_json",
    "write_text",
    "write_with",
]

# The program knows WriteError from its start, and lists its commands without NumPy, which these load.
__getattr__ = lazy_names(
    __name__,
    {
        "Chunk": "kmcl.storage.chunk_file",
        "ChunkFile": "kmcl.storage.chunk_file",
        "FileRows": "kmcl.storage.file_rows",
    },
)
