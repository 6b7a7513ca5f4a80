"""Protocols: named, versioned conditions of a comparison, one TOML file each, from which a user derives their own.

Plain data, read without torch; `studies` turns them into runs.
"""

from equimetric.protocols.protocol import Protocol, apply_protocol, find_protocol, list_protocols

__all__ = ["Protocol", "apply_protocol", "find_protocol", "list_protocols"]
