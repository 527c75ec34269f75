"""Parser of image references, by the rules of Docker and containerd."""

from __future__ import annotations

_HUB = "registry-1.docker.io"
# The name of Docker Hub in references.
_HUB_NAME = "docker.io"


def registry(image: str) -> str:
    """Returns the registry's host, by Docker's rule; empty for Docker Hub.

    The first part is a host if it has a dot or a port, or is localhost
    (https://pkg.go.dev/github.com/distribution/reference#ParseNormalizedNamed).
    """
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else ""


def registry_url(image: str) -> str:
    """Returns the URL of that image's registry, as in https://registry-1.docker.io/v2/."""
    host = registry(image)
    # The Docker engine uses plain HTTP for registries on its own machine.
    plain = host.startswith(("localhost", "127."))
    return f"{'http' if plain else 'https'}://{host}/v2/" if host else f"https://{_HUB}/v2/"


def located(image: str) -> tuple[str, str]:
    """Returns the registry's host, and the repository of an image.

    The repository has the registry's name: library/debian for debian.
    """
    name = without_tag(image)
    host = registry(name)
    if host and host != _HUB_NAME:
        return host, name.removeprefix(f"{host}/")
    name = name.removeprefix(f"{_HUB_NAME}/")
    return _HUB, name if "/" in name else f"library/{name}"


def without_tag(image: str) -> str:
    """Returns a reference without its tag and its digest."""
    name = image.partition("@")[0]
    slash = name.rfind("/") + 1
    return name[:slash] + name[slash:].partition(":")[0]


def tagged(image: str, tag: str) -> str:
    """Returns `image:tag`, or just `image` if it has a tag or a digest already."""
    named = ":" in image.rsplit("/", 1)[-1] or "@" in image
    return image if named else f"{image}:{tag}"


def full_name(reference: str) -> str:
    """Returns containerd's name of an image, which always has a host."""
    if registry(reference):
        return reference
    return f"docker.io/{reference}" if "/" in reference else f"docker.io/library/{reference}"
