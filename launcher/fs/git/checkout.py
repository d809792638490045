"""What of a writable git checkout runs on the bench later, and so is read-only in a card.

git runs hooks and reads commands out of config files (githooks(5), git-config(1)), and a `.git` that is a file says
where both are. Those of a write root are found here, of its submodules and linked worktrees, and of the checkout that
it lies in; a bare repository's too.

The rule: an earlier worker may have written all of this but what was closed to it. So in a write root no symbolic link
is followed, little is read, what cannot be looked at to the end is refused, and so is what cannot be kept from the
worker.
"""

import os
import stat

from launcher.fs.git import files
from launcher.fs.git.config import Configs
from launcher.fs.git.files import TooMuch
from launcher.fs.paths import below, config_home
from oci.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_CLOSED = ("hooks", "config", "config.worktree", "commondir")
# A link in place of one of these cannot be kept: a mount lies on what it points to, and the link can be replaced.
_NO_LINKS = (*_CLOSED, "modules", "worktrees")
# What makes a directory one that git takes for a repository (gitrepository-layout(5)).
_NEEDED = ("HEAD", "objects", "refs")
_TODO = "rebase-merge/git-rebase-todo"
# Each git directory is a handful of mounts, and a worker can make as many as it likes; folders too, deep and many.
_MOST, _MOST_FOLDERS, _MOST_NAMES, _DEPTH = 200, 2000, 10000, 32
_MOST_CONFIGS, _INCLUDED = 1000, 10  # git itself gives up at the tenth include in an include
_LINK, _DIRECTORY, _FILE = "link", "directory", "file"
_KINDS = {stat.S_IFLNK: _LINK, stat.S_IFDIR: _DIRECTORY, stat.S_IFREG: _FILE}
_HINT = "mend it on the bench, or pass --git-writable"


class Closed:
    """What the write roots have to close: `paths` as they are, `refusals` for what cannot be.

    `directories` is for the aftermath: each git directory in a write root, whether git takes it for a repository, when
    the list of a rebase that it is in changed (ns, 0 without one), and the linked worktree that it is of, or "".
    """

    __slots__ = ("directories", "paths", "refusals")

    def __init__(self) -> None:
        self.directories: list[tuple[str, bool, int, str]] = []
        self.paths: list[str] = []
        self.refusals: list[Refusal] = []


def closed(roots: list[str], *, make: bool) -> Closed:
    """Return what to make read-only in writable roots; nothing where there is no checkout.

    With `make`, hooks and config that are not there are made, empty: else the worker could make its own.
    """
    search = _Search(roots, make=make)
    for root in roots:
        try:
            search.root(root)
        except TooMuch as much:
            search.refuse(much.path or root, much.why)
            return search.found
    return search.found


def whole(path: str) -> bool:
    """Return whether git would take a directory for a repository."""
    return all(os.path.lexists(f"{path}/{name}") for name in _NEEDED)


def rebasing(path: str) -> int:
    """Return when the list of the rebase that a git directory is in last changed (inode, in ns); 0 without one."""
    try:
        return os.lstat(f"{path}/{_TODO}").st_ctime_ns
    except OSError:
        return 0


def linked_tree(path: str) -> str:
    """Return the linked worktree that a git directory says to be of; raises TooMuch."""
    led = files.led(f"{path}/gitdir")
    return os.path.dirname(os.path.normpath(led)) if led else ""


