"""A chunk file that several processes compute together, a part each.

Part 2 of 4 has every fourth chunk from the second on, a lock and a journal of its own,
`NAME.part-1-of-4.lock` and `.chunks`. All parts write into the one `NAME.SUFFIX.partial`, each at the
places of its chunks. A process computes its own part, then goes through the others: it waits for those at
work and computes what a process that was killed has left. Whoever is first then gives the file its name,
after the check of every checksum that the next reader would make too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kmcl.storage.chunk_file import ChunkFile, Compute, _Record
from kmcl.storage.locks import file_lock, locked, try_lock

if TYPE_CHECKING:
    from filelock import BaseFileLock


class PartedChunkFile(ChunkFile):
    """A chunk file of which `complete_together` may be called by several processes at once."""

    def complete_together(
        self, compute: Compute, part: int, num_parts: int, *, on_wait: Callable[[], None] | None = None
    ) -> dict[int, str]:
        """Compute what is missing or damaged of a part, see to the other parts, and complete the file.

        part: from 0 on, another one in each process
        """
        if num_parts > 1:
            for number in range(num_parts):
                self._complete_part((part + number) % num_parts, num_parts, compute, on_wait)
        return self.complete(compute, on_wait=on_wait)

    def _complete_part(
        self, part: int, num_parts: int, compute: Compute, on_wait: Callable[[], None] | None
    ) -> None:
        journal = self.path.with_suffix(f".part-{part}-of-{num_parts}.chunks")
        wanted = self.starts[part::num_parts]
        with ExitStack() as stack:
            lock, records = self._begin_part(journal.with_suffix(".lock"), on_wait)
            stack.callback(lock.release)
            own = {start: record for start, record in records.items() if start in wanted}
            if len(own) < len(wanted):
                self._write(own, compute, wanted, journal)

    def _begin_part(
        self, path: Path, on_wait: Callable[[], None] | None
    ) -> tuple[BaseFileLock, dict[int, _Record]]:
        """Acquire the lock of a part; returns it and the usable chunks of the whole file.

        Locks of parts are acquired under the file's own, so that no part begins while the file is completed.
        """
        while True:
            with super()._locked(on_wait):
                lock = try_lock(path)
                if lock is not None:
                    records = self._usable(self.path, lambda row: False)
                    if len(records) < len(self.starts):
                        if self.path.exists():
                            os.replace(self.path, self._partial)
                        records = self._usable(self._partial, lambda row: False)
                    return lock, records
            if on_wait is not None:
                on_wait()
                on_wait = None
            with locked(path):
                pass

    @contextmanager
    def _locked(self, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """The file alone: no part is being computed in the block."""
        with super()._locked(on_wait), ExitStack() as stack:
            for path in sorted(self.path.parent.glob(f"{self.path.stem}.part-*.lock")):
                lock = file_lock(path)
                lock.acquire()
                stack.callback(lock.release)
            yield
            if self.path.exists():
                for journal in self._part_journals():
                    journal.unlink(missing_ok=True)

    def _recorded(self) -> dict[int, _Record]:
        records = super()._recorded()
        for journal in self._part_journals():
            records |= self._read_journal(journal)
        return records

    def _part_journals(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.stem}.part-*.chunks"))
