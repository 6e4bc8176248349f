"""The settings: all of them (each is defined in topics/), where their values come from, and files that set batch sizes.

Imported by loading, server, frontends and the entry points; it imports codecs (text files), batching, runtime and core.
"""
