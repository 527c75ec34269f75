"""Private folders of this user: their files can be trusted, and run."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from rayside.errors import UnsafeFolder

# Limit: symlinks in a path, as in Linux (path_resolution(7)).
_MOST_LINKS = 40


def require_own(folder: Path) -> Path:
    """Checks that `folder` is private to this user, or does not exist yet, and returns it. Only reads.

    No other user may own it, have a permission on it, or be able to replace it, and it may not be a
    symlink: each folder on its path belongs to root or this user, and is writable by nobody else unless
    it is sticky, as /tmp is (sshd requires the same of a home folder, StrictModes in sshd_config(5)).
    Then this user made everything below it, links included, so opening a file in it needs no O_NOFOLLOW,
    and nothing can change between this check and the use.

    Raises UnsafeFolder.
    """
    try:
        _require_way(folder, _MOST_LINKS)
        status = folder.lstat()
    except FileNotFoundError:
        return folder
    except OSError as error:
        raise UnsafeFolder(
            f"{folder} can't be looked at: {error.strerror}", hint="set state_folder to a folder of yours"
        ) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        hint = f"look who made it (ls -ld {folder}) and remove it, or set state_folder"
        if status.st_uid == 0 and (folder / "node").is_dir():
            # Docker recreates a missing mount source when it starts an existing node again.
            hint = f"sudo rm -r {folder}, which Docker made when it was gone, then ./invokew up"
        raise UnsafeFolder(f"{folder} is not a folder that only you can read", hint=hint)
    return folder


def make_own(folder: Path) -> None:
    """Makes `folder` and its missing parents, private to this user. Raises UnsafeFolder."""
    try:
        for parent in reversed(folder.parents):
            if not parent.exists():
                # `parents=True` would make them with the umask's permissions.
                parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UnsafeFolder(
            f"{folder} can't be made: {error.strerror}", hint="set state_folder to a folder of yours"
        ) from None
    require_own(folder)


def _require_way(path: Path, links: int) -> None:
    """Raises UnsafeFolder if another user can change the content of a folder on the path to `path`.

    Raises FileNotFoundError if a folder on the path does not exist.
    """
    trusted = {0, os.getuid()} | _unmapped()
    for folder in reversed(path.parents):
        status = folder.lstat()
        if stat.S_ISLNK(status.st_mode) and status.st_uid in trusted and links:
            _require_way(folder.parent / folder.readlink() / "in", links - 1)
        elif not stat.S_ISDIR(status.st_mode) or status.st_uid not in trusted or _open_to_others(status):
            raise UnsafeFolder(
                f"{folder}, on the way to {path}, may be changed by others",
                hint=f"look who may (ls -ld {folder}), or set state_folder to a path of yours alone",
            )


def _open_to_others(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_ISVTX:
        return False
    writers = status.st_mode & 0o022
    return bool(writers & 0o002 or (writers and not _private_group(status.st_gid)))


def _private_group(gid: int) -> bool:
    """Returns whether it is the user's own group of the same name, without other members (pam_umask(8))."""
    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and not set(group.gr_mem) - {user.pw_name}


def _unmapped() -> set[int]:
    """Returns the uid of the host's root if a user namespace does not map it, as in toolbox and distrobox."""
    try:
        mapped = Path("/proc/self/uid_map").read_text().split()
        if mapped[:3] == ["0", "0", "4294967295"]:
            return set()
        return {int(Path("/proc/sys/kernel/overflowuid").read_text())}
    except (OSError, ValueError):
        return set()
