"""Reads pages in an actor, whose memory grows and grows; its arguments are the tools that look at it.

`lines` is memory_profiler, `mprof` watches the actor's process, `objects` asks Ray what it stores.
`without=clean,fold` leaves parts out.
"""

import sys

import looking
import parts
import ray

WORDS = sys.argv[1:]
WITHOUT = next((word.partition("=")[2].split(",") for word in WORDS if word.startswith("without=")), [])
BATCHES, PAGES = 4, 30


def read(numbers, without):
    for number in numbers:
        text = parts.load(number)
        if "clean" not in without:
            text = parts.clean(text)
        if "fold" not in without:
            text = parts.fold(text)
        if "split" not in without:
            words = parts.split(text)
            if "index" not in without:
                parts.index(words)
    return text


@ray.remote
class Reader:
    def pid_and_node(self):
        return looking.here()

    def read(self, batch, without):
        reading = looking.by_line(read) if "lines" in WORDS else read
        text = reading(range(batch * PAGES, (batch + 1) * PAGES), without)
        print(f"after {(batch + 1) * PAGES} pages: {looking.mebibytes()} MiB")
        return text


reader = Reader.remote()
if "mprof" in WORDS:
    print(looking.watch(reader, BATCHES, WITHOUT))
    sys.exit()

texts = []
for batch in range(BATCHES):
    texts.append(reader.read.remote(batch, WITHOUT))
    ray.wait(texts, num_returns=len(texts))
print(f"the last page begins with {ray.get(texts[-1])[:8]}")
if "objects" in WORDS:
    looking.show_objects()
