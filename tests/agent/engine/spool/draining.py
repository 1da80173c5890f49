"""Take points out of a spool, as a worker would."""


def ids(taken):
    return [int(point.value) for point in taken]


def take(spool, most=10**6):
    return ids(point for points, _ in spool.take(most) for point in points)


def drain(spool, most=7):
    """Deliver everything, as a worker would; return the ids in the order of delivery."""
    found = []
    while taken := take(spool, most):
        found += taken
        spool.acknowledge({"sent": len(taken)})
    return found
