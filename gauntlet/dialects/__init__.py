"""How each kind of server is spoken to. A dialect asks, reads answers by meaning, and knows the other doors.

`get(name)` returns a class with: `path`, `body(...)`, `read(times, pieces) -> Reading`, `counters(text) -> dict`,
and, for a live server, `facts()`, `tokens(prompt)`, `flush()`.
"""

from gauntlet.dialects.llamacpp import LlamaCpp
from gauntlet.dialects.openai import OpenAI
from gauntlet.dialects.sglang import SGLang
from gauntlet.names import unknown

KNOWN = {dialect.name: dialect for dialect in (SGLang, LlamaCpp, OpenAI)}


def get(name: str) -> type:
    """The dialect's class. Raises GauntletError with the nearest name for an unknown one."""
    if name not in KNOWN:
        raise unknown("dialect", name, KNOWN)
    return KNOWN[name]
