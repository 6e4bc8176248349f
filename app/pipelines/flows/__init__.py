"""Requests on their way through the steps of a pipeline: who goes together, and where their ways part.

Only app.pipelines may import it.
"""
