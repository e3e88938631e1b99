"""What a history of transactions on lists shows of the isolation they had.

Every transaction appends to lists and reads them; each value is appended once. A list tells the order of the transactions
that wrote it, and a read which of them had been seen. From that follow edges (Adya 1999; Kingsbury and Alvaro, "Elle", 2020):

- ww: B appended behind A's value;
- wr: B read A's value;
- rw: A did not see what B appended next;
- rt: A had ended when B began.

Snapshot isolation in real time has no cycle with at most one rw edge, and no read of what was never committed or of the
middle of a transaction. Two rw edges (write skew) are allowed.
"""

from dataclasses import dataclass, field


@dataclass
class Txn:
    """One transaction: what it did, in order, and what its client knows of it."""

    start: float
    end: float = float("inf")
    # ("append", key, value) and ("read", key, values)
    operations: list = field(default_factory=list)
    # "committed", "aborted", or "unknown": the answer was lost.
    outcome: str = "unknown"


def check(txns):
    """The anomalies of a history: (name, what shows it), none where it is snapshot isolation in real time."""
    found = []
    writer, last_of = {}, {}
    for txn in txns:
        own = {}
        for kind, key, value in txn.operations:
            if kind == "append":
                if (key, value) in writer:
                    raise ValueError(f"{value} is appended to {key} twice")
                writer[key, value] = txn
                own.setdefault(key, []).append(value)
        for key, values in own.items():
            for value in values:
                last_of[key, value] = values[-1]
    found += bad_reads(txns, writer, last_of)
    orders = version_orders(txns)
    observed = {id(writer[key, value]) for key, order in orders.items() for value in order if (key, value) in writer}
    # What other transactions read is promised to nobody: a commit that was not answered yet can be seen, and go with a crash.
    kept = [txn for txn in txns if txn.outcome == "committed" or id(txn) in observed]
    found += conflicts(kept, orders)
    if found:
        return found
    found += lost(kept, orders)
    edges = dependencies(kept, orders, writer)
    return found + cycles(kept, edges)


def bad_reads(txns, writer, last_of):
    """G1a, G1b, values from nowhere, and transactions that do not see themselves."""
    found = []
    for txn in txns:
        own = {}
        for kind, key, value in txn.operations:
            if kind == "append":
                own.setdefault(key, []).append(value)
                continue
            mine = own.get(key, [])
            if mine and value[len(value) - len(mine) :] != mine:
                found.append(("internal", (key, value, mine)))
            others = value[: len(value) - len(mine)] if mine else value
            if len(set(value)) != len(value):
                found.append(("duplicate", (key, value)))
            for each in others:
                by = writer.get((key, each))
                if by is None:
                    found.append(("from nowhere", (key, each)))
                elif by.outcome == "aborted":
                    found.append(("G1a", (key, each)))
            if others and (key, others[-1]) in last_of and last_of[key, others[-1]] != others[-1]:
                found.append(("G1b", (key, others)))
    return found


def version_orders(txns):
    """The order of values in each list: the longest one that a committed transaction read."""
    orders = {}
    for txn in txns:
        if txn.outcome != "committed":
            continue
        for kind, key, value in txn.operations:
            if kind == "read" and len(value) > len(orders.get(key, [])):
                orders[key] = value
    return orders


def conflicts(kept, orders):
    """Reads that are no beginnings of the longest one."""
    found = []
    for txn in kept:
        own = set()
        for kind, key, value in txn.operations:
            if kind == "append":
                own.add((key, value))
            elif not any((key, each) in own for each in value) and value != orders.get(key, [])[: len(value)]:
                found.append(("incompatible order", (key, value, orders.get(key))))
    return found


def lost(kept, orders):
    """Committed values that a later read of their list does not have."""
    found = []
    for key, order in orders.items():
        there = set(order)
        last_read = max(
            (txn.start for txn in kept for kind, k, value in txn.operations if kind == "read" and k == key and value == order),
            default=None,
        )
        for txn in kept:
            for kind, k, value in txn.operations:
                if kind == "append" and k == key and value not in there and txn.outcome == "committed":
                    if last_read is not None and txn.end < last_read:
                        found.append(("lost update", (key, value)))
    return found


def dependencies(kept, orders, writer):
    """Edges between places in `kept`: (from, to, kind)."""
    place = {id(txn): number for number, txn in enumerate(kept)}
    edges = set()

    def add(a, b, kind):
        if a is not b and id(a) in place and id(b) in place:
            edges.add((place[id(a)], place[id(b)], kind))

    for key, order in orders.items():
        for before, after in zip(order, order[1:]):
            if (key, before) in writer and (key, after) in writer:
                add(writer[key, before], writer[key, after], "ww")
    for txn in kept:
        own = set()
        for kind, key, value in txn.operations:
            if kind == "append":
                own.add((key, value))
                continue
            others = [each for each in value if (key, each) not in own]
            if others and (key, others[-1]) in writer:
                add(writer[key, others[-1]], txn, "wr")
            order = orders.get(key, [])
            if len(others) < len(order) and (key, order[len(others)]) in writer:
                add(txn, writer[key, order[len(others)]], "rw")
    return edges


def cycles(kept, edges):
    """G0, G1c and G-single, real time included. Time is a chain of nodes behind those of the transactions."""
    count = len(kept)
    ends = sorted((txn.end, number) for number, txn in enumerate(kept) if txn.outcome == "committed")
    successors = [set() for _ in range(count + len(ends))]
    for a, b, kind in edges:
        if kind != "rw":
            successors[a].add(b)
    times = [end for end, _ in ends]
    for rank, (_, number) in enumerate(ends):
        successors[number].add(count + rank)
        if rank:
            successors[count + rank - 1].add(count + rank)
    for number, txn in enumerate(kept):
        rank = _below(times, txn.start) - 1
        if rank >= 0:
            successors[count + rank].add(number)
    order, circle = topological(successors)
    if circle:
        members = [node for node in circle if node < count]
        kinds = {kind for a, b, kind in edges if a in circle and b in circle}
        return [("G0" if kinds == {"ww"} and not _needs_time(members, edges) else "G1c", members)]
    reach = [0] * len(successors)
    for node in reversed(order):
        bits = 0
        for successor in successors[node]:
            bits |= reach[successor] | 1 << successor
        reach[node] = bits
    return [("G-single", (a, b)) for a, b, kind in sorted(edges) if kind == "rw" and reach[b] >> a & 1]


def _needs_time(members, edges):
    inside = [set() for _ in range(max(members, default=0) + 1)]
    for a, b, kind in edges:
        if kind != "rw" and a < len(inside) and b < len(inside):
            inside[a].add(b)
    return not topological(inside)[1]


def _below(times, moment):
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if times[middle] < moment:
            low = middle + 1
        else:
            high = middle
    return low


def topological(successors):
    """An order of the nodes, and those between or on circles where there is none (Kahn 1962, from both ends)."""
    order = _peel(successors, range(len(successors)))
    if len(order) == len(successors):
        return order, set()
    left = set(range(len(successors))) - set(order)
    backward = [set() for _ in successors]
    for node in left:
        for successor in successors[node] & left:
            backward[successor].add(node)
    return order, left - set(_peel(backward, left))


def _peel(successors, nodes):
    """Nodes that no circle leads to, in order."""
    incoming = dict.fromkeys(nodes, 0)
    for node in nodes:
        for successor in successors[node]:
            incoming[successor] += 1
    ready = [node for node in nodes if incoming[node] == 0]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for successor in successors[node]:
            incoming[successor] -= 1
            if incoming[successor] == 0:
                ready.append(successor)
    return order
