"""Loading and calling models in a child process, as a server does, for `ferry check`.

Only app/cli/offline_check.py imports it.
"""
