"""The tables of operations, by family: each rule says what it gives from what it is given. row_proof/proof.py loads them.

Every rule holds for all values. What a rule does not name is unknown.
"""

from app.runtimes.tensorflow.row_proof.rules import (
    control,
    elementwise,
    indexing,
    linear,
    lists,
    matrices,
    reducing,
    segments,
    shaping,
    slicing,
    sources,
    text,
)

#: Importing a family enters its rules.
ALL_FAMILIES = (
    control,
    elementwise,
    indexing,
    linear,
    lists,
    matrices,
    reducing,
    segments,
    shaping,
    slicing,
    sources,
    text,
)
