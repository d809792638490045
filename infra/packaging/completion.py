"""Shell completion for both commands, made from the options as they are declared.

card-run's are written out, since asking a program at each key press is slow; card's come from typer, which asks it.
"""

import shlex

from typer._completion_shared import get_completion_script

from launcher.options import FLAG, OPTIONS, Option

_PATHS = ("PATH", "FILE", "DIR")


def scripts() -> dict[str, str]:
    """Return each completion file by its place below the prefix."""
    places = {
        "bash": "share/bash-completion/completions/{}",
        "zsh": "share/zsh/site-functions/_{}",
        "fish": "share/fish/vendor_completions.d/{}.fish",
    }
    own = {"bash": _bash(), "zsh": _zsh(), "fish": _fish()}
    found = {place.format("card-run"): own[shell] for shell, place in places.items()}
    for shell, place in places.items():
        found[place.format("card")] = (
            get_completion_script(prog_name="card", complete_var="_CARD_COMPLETE", shell=shell) + "\n"
        )
    return found


def _takes_path(option: Option) -> bool:
    return any(word in _PATHS for word in option.metavar.replace("|", " ").split())


def _bash() -> str:
    cases: list[str] = []
    for option in OPTIONS:
        if option.choices:
            words = shlex.quote(" ".join(option.choices))
            cases.append(f'        --{option.name}) COMPREPLY=($(compgen -W {words} -- "$word")); return ;;')
    paths = "|".join(f"--{option.name}" for option in OPTIONS if _takes_path(option))
    others = "|".join(f"--{o.name}" for o in OPTIONS if o.kind != FLAG and not o.choices and not _takes_path(o))
    names = " ".join(f"--{option.name}" for option in OPTIONS)
    body = "\n".join(cases)
    return f"""\
# bash completion for card-run(1)
_card_run() {{
    local word=$2 before=$3 i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${{COMP_WORDS[i]}} == -- ]] && {{ compopt -o default; return; }}
    done
    case $before in
{body}
        {paths}) compopt -o default; return ;;
        {others}) return ;;
    esac
    COMPREPLY=($(compgen -W "{names} --" -- "$word"))
}}
complete -F _card_run card-run
"""


def _zsh() -> str:
    rows: list[str] = []
    for option in OPTIONS:
        help_text = option.help.replace("[", "(").replace("]", ")").replace(":", ",")
        value = ""
        if option.choices:
            value = f":{option.name}:({' '.join(option.choices)})"
        elif option.kind != FLAG:
            value = f":{option.metavar or option.name}:{'_files' if _takes_path(option) else ' '}"
        many = "*" if option.kind == "many" else ""
        rows.append("    " + shlex.quote(f"{many}--{option.name}[{help_text}]{value}") + " \\")
    options = "\n".join(rows)
    return f"#compdef card-run\n\n_arguments -S \\\n{options}\n    '*::command:_normal'\n"


def _fish() -> str:
    rows = ["# fish completion for card-run(1)", "complete -c card-run -f"]
    for option in OPTIONS:
        words = ["complete", "-c", "card-run", "-l", option.name, "-d", option.help]
        words += ["-s", option.short] if option.short else []
        words += ["-x", "-a", " ".join(option.choices)] if option.choices else []
        if option.kind != FLAG and not option.choices:
            words.append("-r" if _takes_path(option) else "-x")
        rows.append(shlex.join(words))
    return "\n".join(rows) + "\n"
