"""The table of methods. A new one is a module with a `Method`, its options in `kmcl.options.methods`, and an
entry in both tables.

Other packages add theirs by the entry-point group `kmcl.methods`.
"""

from __future__ import annotations

from kmcl.methods import aam, addgcn, csra, kmcl, linear, mldecoder, mlgcn, mulsupcon, q2l, tdrg
from kmcl.methods.interface import Method
from kmcl.registry import Registry

METHODS: Registry[Method] = Registry(
    "method",
    "kmcl.methods",
    {
        "kmcl": kmcl.METHOD,
        "asl": linear.ASL,
        "bce": linear.BCE,
        "focal": linear.FOCAL,
        "csra": csra.METHOD,
        "mldecoder": mldecoder.METHOD,
        "mulsupcon": mulsupcon.METHOD,
        "q2l": q2l.METHOD,
        "mlgcn": mlgcn.METHOD,
        "addgcn": addgcn.METHOD,
        "tdrg": tdrg.METHOD,
        "aam": aam.METHOD,
    },
    Method,
)


def find_method(name: str) -> Method:
    """The method called `name`."""
    return METHODS.find(name)