class _Search:
    """One look at all write roots: each git directory once, whichever way leads to it."""

    def __init__(self, roots: list[str], *, make: bool) -> None:
        self.found = Closed()
        self._roots = roots
        self._make = make
        self._seen: set[str] = set()
        self._trees: set[str] = set()
        # What counts in every repository (git-config(1), "FILES").
        self._of_user = ("/etc/gitconfig", f"{config_home()}/git/config", os.path.expanduser("~/.gitconfig"))
        self._waiting: list[tuple[str, str]] = []
        self._folders = 0
        self._configs = Configs(self._inside)
        self._hooks: dict[str, list[str]] = {}

    def root(self, root: str) -> None:
        """Look at a write root, and at checkouts around it: what those run may lie in the root. Raises TooMuch.

        All that is found leads on to more, until nothing is left to look at.
        """
        tree = root
        while tree != "/":
            self._tree(tree)
            tree = os.path.dirname(tree)
        if whole(root):
            self._waiting.append((root, root))
        while self._waiting:
            path, tree = self._waiting.pop()
            if path not in self._seen:
                self._seen.add(path)
                if len(self._seen) > _MOST:
                    self.found.paths.clear()
                    raise TooMuch("", f"holds more than {_MOST} git directories")
                self._directory(path, tree)

    def refuse(self, path: str, why: str) -> None:
        """Add a refusal."""
        text = f"{path} {why}: the worker could choose what git runs on the bench"
        self.found.refusals.append(Refusal("git-unprotectable", text, _HINT))

    def _inside(self, path: str) -> bool:
        return any(path == root or below(path, root) for root in self._roots)

    def _tree(self, tree: str) -> None:
        """Close a working tree's `.git`, and look at where it leads; a tree behind a link is none to git either."""
        if tree in self._trees:
            return
        self._trees.add(tree)
        dot = f"{tree}/.git"
        kind = _kind(dot)
        inside = self._inside(dot)
        if kind is None or (inside and os.path.realpath(tree) != tree):
            return
        if kind == _LINK and inside:
            self.refuse(dot, "is a symbolic link")
        elif kind == _FILE:
            self.found.paths += [dot] if inside else []
            self._lead(dot, tree)
        else:
            # One that git would not take yet counts too: the worker could add what it lacks.
            self._waiting.append((dot if inside else os.path.realpath(dot), tree))

    def _lead(self, dot: str, tree: str) -> None:
        """Look at the git directory that a `.git` file names."""
        named = files.led(dot, "gitdir: ")
        if not named:
            return
        place, real = os.path.normpath(named), os.path.realpath(named)
        inside = self._inside(place) or self._inside(real)
        if inside and place != real:
            self.refuse(dot, "leads through a symbolic link")
        elif inside and not os.path.isdir(real):
            self.refuse(dot, f"leads to {place}, which is not there")
        else:
            self._waiting.append((real, tree))

    def _directory(self, path: str, tree: str) -> None:
        """Close one git directory and what its config names, and look at those that it leads to; `tree` is its own."""
        there = _list(path)
        common = self._common(path, there)
        configs = [f"{common or path}/config", f"{path}/config.worktree"]
        tree = tree if common else self._own_tree(path) or tree
        if self._inside(path):
            own = bool(self._configs.values(configs[0], "extensions", "worktreeconfig"))
            if self._make:
                wanted = [*([] if common else ["hooks", "config"]), *(["config.worktree"] if own else [])]
                _make(path, there, names=wanted)
            self._close(path, there)
            changed = rebasing(path) if "rebase-merge" in there else 0
            is_whole = there.keys() >= set(_NEEDED)
            self.found.directories.append((path, is_whole, changed, linked_tree(path) if common else ""))
        for config in (*self._of_user, *configs):
            for hooks in self._hooks_of(config):
                self._name_hooks(hooks, config, tree)
        if common and self._inside(common):
            self._waiting.append((common, os.path.dirname(common)))
        self._inner(path, there)
        for name in there:
            if name == "index" or name.startswith("sharedindex."):
                links = (os.path.normpath(f"{tree}/{link}") for link in files.gitlinks(f"{path}/{name}"))
                for one in links:
                    if below(one, tree):
                        self._tree(one)

    def _own_tree(self, path: str) -> str:
        """Return where a git directory's config says that its working tree is; "" when it does not."""
        configs = (f"{path}/config", f"{path}/config.worktree")
        named = [value for one in configs for value in self._configs.values(one, "core", "worktree") if value]
        return os.path.normpath(os.path.join(path, named[-1])) if named else ""

    def _common(self, path: str, there: dict[str, str]) -> str:
        """Return the git directory that one of a linked worktree shares hooks and config with, or "" for any other."""
        if "commondir" not in there:
            return ""
        common = os.path.realpath(files.led(f"{path}/commondir") or path)
        above = os.path.dirname(path)
        if os.path.basename(above) == "worktrees" and common == os.path.dirname(above):
            return common
        if self._inside(path):
            self.refuse(f"{path}/commondir", "sends git to other hooks and another config")
            return ""
        return common

    def _close(self, path: str, there: dict[str, str]) -> None:
        for name in _NO_LINKS:
            if there.get(name) == _LINK:
                self.refuse(f"{path}/{name}", "is a symbolic link")
            elif name in there and name in _CLOSED:
                self.found.paths.append(f"{path}/{name}")

    def _inner(self, path: str, there: dict[str, str]) -> None:
        """Look at the git directories of linked worktrees, and where they may be written, those of submodules."""
        if there.get("worktrees") == _DIRECTORY:
            for name, kind in _list(f"{path}/worktrees").items():
                inner = f"{path}/worktrees/{name}"
                if kind == _DIRECTORY and os.path.lexists(f"{inner}/HEAD"):
                    tree = linked_tree(inner)
                    self._waiting.append((inner, tree or inner))
                    if tree:
                        self._tree(tree)
        if there.get("modules") == _DIRECTORY and self._inside(path):
            for inner in self._modules(path):
                self._waiting.append((inner, inner))
                own = self._own_tree(inner)
                if own:
                    self._tree(own)

    def _modules(self, path: str) -> "Iterator[str]":
        """Yield the git directories of submodules: all that are there, and those that the config has the names of.

        A worker could make a folder above one look like a git directory, where the search goes no deeper; the config
        is closed to it.
        """
        folders = [(f"{path}/modules", 0)]
        while folders:
            place, depth = folders.pop()
            self._folders += 1
            if depth > _DEPTH or self._folders > _MOST_FOLDERS:
                raise TooMuch(place, "is too deep, or one of too many, to look for submodules in")
            for name, kind in _list(place).items():
                if kind == _DIRECTORY and os.path.lexists(f"{place}/{name}/HEAD"):
                    yield f"{place}/{name}"
                elif kind == _DIRECTORY:
                    folders.append((f"{place}/{name}", depth + 1))
        for section, name, _, _ in self._configs.settings(f"{path}/config"):
            inner = os.path.normpath(f"{path}/modules/{name}")
            if section == "submodule" and below(inner, f"{path}/modules") and os.path.lexists(f"{inner}/HEAD"):
                yield inner

    def _hooks_of(self, config: str, depth: int = 0) -> list[str]:
        """Return every `core.hooksPath` of a config and of what it includes, conditions or not, which is closed too."""
        if config in self._hooks:
            return self._hooks[config]
        if depth > _INCLUDED or len(self._hooks) > _MOST_CONFIGS:
            raise TooMuch(config, "is included too deep, or one of too many")
        found = self._hooks[config] = []
        for section, _, key, value in self._configs.settings(config):
            if (section, key) == ("core", "hookspath") and value:
                found.append(value)
            elif section in {"include", "includeif"} and key == "path" and value:
                place = os.path.normpath(os.path.join(os.path.dirname(config), os.path.expanduser(value)))
                if self._fix(place, config):
                    found += self._hooks_of(place, depth + 1)
        return found

    def _name_hooks(self, hooks: str, config: str, tree: str) -> None:
        """Close a folder of hooks that a config names; of husky's `.husky/_` the one above, which has what it runs."""
        place = os.path.normpath(os.path.join(tree, os.path.expanduser(hooks)))
        above = os.path.dirname(place)
        if os.path.basename(place) == "_" and self._inside(above) and above not in {tree, *self._roots}:
            place = above
        if self._inside(place) and not os.path.lexists(place) and not self._made(place, tree):
            return
        self._fix(place, config)

    def _made(self, place: str, tree: str) -> bool:
        """Make a folder of hooks, empty, as git looks for it in a tree; return whether there is now something to close.

        A worktree that is gone needs none.
        """
        wanted = self._make and os.path.isdir(tree)
        if wanted and os.path.realpath(place) == place:
            try:
                os.makedirs(place)
            except OSError:
                return True  # and what is not there is refused
        return wanted

    def _fix(self, place: str, config: str) -> bool:
        """Close what a config names where that is in a write root; return whether it is there, and may be read."""
        real = os.path.realpath(place)
        if not self._inside(place) and not self._inside(real):
            return True
        if real in self._roots or (self._inside(place) and (real != place or not os.path.exists(place))):
            self.refuse(place, f"is named by {config}, and is missing, leads elsewhere or is a write root itself")
            return False
        self.found.paths.append(real)
        return True


def _make(path: str, there: dict[str, str], *, names: list[str]) -> None:
    """Make what git would look for and not find; harmless where that is not possible, as then no worker can either."""
    try:
        for name in names:
            if name in there:
                continue
            if name == "hooks":
                os.mkdir(f"{path}/{name}")
            else:
                os.close(os.open(f"{path}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
            there[name] = _FILE
    except OSError:
        return


def _list(path: str) -> dict[str, str]:
    """Return what is in a directory, each with its kind; nothing when it cannot be listed; raises TooMuch."""
    found: dict[str, str] = {}
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                link = entry.is_symlink()
                found[entry.name] = _LINK if link else _DIRECTORY if entry.is_dir(follow_symlinks=False) else _FILE
                if len(found) > _MOST_NAMES:
                    raise TooMuch(path, f"holds more than {_MOST_NAMES} names")
    except OSError:
        return {}
    return found


def _kind(path: str) -> str | None:
    try:
        return _KINDS.get(stat.S_IFMT(os.lstat(path).st_mode))
    except OSError:
        return None
