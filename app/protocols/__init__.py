"""One adapter per protocol: bytes to InferenceRequest and back. Imported by server and frontends."""
