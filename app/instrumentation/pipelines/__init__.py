"""The explanation of pipelines, and advice for them."""
