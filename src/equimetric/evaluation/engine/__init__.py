"""How evaluation computes: inputs, exact products, the scan and what is read from its tiles; all in bounded memory.

Knows no metric: `metrics` builds on this room, never the other way round.
"""
