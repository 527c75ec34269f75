"""Makes spans in any process of a job, and collects them in an actor, which the driver asks for them."""

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from opentelemetry import propagate
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer


@ray.remote(num_cpus=0)
class Collector:
    def __init__(self) -> None:
        self._spans = []

    def add(self, spans: list[dict]) -> None:
        self._spans += spans

    def spans(self) -> list[dict]:
        return self._spans


class ToCollector(SpanExporter):
    """Sends each span that has ended to the job's collector."""

    def export(self, spans) -> SpanExportResult:
        collector = ray.get_actor("collector")
        ray.get(collector.add.remote([json.loads(span.to_json()) for span in spans]))
        return SpanExportResult.SUCCESS


@functools.cache
def tracer() -> Tracer:
    """Returns the tracer of this process."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ToCollector()))
    return provider.get_tracer("shop")


@contextmanager
def span(name: str, context: dict[str, str]) -> Iterator[None]:
    """Makes a span below the one that `context` names; where it names none, the span begins a trace."""
    with tracer().start_as_current_span(name, context=propagate.extract(context)):
        yield


def current() -> dict[str, str]:
    """Returns what names the current span, to be given to a task as an argument."""
    context: dict[str, str] = {}
    propagate.inject(context)
    return context


def show(spans: list[dict]) -> None:
    """Prints how many traces there are, and the spans of the first as a tree."""
    traces: dict[str, list[dict]] = {}
    for each in sorted(spans, key=lambda each: each["start_time"]):
        traces.setdefault(each["context"]["trace_id"], []).append(each)
    print(f"traces: {len(traces)} of {len(spans)} spans")
    first = next(iter(traces.values()))
    parents = {each["context"]["span_id"]: each["parent_id"] for each in first}
    for each in first:
        depth, above = 0, each["parent_id"]
        while above in parents:
            depth, above = depth + 1, parents[above]
        print(f"trace: {'  ' * depth}{each['name']}")
    begin = {each["name"] for each in spans if each["parent_id"] is None}
    print(f"spans that begin a trace: {', '.join(sorted(begin))}")
