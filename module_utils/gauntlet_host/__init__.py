"""What can be read and set on a host through its own files and commands.

Only the standard library, any Python from 3.8: it runs on hosts that Gauntlet never prepared, as part of a module or,
at boot, as `python3 -m gauntlet_host`.
"""
