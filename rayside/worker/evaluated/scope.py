"""The name `ray` in conditions and messages: which task, actor, rank and node runs the code.

`ray.task == "train"` is true in that task alone. In an expression with the name `ray`, a call of `ray_here`
replaces the name; other expressions are compiled unchanged. Attributes that `Scope` lacks are looked up in
the module `ray`, so that `ray.get_runtime_context()` works as in the program. The program's own variable
`ray`, if it is not that module, takes precedence.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

# Replacement of `ray` in an expression. The relay uses it, too, so it has the name of this module in
# debuggees.
CALL = "__import__('importlib').import_module('rayside.worker.evaluated.scope').ray_here()"
_RAY = "ray"
_LONGEST = 4_000  # characters of a task's name
# Nested scopes in an expression, such as a lambda, run in separate frames.
_WITHIN = frozenset({"<genexpr>", "<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>"})


class Scope:
    """Task, actor, rank and node of the current thread. Stateless and read-only.

    Attributes that do not apply are empty, such as the actor in a task; a missing rank is None.
    """

    __slots__ = ()

    @property
    def task(self) -> str:
        """Returns the task's name, `driver` in a driver."""
        worker = _worker()
        if worker is not None and worker.mode == sys.modules["ray._private.worker"].SCRIPT_MODE:
            return "driver"
        return task()

    @property
    def task_id(self) -> str:
        return _hex("get_task_id")

    @property
    def attempt(self) -> int:
        """Returns the number of the task's earlier attempts: 0 in the first one."""
        with suppress(Exception):
            return int(_worker().core_worker.get_current_task_attempt_number())
        return 0

    @property
    def actor(self) -> str:
        """Returns the name of the actor's class."""
        with suppress(Exception):
            worker = _worker()
            return type(worker.actors[worker.actor_id]).__name__
        return ""

    @property
    def actor_id(self) -> str:
        with suppress(Exception):
            identity = _worker().actor_id
            return "" if identity.is_nil() else str(identity.hex())
        return ""

    @property
    def actor_name(self) -> str:
        """Returns the actor's name for `ray.get_actor`, if any."""
        return str(_worker().actor_name or "") if self.actor_id else ""

    @property
    def rank(self) -> int | None:
        """Returns Ray Train's world rank, else the value of the variable RANK, which torchrun sets."""
        with suppress(Exception):
            context = sys.modules["ray.train.v2._internal.execution.context"]
            return int(context.get_train_context().get_world_rank())
        with suppress(Exception):
            session = sys.modules["ray.train._internal.session"]
            return int(session.get_session().world_rank)
        with suppress(Exception):
            return int(os.environ["RANK"])
        return None

    @property
    def node(self) -> str:
        """Returns the node's IP address."""
        with suppress(Exception):
            return str(_worker().node_ip_address)
        return ""

    @property
    def node_id(self) -> str:
        return _hex("get_node_id")

    @property
    def job(self) -> str:
        """Returns Ray's id of the job."""
        return _hex("get_job_id")

    @property
    def submission(self) -> str:
        """Returns the job's submission id."""
        with suppress(Exception):
            return str(_worker().core_worker.get_job_config().metadata["job_submission_id"])
        return ""

    @property
    def worker_id(self) -> str:
        return _hex("get_worker_id")

    @property
    def pid(self) -> int:
        return os.getpid()

    def __getattr__(self, name: str) -> Any:
        module = sys.modules.get(_RAY)
        if module is None:
            raise AttributeError(f"there is no module `ray` here; of ours, `ray` has {', '.join(NAMES)}")
        return getattr(module, name)

    def __repr__(self) -> str:
        return f"<ray: task {self.task!r}, pid {self.pid}>"


NAMES = tuple(name for name, member in vars(Scope).items() if isinstance(member, property))
_scope = Scope()
# Attributes that are equal in all threads of a process, and known only there.
OF_PROCESS = ("actor", "actor_id", "actor_name", "rank", "node_id")


