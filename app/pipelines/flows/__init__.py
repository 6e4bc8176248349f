"""Flows: requests on their way through the steps of a pipeline, joined where they are alike.

Only app.pipelines may import it.
"""
