"""The tables of operations, by family: a rule gives the results of an operation. row_proof/proof.py loads them.

Every rule holds for all values. An operation without a rule is unknown.
"""

from app.runtimes.tensorflow.row_proof.rules import (  # noqa: F401 - importing a family enters its rules
    control,
    elementwise,
    forests,
    indexing,
    linear,
    lists,
    matrices,
    ragged,
    ranges,
    reducing,
    segments,
    shaping,
    slicing,
    sources,
    sparse,
    text,
    tokens,
)
