"""Three visitors book seats and get their tickets; each visitor is one remote task."""

import ray
from theatre import Office, Printer

VISITORS = ["Ada", "Ben", "Cleo"]


@ray.remote(num_cpus=0)
def visit(visitor, office, printer):
    seat = ray.get(office.book.remote(visitor))
    ticket = ray.get(printer.ticket.remote(visitor, seat))
    return f"{visitor} holds: {ticket}"


office, printer = Office.remote(len(VISITORS)), Printer.remote(len(VISITORS))
for line in ray.get([visit.remote(visitor, office, printer) for visitor in VISITORS]):
    print(line)
