"""Commands in README and docs, and the reasons why tests can't run some of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bootstrap.settings import ROOT

DOCUMENTS = [
    *("README.md", "README.zh.md", "CONTRIBUTING.md"),
    *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
    *sorted(f"docs/internals/{page.name}" for page in (ROOT / "docs" / "internals").glob("*.md")),
]
# Languages of command blocks; the tests run the blocks of `sh`.
SHELLS = ("sh", "zsh", "fish")

_CI = ".ci/run runs it before the tests, or they are it"
# Why tests/e2e/test_readme.py does not run a documented command, by command.
NOT_RUN = {
    "./invokew check": _CI,
    "./invokew test": "it would run all tests within one of them; .ci/run runs it",
    "./invokew test --suite unit": _CI,
    './invokew test --suite integration --args "-k ctrl_c"': _CI,
    "./invokew down --purge": "the cache and the images are those of every other test",
    "./invokew submit --job example/ray-job.interactive-mode.yaml": (
        "tests/e2e/test_kind.py runs it, and removes the cluster that it makes"
    ),
    **dict.fromkeys(
        (
            "./invokew up --name demo --target local",
            "./invokew debug --name demo",
            "./invokew down --name demo",
        ),
        "a second cluster beside the first: tests/e2e/test_two_clusters.py has one",
    ),
    **dict.fromkeys(
        (
            'rayside submit --debug --entrypoint "python train.py"',
            'rayside debug --break "train.py:42:batch > 3" --break lib/model/__init__.py:7',
            "rayside stacks",
            "rayside compare loss",
        ),
        "a clone has no `rayside` on its PATH: the same verbs of ./invokew are run",
    ),
    **dict.fromkeys(
        (
            'python -m pip install ./rayside "ray[default]"',
            "rayside run --break my_task.py:12 my_program.py --its-option 3",
        ),
        "for an environment of one's own: tests/integration/rayside/test_run.py and test_wheel.py have one",
    ),
    **dict.fromkeys(
        ("./invokew vsix", "code --install-extension ray-breakpoints.vsix"),
        "its own test packs the extension, and a desktop is needed",
    ),
    "./invokew up --address http://HOST:8265": (
        "it needs a Ray that others made: tests/integration/bootstrap/test_their_ray.py starts one"
    ),
    "python -m pip install ./rayside": "docs/run.md's block installs it, with Ray",
    **dict.fromkeys(
        (
            "rayside connect --address http://HOST:8265",
            "rayside connect --ssh HOST",
            "rayside connect --context CTX --namespace NS",
            'rayside submit --debug --working-dir . --entrypoint "python train.py"',
            "rayside debug --break train.py:12",
            "rayside disconnect",
        ),
        "it takes a Ray cluster of one's own: the tests of `rayside connect` start one",
    ),
    **dict.fromkeys(
        ("pip install ./rayside", "rayside run --break my_task.py:12 my_program.py"),
        "it takes an environment of the reader's: tests/integration/rayside runs it in one",
    ),
    **dict.fromkeys(
        (
            "rayside connect --context my-context --namespace ray",
            'rayside submit --debug --working-dir . --entrypoint "python train.py"',
            "rayside debug --break train.py:42",
            "rayside disconnect",
        ),
        "it needs the reader's cluster",
    ),
    **dict.fromkeys(
        (
            "./invokew workshop --places 3",
            "./invokew workshop --sheet sheet.csv",
            "INVOKE_RAYSIDE_WORKSHOP_HOST=workshop.example.com ./invokew workshop --places 3",
            "kubectl annotate ingress rayside-door nginx.ingress.kubernetes.io/proxy-read-timeout=3600 "
            "nginx.ingress.kubernetes.io/proxy-body-size=100m "
            "nginx.ingress.kubernetes.io/enable-access-log=false",
            "INVOKE_RAYSIDE_WORKSHOP_ADDRESS=192.0.2.10 ./invokew workshop --places 3",
            "export INVOKE_RAYSIDE_CPU_HOUR_PRICE=0.04 INVOKE_RAYSIDE_GIB_HOUR_PRICE=0.005",
            "./invokew workshop --places 30 --dry-run",
            "INVOKE_RAYSIDE_WORKSHOP_HOME=https://git.example.com/rayside.git ./invokew workshop --places 3",
        ),
        "it takes minutes, and an address of the room: tests/e2e/test_workshop.py makes one",
    ),
    **dict.fromkeys(
        (
            "./invokew bundle rayside.bundle --python 3.11,3.12",
            "tar -xOf rayside.bundle blobs/sha256/CHECKOUT > rayside.tar",
            "echo 'CHECKOUT  rayside.tar' | sha256sum --check && tar -xf rayside.tar",
            "rayside/invokew up --bundle rayside.bundle",
        ),
        "it takes a clone, an engine and minutes: tests/e2e/test_bundle.py does it without a network",
    ),
    **dict.fromkeys(
        (
            "docker login registry.example.com",
            "./invokew mirror registry.example.com/team",
            "./invokew up --mirror registry.example.com/team",
        ),
        "nobody has that registry: tests/e2e/test_bundle.py has one without a network",
    ),
    **dict.fromkeys(
        (
            "tar -xf rayside.bundle manifest.json manifest.json.minisig",
            "minisign -V -m manifest.json -p minisign.pub",
            'python3 -c \'import json; print(json.load(open("manifest.json"))["checkout"]["digest"])\'',
        ),
        "it takes a key: tests/integration/bootstrap/test_bundle_signature.py makes one",
    ),
    "autoload -Uz compinit bashcompinit": "zsh: test_completion.py runs it where zsh is",
    "compinit": "as the line before it",
    "bashcompinit": "as the line before it",
    "complete --command invokew --no-files --arguments "
    "'(eval (commandline -p -o)[1] --complete -- invoke (commandline -p -o)[2..])'": (
        "fish: tests/integration/bootstrap/test_completion.py runs it where fish is"
    ),
}
# Commands that need the kind cluster.
ON_KIND = ("./invokew up --target kind",)


@dataclass(frozen=True)
class Block:
    """Fenced block: its language, its first line's number, and its lines."""

    document: str
    language: str
    line: int
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Returns the commands as typed, without comments; a trailing backslash joins lines."""
        joined = "\n".join(self.lines).replace("\\\n", " ")
        return [command for line in joined.split("\n") if (command := without_comment(line).strip())]


def page(document: str) -> tuple[list[Block], str]:
    """Returns a page's fenced blocks, in order, and the rest of the page."""
    blocks: list[Block] = []
    rest: list[str] = []
    inside: list[str] | None = None
    language, first = "", 0
    for number, line in enumerate((ROOT / document).read_text().splitlines(), start=1):
        fence = re.match(r"\s*```\s*(\S*)", line)
        if fence and inside is None:
            language, first, inside = fence[1], number, []
        elif fence and inside is not None:
            blocks.append(Block(document, language, first, tuple(inside)))
            inside = None
        else:
            (rest if inside is None else inside).append(line)
    assert inside is None, f"{document}:{first}: a fence that is not closed"
    return blocks, "\n".join(rest)


def shown(language: str = "sh") -> list[Block]:
    """Returns every block of commands in that shell's language."""
    return [block for document in DOCUMENTS for block in page(document)[0] if block.language == language]


def commands() -> list[str]:
    """Returns every command of every block, in the order of the documents."""
    return [command for shell in SHELLS for block in shown(shell) for command in block.commands]


def run_on_local() -> list[Block]:
    """Returns the blocks with at least one command for a local cluster, each once."""
    # README.zh.md has the same blocks as README.md, which tests/unit/bootstrap/test_docs.py checks.
    return [block for block in shown() if block.document != "README.zh.md" and runnable(block)]


def runnable(block: Block) -> list[str]:
    """Returns the block's commands, except commands that are not run or need kind."""
    return [command for command in block.commands if command not in NOT_RUN and command not in ON_KIND]


def changes_settings(block: Block) -> bool:
    """Returns whether a command sets a variable, with which a running cluster would count as drifted."""
    return any(command.startswith("INVOKE_RAYSIDE_") for command in block.commands)


def without_comment(line: str) -> str:
    quote = ""
    for index, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and (index == 0 or line[index - 1].isspace()):
            return line[:index]
    return line
