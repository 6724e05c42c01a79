"""Will a deployment fit, and how many requests will it take: arithmetic before a server starts, its own words after.

shape(config)                     what a config.json says that memory depends on
predict(shape, arguments, …)      tokens, slots and requests by the formulas of the release
check(prediction, concurrency, …) whether a cell fits, with its arithmetic, and the cheapest change that makes it fit
figures(lines)                    the same figures as the server printed them
compare(prediction, figures)      where the two differ by more than 5 %
"""

from gauntlet.memory.fit import check, levers
from gauntlet.memory.parameters import parameters
from gauntlet.memory.predict import generation, predict
from gauntlet.memory.printed import compare, figures
from gauntlet.memory.shape import bytes_per_sequence, bytes_per_slot, bytes_per_token, shape

__all__ = [
    "bytes_per_sequence", "bytes_per_slot", "bytes_per_token", "check", "compare", "figures", "generation", "levers",
    "parameters", "predict", "shape",
]  # fmt: skip
