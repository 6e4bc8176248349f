"""`--frontends N`: N processes that serve HTTP and gRPC, one engine process that runs models, and their supervisor.

docs/architecture/frontends.md, "Frontends", describes them. Only `app/cli` and `app/model_server` import this package.
"""
