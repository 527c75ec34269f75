"""Quick check whether source `upstream` can reach its registry and release pages."""

from __future__ import annotations

import threading
import time
from urllib.parse import urlsplit

from bootstrap import download
from bootstrap.settings import Settings
from bootstrap.sources.references import registry_url

# Timeout of the check in seconds.
QUICK = 3.0


def unreachable(settings: Settings) -> str | None:
    """Returns why registry and release pages can't be used from here; None if they can. Takes at most 3 s."""
    import requests

    urls = {registry_url(settings.ray_image), _site(settings.kind_releases)}
    failures: dict[str, str] = {}
    answered: set[str] = set()

    def ask(url: str) -> None:
        try:
            requests.head(url, timeout=QUICK, allow_redirects=False).close()
            answered.add(url)
        except OSError as error:
            failures[url] = download.reason(error)

    deadline = time.monotonic() + QUICK
    # Daemon threads, so that nobody waits for a name resolution that hangs.
    asking = [threading.Thread(target=ask, args=(url,), daemon=True) for url in urls]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(max(0.0, deadline - time.monotonic()))
    for url in sorted(urls - answered):
        return f"{url} does not answer: {failures.get(url, f'not within {QUICK:g} s')}"
    return None


def _site(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/"