def compiled(expression: str, file: str) -> CodeType:
    """Returns the code of a user's expression, with `ray` replaced as described above."""
    if _RAY not in expression:
        return compile(expression, file, "eval")
    tree: ast.Expression = compile(expression, file, "eval", ast.PyCF_ONLY_AST)  # type: ignore[assignment]
    return compile(with_scope(tree) if is_named(tree) else tree, file, "eval")


def is_named(tree: ast.AST) -> bool:
    """Returns whether an expression uses the name `ray`, and does not bind it itself."""
    names = [node.ctx for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == _RAY]
    is_argument = any(isinstance(node, ast.arg) and node.arg == _RAY for node in ast.walk(tree))
    return bool(names) and not is_argument and all(isinstance(each, ast.Load) for each in names)


def with_scope(tree: ast.Expression) -> ast.Expression:
    """Replaces each `ray` by CALL, except in attributes of the module `ray.actor`; returns the tree.

    The tree is changed in place.
    """
    _Calls().visit(tree)
    return ast.fix_missing_locations(tree)


class _Calls(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        # `ray.actor.ActorHandle` is the module's; `ray.actor.startswith`, a method of str, is Scope's.
        if not hasattr(str, node.attr):
            match node.value:
                case ast.Attribute(value=ast.Name(id="ray"), attr="actor"):
                    return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.parse(CALL, mode="eval").body, node) if node.id == _RAY else node


def ray_here() -> Any:
    """Returns the value of `ray` in the expression that calls this."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name in _WITHIN:
        frame = frame.f_back
    names = [frame.f_locals, frame.f_globals] if frame is not None else []
    own = next((each[_RAY] for each in names if _RAY in each), None)
    return _scope if own is None or own is sys.modules.get(_RAY) else own


def of_process() -> str:
    """Returns OF_PROCESS, by name, in JSON."""
    return json.dumps({name: getattr(_scope, name) for name in OF_PROCESS})


def is_scope() -> bool:
    """Returns whether `ray` is a `Scope` in an expression that is evaluated where this is called."""
    frame = sys._getframe(1)
    own = frame.f_locals.get(_RAY, frame.f_globals.get(_RAY))
    return own is None or own is sys.modules.get(_RAY)


# --- the task of a thread -----------------------------------------------------------------


def context() -> Any:
    """Returns Ray's runtime context, with the task of each thread; None without Ray."""
    try:
        return sys.modules["ray"].get_runtime_context()
    except Exception:
        return None


def task(known: Any = None) -> str:
    """Returns this thread's task, or the trial or rank in a thread of Ray's libraries; empty for others.

    `known` is Ray's runtime context, if the caller has it.
    """
    try:
        worker = sys.modules.get("ray._private.worker")
        # No request in a driver: Ray would write an error line into the job's output.
        if worker is not None and worker.global_worker.mode == worker.SCRIPT_MODE:
            return ""
        return str((known or context()).get_task_name() or _trial() or _rank())[:_LONGEST]
    except Exception:
        return ""


def task_id() -> Any:
    """Returns an id that differs in each task of a thread; None without Ray."""
    try:
        return sys.modules["ray._private.worker"].global_worker.core_worker.get_current_task_id()
    except Exception:
        return None


def _trial() -> str:
    """Returns the trial of Ray Tune, which runs functions in a separate thread; empty without one."""
    module = sys.modules.get("ray.train._internal.session")
    return str(getattr(module and module.get_session(), "trial_name", "") or "")


def _rank() -> str:
    """Returns experiment and rank of Ray Train, which trains in a separate thread; empty without one."""
    module = sys.modules.get("ray.train.v2._internal.execution.context")
    if module is None:
        return ""
    train = module.get_train_context()
    return f"{train.get_experiment_name() or 'train'} rank {train.get_world_rank()}"


def _worker() -> Any:
    """Returns Ray's worker; None without Ray."""
    return getattr(sys.modules.get("ray._private.worker"), "global_worker", None)


def _hex(method: str) -> str:
    """Returns the result of a method of Ray's runtime context, an id in hex; empty if unavailable."""
    with suppress(Exception):
        return str(getattr(context(), method)() or "")
    return ""
