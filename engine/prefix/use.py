"""What one row has of prefixes that others left, and what it leaves: kept with the row."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from engine.prefix.store import Entry
from protocol.messages import Finish

# How a row came to what it need not compute: see protocol.status.PrefixStatus.
FoundBy = Literal["exact", "snapshot", "cut", "live"]


class Leader(Protocol):
    """What is asked of a row that computes what others wait for."""

    prefilled: int
    ending: Finish | None


@dataclass(slots=True, eq=False)
class PrefixUse:
    """taken_tokens: that were there already, from `donor` or a row that lived, and `found` how.

    expected_tokens: that will be there, while the row waits for its turn. leader: a row that is computing the first
    leader_tokens of this one, too. snapshots: lengths at which the row's caches are to be kept, ascending. keep_tokens:
    how much of the row its client will send again, 0 for all. float_tokens: see Entry.
    """

    taken_tokens: int = 0
    expected_tokens: int = 0
    leader: "Leader | None" = None
    leader_tokens: int = 0
    donor: Entry | None = None
    found: FoundBy | None = None
    snapshots: list[int] = field(default_factory=list[int])
    keep_tokens: int = 0
    float_tokens: int = 0

    @property
    def is_waiting(self) -> bool:
        """Whether what the row needs first is being computed for another one."""
        leader = self.leader
        return leader is not None and leader.ending is None and leader.prefilled < self.leader_tokens
