"""What a test does where the machine lacks something that it needs."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def skip_loudly(missing: str) -> NoReturn:
    """Skips and says what is not tried; under FAIL_ON_SKIP, as CI sets it, fails."""
    if os.environ.get("FAIL_ON_SKIP"):
        pytest.fail(missing)
    pytest.skip(missing)
