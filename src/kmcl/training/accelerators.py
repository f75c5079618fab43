"""Whether the accelerator that the settings name is there, before anything is computed for it."""

from __future__ import annotations

from kmcl.errors import InputError, suggest
from kmcl.training.lightning import AcceleratorRegistry

CHOICES = {"auto": (), "gpu": ("cuda", "mps")}
"""Names that stand for one of several accelerators; every machine has what `auto` falls back on."""


def check_accelerator(name: str, num_devices: int | None) -> None:
    """Raise InputError for an unknown accelerator, one that this machine lacks, or too few devices of it.

    num_devices: wanted on this machine; None for all there are
    """
    known = [*CHOICES, *AcceleratorRegistry.available_accelerators()]
    if name not in known:
        raise InputError(
            f"--accelerator must be one of {', '.join(known)}; got {name!r}{suggest(name, known)}"
        )
    kinds = CHOICES.get(name, (name,))
    if not kinds:
        return
    found = [kind for kind in (AcceleratorRegistry.get(kind) for kind in kinds) if kind.is_available()]
    if not found:
        raise InputError(
            f"--accelerator {name}: torch finds no such device on this machine; use --accelerator cpu, or "
            "auto for what there is"
        )
    available = found[0].auto_device_count()
    if name != "cpu" and num_devices is not None and num_devices > available:
        raise InputError(f"--devices {num_devices}: this machine has {available} of --accelerator {name}")
