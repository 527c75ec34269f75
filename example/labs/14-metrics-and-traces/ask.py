"""Starts a Prometheus that scrapes the cluster, asks it the queries of a run, and ends it.

What is scraped says `prometheus.yml`, which Rayside has made in the folder of the labs. Prometheus listens on
the loopback alone.
"""

import argparse
import json
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import requests
import yaml

PATIENCE = 90.0
# No proxy of the environment may come between us and the loopback.
SESSION = requests.Session()
SESSION.trust_env = False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def ask(url: str, query: str) -> list[dict]:
    """Returns the rows of an instant query. Raises SystemExit with what Prometheus has against it."""
    answer = SESSION.get(f"{url}/api/v1/query", params={"query": query}, timeout=20).json()
    if answer["status"] != "success":
        raise SystemExit(f"Prometheus refuses {query}: {answer['error']}")
    return list(answer["data"]["result"])


def wait_for(url: str, query: str, prometheus: subprocess.Popen) -> None:
    """Waits until a query has rows. Raises SystemExit where it has none for too long."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if prometheus.poll() is not None:
            raise SystemExit(f"Prometheus has ended with exit code {prometheus.returncode}")
        try:
            if ask(url, query):
                return
        except requests.RequestException:
            pass  # It is only starting: it refuses connections, then answers with an apology.
        time.sleep(0.5)
    raise SystemExit(f"after {PATIENCE:g} s there is still nothing for {query}: does the job run?")


def main(run: str, config: Path, file: Path, as_json: bool) -> None:
    queries = yaml.safe_load(file.read_text())
    with tempfile.TemporaryDirectory() as data:
        port = free_port()
        prometheus = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={data}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ]
        )
        try:
            url = f"http://127.0.0.1:{port}"
            # All twenty sales have to be there: each worker sends what it has every few seconds.
            wait_for(url, f'sum(ray_sales_total{{run="{run}"}}) == 20', prometheus)
            wait_for(url, f'sum(ray_waiting_seconds_count{{run="{run}"}}) == 20', prometheus)
            results = {
                name: ask(url, str(query).replace("$run", run)) if query else []
                for name, query in queries.items()
            }
        finally:
            prometheus.terminate()
            prometheus.wait()
    if as_json:
        print(json.dumps(results))
        return
    for name, rows in results.items():
        print(f"{name}: {'nothing' if not rows else ''}")
        for row in rows:
            labels = {key: value for key, value in row["metric"].items() if not key.startswith("otel")}
            print(f"  {row['value'][1]} {labels or ''}")


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Asks a Prometheus that scrapes the cluster.")
    parser.add_argument("run", help="the name that main.py was given")
    parser.add_argument("--config", type=Path, default=here.parent / "prometheus.yml")
    parser.add_argument("--queries", type=Path, default=here / "queries.yaml")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    main(given.run, given.config, given.queries, given.json)
