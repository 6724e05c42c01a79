"""How weights are staged: what a person may choose."""

import os
from dataclasses import dataclass, field

from gauntlet.weights.progress import Progress


@dataclass
class Options:
    """`verify`: always (hash what is staged on every run), copy (hash while copying, later only files whose inode or
    times changed), never (nothing is hashed, and the manifest says so). `jobs`: files at a time, 0 by processors.
    `evict`: free what is not asked for. `repair_store`: a damaged store is filled again. `dry`: change nothing."""

    verify: str = "always"
    jobs: int = 0
    evict: bool = False
    repair_store: bool = True
    dry: bool = False
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self):
        self.jobs = self.jobs or min(16, 2 * (os.cpu_count() or 1))

    @property
    def hashed(self) -> bool:
        return self.verify != "never"
