"""The audience of a path: it decides on which port the path is answered where operators have one (`operator_port`)."""

from __future__ import annotations

from enum import Enum


class Audience(Enum):
    """CALLERS ask for inference; OPERATORS watch and change the server; EVERYONE asks for health, states, metadata."""

    CALLERS = "callers"
    OPERATORS = "operators"
    EVERYONE = "everyone"

    def is_answered(self, *, for_operators: bool) -> bool:
        """Whether the path is answered on the operators' port if `for_operators`, else on the others."""
        return self is not (Audience.CALLERS if for_operators else Audience.OPERATORS)
