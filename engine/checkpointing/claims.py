"""Which checkpoints of a job count where several managers have claimed it: the rule, apart from the storage.

Why no two managers ever commit what contradicts each other:

A manager takes over by (1) creating `claims/<epoch>`, the next number that is free; (2) *then* listing the manifests
and choosing the newest that counts; (3) creating `claims/<epoch>.restored` with that number; (4) *then* listing the
claims. It completes a checkpoint by (a) creating the manifest, and (b) *then* listing the claims. With a higher claim
than its own, in (4) or (b), it is fenced and may commit nothing. The storage lists all that was created before.

So of a checkpoint that an old manager completes while a new one takes over, either the manifest (a) was there before
the claim (1), and the new manager sees it in (2) and resumes from it; or the claim (1) was there before the old
manager looked in (b), and the old one commits nothing (both may be true: then the new one commits it, as it restores
it).

What remains is a manifest that comes after the listing (2): it must never count, though it is there. So it is the
newest manager with a `.restored` file that decides: a checkpoint counts if that manager, or one after it, has written
it, or if its number is not above what that manager resumed from. Every manager that was not fenced in (4) had its
file there before the next one claimed, so the next one goes by it or by a newer one. Nothing is ever written over: a
manifest that arrives late takes at most the number of a checkpoint that then fails.

A job ends by `claims/<epoch>.ended`, which its manager creates between two looks at the claims. Fenced in the first, it
leaves no trace; not fenced in the second, every later manager sees the file, and all else may be removed. In between
nobody can tell, and nothing is lost: the manager had nothing left to do, so a new one may take its word, or resume from
the last checkpoint. What it chooses it writes down under its own number, `.ended` again or `.restored`, before it
looks at the claims in (4), and the newest of these files decides. So when one manager was told that the job has ended,
no later one begins it again, even if one that was fenced in between had begun to resume from it.

A job that was stopped with a savepoint has ended as well, though its manager may have died before it wrote that down:
its sinks may have committed. If none but the savepoint says so, they may also not have, and the job has failed: only a
job that starts from the savepoint commits what belongs to it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claims:
    """What the newest manager that decides has written down.

    Args:
        decider: the number of the newest manager that said what it resumed from; 0: none did.
        restored: the checkpoint that it resumed from; 0: none.
    """

    decider: int = 0
    restored: int = 0

    def counts(self, checkpoint: int, manager: int) -> bool:
        """Whether a checkpoint counts whose manifest is there, and names that manager."""
        return checkpoint <= self.restored or not self.overrule(manager)

    def misses_restored(self, newest: int) -> bool:
        """Whether the checkpoint that was resumed from is gone; `newest`: the newest one that counts, 0 for none."""
        return newest < self.restored

    def overrule(self, manager: int) -> bool:
        """Whether what that manager wrote down about the end of the job is no longer so."""
        return manager < self.decider


def is_fenced(manager: int, newest: int) -> bool:
    """Whether a manager has been replaced by `newest`, so that it may commit nothing, and must stop."""
    return newest > manager
