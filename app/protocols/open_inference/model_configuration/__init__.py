"""A model's configuration as Triton's clients read it, and what of it a load may override."""

from __future__ import annotations
