"""Adapters, one for each protocol: bytes to InferenceRequest and back. Imported by server and frontends."""
