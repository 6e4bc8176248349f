"""The settings by topic: of each its name (with its unit), its type, its default and its description.

Imported by app/config/settings.py, which joins them, and by what needs one default; it imports the rules and forms of
values in app/config, and core. A rule between several settings stands with the last of them.
"""
