"""A frontend process: it serves HTTP, with models and a repository that stand for those of the engine process.

Imported by nothing; the supervisor starts `frontend_process.py`.
"""
