"""A theatre's office and its printer, two actors that serve several visitors at once."""

import asyncio
import threading

import ray


@ray.remote(num_cpus=0)
class Office:
    """Sells seats. Its methods are async: all calls share one thread, and take turns where one awaits."""

    def __init__(self, visitors: int) -> None:
        self.missing = visitors
        self.opens = asyncio.Event()
        self.next_seat = 1

    async def book(self, visitor: str) -> int:
        await self.opening()
        seat = self.next_seat
        await asyncio.sleep(0)  # The bank is asked, and the other calls take their turns.
        self.next_seat = seat + 1
        return seat

    async def opening(self) -> None:
        """Returns when all visitors have come."""
        self.missing -= 1
        if self.missing == 0:
            self.opens.set()
        await self.opens.wait()


@ray.remote(num_cpus=0, max_concurrency=10)
class Printer:
    """Prints tickets. Its methods are not async: up to ten calls run at once, each in its own thread."""

    def __init__(self, tickets: int) -> None:
        self.sheet = threading.Barrier(tickets)

    def ticket(self, visitor: str, seat: int) -> str:
        self.visitor = visitor
        self.sheet.wait()  # One sheet has the tickets of all visitors.
        return f"seat {seat} for {self.visitor}"
