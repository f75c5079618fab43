"""The type checker the tests run the mathematics with: shapes by jaxtyping, an int passes for a float."""

from beartype import BeartypeConf, beartype

check_types = beartype(conf=BeartypeConf(is_pep484_tower=True))
