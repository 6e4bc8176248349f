"""The tables of operations, by family: each rule says what an operation gives. row_proof/proof.py loads them.

Every rule holds for all values. What a rule does not name is unknown.
"""

from app.runtimes.tensorflow.row_proof.rules import (
    control,
    elementwise,
    indexing,
    linear,
    lists,
    matrices,
    ranges,
    reducing,
    segments,
    shaping,
    slicing,
    sources,
    sparse,
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
    ranges,
    reducing,
    segments,
    shaping,
    slicing,
    sources,
    sparse,
    text,
)
