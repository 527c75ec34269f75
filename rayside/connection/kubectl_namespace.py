"""Kubernetes namespace, read through the user's own kubectl."""

from __future__ import annotations

import base64
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayside.connection.heads import forbidden
from rayside.errors import ClusterUnreachable, CommandFailed, Forbidden, InvalidSetting, RaysideError
from rayside.plain import line
from rayside.system.shell import Outcome, Shell

# Timeout in seconds; kubectl may run a plugin that opens a browser for a login.
_PATIENCE = 60.0


@dataclass(frozen=True)
class KubectlNamespace:
    """A namespace in a kubeconfig context, as heads.Namespace. Its methods also raise MissingProgram."""

    shell: Shell
    kubeconfig: Path
    context: str
    namespace: str
    program: Path = Path("kubectl")

    @classmethod
    def of(
        cls, shell: Shell, context: str, namespace: str = "", environment: Mapping[str, str] = os.environ
    ) -> KubectlNamespace:
        """Returns the namespace (default: the context's) in the first kubeconfig with the context.

        Raises InvalidSetting if no kubeconfig contains it.
        """
        named = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
        files = [Path(part).absolute() for part in named] or [Path.home() / ".kube" / "config"]
        for file in files:
            view = cls(shell, file, context, namespace)
            config = ("config", "view", "--minify", "--output", "json")
            try:
                document = json.loads(view._run(*config)) if file.exists() else {}
            except (ClusterUnreachable, ValueError):
                continue
            contexts = document.get("contexts") or [{}]
            if contexts[0].get("name") == context:
                own = str((contexts[0].get("context") or {}).get("namespace") or "default")
                return cls(shell, file, context, namespace or own)
        raise InvalidSetting(
            f"no context {line(context)} is in {' or '.join(str(file) for file in files)}",
            hint="kubectl config get-contexts lists them; KUBECONFIG names another file",
        )

    def require(self, verb: str, resource: str) -> None:
        """Checks a permission, as in `get`, `pods/portforward`. Raises Forbidden, ClusterUnreachable."""
        kind, _, sub = resource.partition("/")
        done = self._ask("auth", "can-i", verb, kind, *((f"--subresource={sub}",) if sub else ()))
        # For "no", kubectl prints the answer, perhaps with a reason, and exits with an error.
        answer = done.out.strip().partition(" ")[0]
        if answer not in ("yes", "no"):
            raise self._failure(done)
        if answer == "no":
            raise forbidden(verb, resource, "", self.namespace)

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Returns the manifests of the selected pods. Raises Forbidden, ClusterUnreachable."""
        document = json.loads(self._run("get", "pods", "--selector", selector, "--output", "json"))
        return list(document["items"])

    def secret(self, name: str, key: str) -> str | None:
        """Returns one value of a Secret; None if missing. Raises as `pods`."""
        text = self._run("get", "secret", name, "--ignore-not-found", "--output", "json")
        value = (json.loads(text).get("data") or {}).get(key) if text.strip() else None
        return base64.b64decode(value).decode() if value else None

    def _run(self, *words: str) -> str:
        done = self._ask(*words)
        if done.code:
            raise self._failure(done)
        return done.out

    def _ask(self, *words: str) -> Outcome:
        where = ["--kubeconfig", str(self.kubeconfig), "--context", self.context]
        namespace = ["--namespace", self.namespace] if self.namespace else []
        command = [str(self.program), *where, *namespace, *words]
        try:
            return self.shell.run(command, limit=_PATIENCE, check=False)
        except CommandFailed as error:
            raise self._unreachable(error.message.splitlines()[-1]) from None

    def _failure(self, done: Outcome) -> RaysideError:
        said = done.err.strip().splitlines() or [f"it ended with exit code {done.code}"]
        # kubectl may have logged its attempts before the last line.
        why = line(said[-1])
        if "(Forbidden)" in why:
            return Forbidden(
                f"permission denied by Kubernetes: {why}",
                hint=f"ask for that right in the namespace {self.namespace}",
            )
        return self._unreachable(why)

    def _unreachable(self, why: str) -> ClusterUnreachable:
        return ClusterUnreachable(
            f"kubectl gets no answer in {line(self.context)}: {why}",
            hint=f"try it by hand: kubectl --context {shlex.quote(self.context)} get pods",
        )
