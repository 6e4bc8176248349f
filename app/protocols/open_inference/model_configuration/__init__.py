"""The configuration of a model for Triton's clients, and the fields of it that a load may override."""

from __future__ import annotations
