"""Progress of a study: how many members are finished, which are running, and the time left."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kmcl.studies.plan import Member


class StudyProgress(AbstractContextManager["StudyProgress"]):
    """Prints a line when a member starts or ends; in a terminal also a live list of the running members."""

    def __init__(self, console: Console, members: Sequence[Member], jobs: int) -> None:
        self.console = console
        self.members = list(members)
        self.jobs = jobs
        self._live = Live(console=console, refresh_per_second=2, transient=True, auto_refresh=False)
        self._waited = False

    def __enter__(self) -> StudyProgress:
        done = sum(member.is_finished for member in self.members)
        if done:
            self._say(f"{done} of {len(self.members)} members are finished already")
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def started(self, member: Member) -> None:
        epochs = len(_epochs(member))
        again = f", resumes after epoch {epochs}" if epochs and member.run.checkpoint.is_file() else ""
        self._say(f"{member.variant}, seed {member.seed}: starts{again}")

    def finished(self, member: Member) -> None:
        rows = _epochs(member)
        parts = [f"{member.variant}, seed {member.seed}: finished"]
        if rows:
            parts.append(f"{duration(sum(float(row['seconds']) for row in rows))} of training")
        best = member.run.read_metrics().get("best") if member.run.metrics_file.is_file() else None
        if best and best["val_map"] is not None:
            parts.append(f"val mAP {100 * best['val_map']:.2f}")
        done = sum(other.is_finished for other in self.members)
        parts.append(f"{done} of {len(self.members)} members")
        self._say("; ".join([*parts, *self._time_left()]))

    def failed(self, member: Member, why: str) -> None:
        self._say(f"{member.variant}, seed {member.seed}: failed: {why} (see {member.log_file})")

    def polled(self, running: Sequence[Member], waiting: Sequence[Member], elsewhere: int) -> None:
        if elsewhere and not running and not self._waited:
            self._waited = True
            self._say(f"waiting for {elsewhere} members that another process trains")
        if not self.console.is_terminal:
            return
        done = sum(member.is_finished for member in self.members)
        lines = ["; ".join([f"{done} of {len(self.members)} members", *self._time_left()])]
        for member in running:
            rows = _epochs(member)
            best = rows[-1].get("val/map_best") if rows else None
            reached = f", head's val mAP {100 * float(best):.2f}" if best else ""
            of = member.settings.optimisation.epochs
            lines.append(f"  {member.variant}, seed {member.seed}: epoch {len(rows) + 1} of {of}{reached}")
        self._live.update(Text("\n".join(lines)), refresh=True)

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _time_left(self) -> list[str]:
        """From the mean epoch time of each variant so far, or of all variants where one has none yet."""
        seconds: dict[str, list[float]] = {}
        left: dict[str, int] = {}
        for member in self.members:
            rows = [] if not member.run.epochs_file.is_file() else _epochs(member)
            seconds.setdefault(member.variant, []).extend(float(row["seconds"]) for row in rows)
            if not member.is_finished:
                rest = max(0, member.settings.optimisation.epochs - len(rows))
                left[member.variant] = left.get(member.variant, 0) + rest
        everything = [value for values in seconds.values() for value in values]
        if not everything or not any(left.values()):
            return []
        mean = sum(everything) / len(everything)
        total = 0.0
        for variant, epochs in left.items():
            own = seconds[variant]
            total += epochs * (sum(own) / len(own) if own else mean)
        return [f"about {duration(total / self.jobs)} left"]


def _epochs(member: Member) -> list[dict[str, str]]:
    try:
        with member.run.epochs_file.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError:
        return []


def duration(seconds: float) -> str:
    """`1 h 05 min`, `3 min 20 s` or `12 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
