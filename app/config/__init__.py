"""The settings: their definitions, where their values come from, and the files that set batch sizes.

Imported by loading, server, frontends and the entry points; it imports codecs (text files), batching, runtime and core.
"""
