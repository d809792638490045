"""Flags are judged before any packet, and all that is wrong is told at once."""

import os
import shlex
from pathlib import Path

import pytest

from launcher import launch, network
from launcher.egress.policy import BASE_NAMES
from launcher.launch import Launch
from launcher.options import USAGE, help_text, read
from launcher.request import Request
from oci.refusal import Refused


@pytest.fixture
def egress(tmp_path: Path) -> str:
    """Return a good policy file."""
    path = tmp_path / "policy/egress.txt"
    path.parent.mkdir()
    path.write_text("\n".join((*BASE_NAMES, "model.example.org")) + "\n")
    return str(path)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test a HOME of its own, beside what it writes, and a caller's environment that is known."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(network, "_default_route4", lambda: True)
    monkeypatch.setattr(network, "_default_route6", lambda: False)
    for name in (
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_CACHE_HOME",
        "CONTAINER_HOST",
        "CONTAINER_CONNECTION",
        "TERM",
    ):
        monkeypatch.delenv(name, raising=False)


def asked(words: list[str]) -> Request:
    """Return what a command line asks for."""
    return read(words)[0]


def judge(*words: str) -> tuple[Launch, list[str]]:
    """Return what a command line is judged to be, and the refusals' reasons."""
    judged, refusals = launch.judge(asked([*words, "--resolver", "192.0.2.53", "--", "true"]))
    return judged, [refusal.reason for refusal in refusals]


def test_plain(egress: str) -> None:
    """The smallest card gets the base names, an isolated HOME, and a run id that nft takes."""
    judged, reasons = judge("--egress", egress)
    assert reasons == []
    assert judged.names == BASE_NAMES
    assert dict(judged.env) == {"HOME": "/card", "TMPDIR": "/tmp"}
    assert judged.run.isalnum()
    assert judged.command == ("true",)


