"""One adapter per protocol: bytes to InferenceRequest and back, each with its error table."""
