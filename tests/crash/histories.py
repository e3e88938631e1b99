"""What histories of clients show, beyond transactions (`e2e/isolation.py`): registers, causal sessions, change streams."""

from dataclasses import dataclass

FOREVER = float("inf")


@dataclass
class Operation:
    """One write or read of a register. Every value is written once; None is the value before any write."""

    kind: str
    value: object
    start: float
    # FOREVER: the answer was lost, and it may take effect at any later time, or never.
    end: float = FOREVER


def not_linearizable(history):
    """Why a register's history has no order in real time; None when it has one.

    With values that are written once it is known which write a read saw, and the zones of values decide (Gibbons and Korach,
    "Testing Shared Memories", 1997): a value's zone reaches from the first end of its operations to the last begin.
    """
    clusters = {None: [Operation("write", None, -FOREVER, -FOREVER)]}
    for operation in history:
        if operation.kind == "write":
            if operation.value in clusters:
                raise ValueError(f"{operation.value} is written twice")
            clusters[operation.value] = [operation]
    for operation in history:
        if operation.kind != "read" or operation.end == FOREVER:
            continue
        if operation.value not in clusters:
            return f"{operation.value} was read and never written"
        write = clusters[operation.value][0]
        if operation.end < write.start:
            return f"{operation} saw what was written later: {write}"
        clusters[operation.value].append(operation)
    zones = []
    for value, operations in clusters.items():
        if len(operations) == 1 and operations[0].end == FOREVER:
            continue
        zones.append((min(each.end for each in operations), max(each.start for each in operations), value))
    forward = sorted((low, high, value) for low, high, value in zones if low < high)
    for (_, high, value), (low, _, other) in zip(forward, forward[1:]):
        if low < high:
            return f"{value} was seen before and after {other}: {clusters[value]} and {clusters[other]}"
    for low, high, value in zones:
        if low < high:
            continue
        # Backward: all its operations overlap between `high` and `low`.
        for start, end, other in forward:
            if start < high and low < end:
                return f"{value} came and went while {other} was there: {clusters[value]} and {clusters[other]}"
    return None


def broken_promises(events):
    """Of one session on one document whose number only rises: ("wrote", n), ("lost", n) and ("read", n) in order."""
    written = seen = 0
    for kind, number in events:
        if kind == "wrote":
            written = number
        elif kind == "read":
            if number < written:
                return f"{number} was read after {written} had been written"
            if number < seen:
                return f"{number} was read after {seen} had been read"
            seen = number
    return None


def bad_stream(seen, found):
    """Of (writer, number) inserts: what a change stream over all of them saw, against what is there at the end."""
    if len(set(seen)) != len(seen):
        doubled = {each for each in seen if seen.count(each) > 1}
        return f"seen twice: {sorted(doubled)[:5]}"
    if missing := set(found) - set(seen):
        return f"never seen: {sorted(missing)[:5]} and {len(missing)} in all"
    if extra := set(seen) - set(found):
        return f"seen and not there: {sorted(extra)[:5]}"
    last = {}
    for writer, number in seen:
        if number <= last.get(writer, -1):
            return f"{writer, number} was seen behind {last[writer]}"
        last[writer] = number
    return None