def test_everything_wrong_at_once(tmp_path: Path, egress: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run tells every independent thing to mend."""
    Path(egress).write_text("github.com\nbad_name.org\napi.github.com\nobjects.githubusercontent.com\n")
    monkeypatch.setenv("CONTAINER_HOST", "ssh://elsewhere")
    _, reasons = judge(
        *("--egress", egress, "--run", "No-Good", "--image", "alpine", "--model-host", "nobody.example.org"),
        *("--write", f"{tmp_path}/none", "--podman-arg=--privileged=true", "--env", "=x", "--resolve-timeout", "0"),
    )
    assert sorted(reasons) == sorted(
        [
            *("bad-run-id", "bad-image", "unknown-name", "policy-line", "path-missing", "podman-arg", "bad-env"),
            *("bad-timeout", "remote-podman"),
        ]
    )


PATHS = ("read", "read-noexec", "write", "protect", "secret", "cwd", "keep", "egress", "env-file")


@pytest.mark.parametrize("flag", PATHS)
def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    """Whatever starts from it is refused, and no traceback; what is absolute is judged as ever."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(Refused) as told:
        judge(f"--{flag}", "rel")
    (refusal,) = told.value.refusals
    assert refusal.text == f"--{flag} 'rel' is relative, and the working directory is gone"
    judge(f"--{flag}", f"{tmp_path}/none")


@pytest.mark.parametrize("run", ["", "_a", "A", "a-b", "a" * 49, "a\n", "é"])
def test_bad_run_id(run: str, egress: str) -> None:
    """A run id becomes an nft identifier: anything else is refused."""
    assert judge("--egress", egress, f"--run={run}")[1] == ["bad-run-id"]


def test_run_id_at_the_limit(egress: str) -> None:
    """48 characters are allowed."""
    assert judge("--egress", egress, "--run", "a" * 48)[0].run == "a" * 48


@pytest.mark.parametrize("image", ["alpine", "library/alpine", "-v/x:/y", "localhost/", "docker.io/a b", ""])
def test_short_image(image: str, egress: str) -> None:
    """A short or odd image reference is refused."""
    assert judge("--egress", egress, f"--image={image}")[1] == ["bad-image"]


@pytest.mark.parametrize(
    "image", ["docker.io/library/alpine:3", "localhost/x", "r.example.org:5000/a/b@sha256:" + "0" * 64]
)
def test_full_image(image: str, egress: str) -> None:
    """A full reference passes."""
    assert judge("--egress", egress, f"--image={image}")[1] == []


OPENERS = [
    *(
        "--privileged=true",
        "--cap-add=ALL",
        "--network=host",
        "--pid=host",
        "--ipc=host",
        "--uts=host",
        "--userns=host",
    ),
    *("--security-opt=seccomp=unconfined", "--device=/dev/kvm", "--volume=/:/host", "-v=/:/host", "--mount=x"),
    *("--annotation=org.card-run.run=x", "--hooks-dir=/x", "--env-host=true", "--entrypoint=sh", "--runtime=x", "-d"),
    *("--group-add=keep-groups", "--label", "--conmon-pidfile=/x", "--rootfs=/x"),
]


@pytest.mark.parametrize("argument", OPENERS)
def test_podman_arguments_that_open_a_wall(argument: str) -> None:
    """Whatever could open a wall is refused by name; so is a flag whose value would be the next word."""
    assert [refusal.reason for refusal in launch.podman_arguments((argument,))] == ["podman-arg"]


def test_harmless_podman_arguments() -> None:
    """The control: a label passes."""
    assert launch.podman_arguments(("--label=a=b", "--cpu-shares=1")) == []


def test_policy_file_in_a_writable_root(egress: str) -> None:
    """A worker may not be able to rewrite the policy of its next run."""
    folder = os.path.dirname(egress)
    assert judge("--egress", egress, "--write", folder)[1] == ["policy-writable"]
    assert judge("--egress", egress, "--read", folder)[1] == []


def test_a_bench_without_a_route(egress: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that leads nowhere is refused: a wall there could not be felt."""
    monkeypatch.setattr(network, "_default_route4", lambda: False)
    assert judge("--egress", egress)[1] == ["no-route"]
    assert judge("--net", "none")[1] == []


def test_a_v6_only_bench_has_v6_dns(egress: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an IPv4 route the card's DNS address is one that it can reach."""
    assert ":" not in (judge("--egress", egress)[0].dns or "")
    monkeypatch.setattr(network, "_default_route4", lambda: False)
    monkeypatch.setattr(network, "_default_route6", lambda: True)
    judged, reasons = judge("--egress", egress)
    assert reasons == []
    assert ":" in (judged.dns or "")


def test_no_network_takes_no_names(egress: str) -> None:
    """With `--net none` a name is a contradiction, and nothing is resolved."""
    judged, reasons = judge("--egress", egress, "--net", "none", "--model-host", "model.example.org")
    assert reasons == ["no-network"]
    assert judged.names == ()
    assert judge("--net", "none")[1] == []


def test_environment(egress: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing crosses unasked; a name passes the caller's value, NAME=VALUE its own, an unset name a note."""
    monkeypatch.setenv("SECRET", "s3cret")
    monkeypatch.setenv("TOKEN", "t0ken")
    judged, reasons = judge("--egress", egress, "--env", "TOKEN", "--env", "A=b=c", "--env", "UNSET")
    values = dict(judged.env)
    assert reasons == []
    assert (values["TOKEN"], values["A"], "SECRET" in values, "UNSET" in values) == ("t0ken", "b=c", False, False)
    assert any("UNSET" in note for note in judged.notes)


@pytest.mark.parametrize("words", [["--nonsense"], ["stray"], ["--net", "host"], ["--wri", "/x"], ["--run"]])
def test_bad_command_line(words: list[str]) -> None:
    """An unknown or shortened option, a stray word and a missing value are refusals, not tracebacks or exit 2."""
    with pytest.raises(Refused) as caught:
        asked([*words, "--", "true"])
    assert {refusal.reason for refusal in caught.value.refusals} == {"bad-command-line"}


MISTAKES = {
    "--wirte . -- true": ("there is no option --wirte", "did you mean --write?"),
    "--tim 5 -- true": ("there is no option --tim", "did you mean --timeout?"),
    "--quite -- true": ("there is no option --quite", "did you mean --quiet?"),
    "--tim=5 -- true": ("there is no option --tim", "did you mean --timeout?"),
    "--xyzzy 5 -- true": ("there is no option --xyzzy", USAGE),
    "ls -la": ("'ls' is no option, and the command stands after --", "card-run [options] -- ls -la"),
    "-q sh -c 'a b'": ("'sh' is no option, and the command stands after --", "card-run [options] -- sh -c 'a b'"),
    "stray --read /srv -- true": ("'stray' stands before --: the command comes after it", USAGE),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_one_mistake_is_one_refusal(words: str) -> None:
    """What is nearly right is told with what was meant; its value, and a command's own options, are no mistakes."""
    with pytest.raises(Refused) as caught:
        asked(shlex.split(words))
    (refusal,) = caught.value.refusals
    assert (refusal.text, refusal.hint) == MISTAKES[words]


def test_a_flag_that_is_misspelt_takes_nothing_with_it() -> None:
    """What stands behind it is no value of it."""
    with pytest.raises(Refused) as caught:
        asked(["--quite", "ls"])
    assert [refusal.hint for refusal in caught.value.refusals] == [
        "did you mean --quiet?",
        "card-run [options] -- ls",
    ]


def test_every_mistake_of_a_command_line_at_once() -> None:
    """A command line is read to its end before it is refused."""
    with pytest.raises(Refused) as caught:
        asked(["--nonsense", "-x", "--net", "host", "--plan=yes", "--run=a", "--run=b", "--json"])
    assert len(caught.value.refusals) == 6


def test_help_names_every_option() -> None:
    """The help is made of the same table as the reading."""
    text = help_text()
    assert all(f"--{name}" in text for name in ("image", "write", "podman-arg", "resolve-timeout", "plan"))


def test_the_command_is_the_workers_to_the_letter() -> None:
    """What follows the first `--` is never read as ours."""
    assert asked(["-q", "--", "sh", "--", "--plan", "-t"]).command == ("sh", "--", "--plan", "-t")
    assert not asked(["--", "x", "--plan"]).plan


def test_no_command(egress: str) -> None:
    """A card without a command is refused."""
    _, refusals = launch.judge(asked(["--egress", egress, "--resolver", "192.0.2.1", "--"]))
    assert [refusal.reason for refusal in refusals] == ["no-command"]


def test_a_policy_file_behind_a_workers_link_is_refused(egress: str, tmp_path: Path) -> None:
    """A link in a write root is the worker's to replace, wherever it leads now; a link outside is not."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/egress.txt").symlink_to(egress)
    (tmp_path / "egress.txt").symlink_to(egress)
    work = ("--write", f"{tmp_path}/work")
    assert judge("--egress", f"{tmp_path}/work/egress.txt", *work)[1] == ["policy-writable"]
    assert judge("--egress", f"{tmp_path}/egress.txt", *work)[1] == []


def test_a_deadline_that_is_no_number_of_seconds_is_refused(egress: str) -> None:
    """NaN compares with nothing, and would be no deadline at all."""
    assert judge("--egress", egress, "--resolve-timeout", "nan")[1] == ["bad-timeout"]


def test_what_runs_on_the_bench_is_not_a_workspace(egress: str, tmp_path: Path) -> None:
    """The configuration and state of podman and card-run are no write roots, nor anything in them."""
    for name in (".config/containers/containers.conf.d", ".config/card-run", ".local/share/containers/storage"):
        (tmp_path / "home" / name).mkdir(parents=True)
        assert judge("--egress", egress, "--write", f"{tmp_path}/home/{name}")[1] == ["path-too-wide"]
    (tmp_path / "home/work").mkdir()
    assert judge("--egress", egress, "--write", f"{tmp_path}/home/work")[1] == []


def test_a_detached_card_has_no_caller_to_end_with(egress: str) -> None:
    """`--detach` parts a card from its caller; with `--lifeline` it would end with the same. Control: each alone."""
    request = asked(["--egress", egress, "--net", "none", "--", "true"])
    both = launch.judge(request.replace(detach=True, lifeline="9"))[1]
    alone = [launch.judge(request.replace(**one))[1] for one in ({"detach": True}, {"lifeline": "9"})]
    assert [refusal.reason for refusal in both] == ["detach-contradiction"]
    assert alone == [[], []]
