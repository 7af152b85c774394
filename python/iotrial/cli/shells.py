"""Shell completion: one script per shell, printed by ``iotrial completion``, and the code that answers it.

The scripts pass the words as they are, one per line, and read one line per candidate: type, value and
description, separated by tabs. Types: ``plain``; ``open``, which is not followed by a space, since more
follows (``mode=``); ``path``; and ``file`` and ``dir``, which leave the completion to the shell.
"""

from __future__ import annotations

import os
import shlex
from typing import ClassVar

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class

_OPEN = ("=", ",", "/")

_BASH = """\
# bash completion for iotrial
_iotrial_completion() {
    local type value help IFS=$'\\n'
    COMPREPLY=()
    while IFS=$'\\t' read -r type value help; do
        case $type in
            dir) compopt -o dirnames 2>/dev/null ;;
            file) compopt -o default 2>/dev/null ;;
            path) compopt -o filenames 2>/dev/null; COMPREPLY+=("$value") ;;
            open) compopt -o nospace 2>/dev/null; COMPREPLY+=("$value") ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        _IOTRIAL_COMPLETE=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F _iotrial_completion iotrial
"""

_ZSH = """\
#compdef iotrial
_iotrial() {
    local type value help
    local -a described
    while IFS=$'\\t' read -r type value help; do
        case $type in
            dir) _path_files -/ ;;
            file) _path_files ;;
            path) if [[ $value == */ ]]; then compadd -S '' -- "$value"; else compadd -- "$value"; fi ;;
            open) compadd -S '' -- "$value" ;;
            plain) if [[ -n $help ]]; then described+=("${value//:/\\\\:}:$help"); else compadd -- "$value"; fi ;;
        esac
    done < <(COMP_WORDS="${(pj:\\n:)words[1,CURRENT]}" COMP_CWORD=$((CURRENT - 1)) \\
        _IOTRIAL_COMPLETE=zsh_complete "${words[1]}" 2>/dev/null)
    (( $#described )) && _describe -V iotrial described
}
if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
    _iotrial "$@"
else
    compdef _iotrial iotrial
fi
"""

_FISH = """\
# fish completion for iotrial
function __iotrial_complete
    set -l words (commandline -opc)
    set -l token (commandline -ct)
    set -lx COMP_CWORD (count $words)
    set -lx COMP_WORDS (string join \\n -- $words "$token" | string collect --no-trim-newlines)
    set -lx _IOTRIAL_COMPLETE fish_complete
    for line in ($words[1] 2>/dev/null)
        set -l parts (string split \\t -- $line)
        switch $parts[1]
            case dir
                __fish_complete_directories "$token"
            case file
                __fish_complete_path "$token"
            case '*'
                printf '%s\\t%s\\n' $parts[2] "$parts[3]"
        end
    end
end
complete --no-files --command iotrial --arguments '(__iotrial_complete)'
"""


class _Shell(ShellComplete):
    """Base of the shells."""

    def source(self) -> str:
        """Return the script, which contains the program's name already."""
        return self.source_template

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the completed one, and the part of it that is typed."""
        at = int(os.environ.get("COMP_CWORD", "0"))
        words = os.environ.get("COMP_WORDS", "").split("\n")
        words = (words + [""] * (at + 1))[: at + 1]
        *before, last = [_unquoted(word) for word in self.joined(words)]
        return before[1:], last

    def joined(self, words: list[str]) -> list[str]:
        """Return the words as the program will get them."""
        return words

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Format one candidate as one line."""
        kind = "open" if item.type == "plain" and item.value.endswith(_OPEN) else item.type
        return f"{kind}\t{item.value}\t{(item.help or '').translate({9: ' ', 10: ' '})}"


class Bash(_Shell):
    """Bash splits words at ``=`` and ``:``, and replaces only what follows the last of these."""

    name = "bash"
    source_template: ClassVar[str] = _BASH

    def joined(self, words: list[str]) -> list[str]:
        """Rejoin words at the characters where bash has split them."""
        breaks = set(os.environ.get("COMP_WORDBREAKS", "=:")) & set("=:")
        found: list[str] = []
        glued = False
        for word in words:
            breaking = bool(word) and set(word) <= breaks
            if len(found) > 1 and (glued or breaking):
                found[-1] += word
            else:
                found.append(word)
            glued = breaking
        return found

    def complete(self) -> str:
        """Return the candidates, each without the part before bash's last word break."""
        args, incomplete = self.get_completion_args()
        breaks = set(os.environ.get("COMP_WORDBREAKS", "=:")) & set("=:")
        typed = incomplete[: max((incomplete.rfind(one) + 1 for one in breaks), default=0)]
        lines = []
        for item in self.get_completions(args, incomplete):
            # for `--option=NAME=` return only the end of the candidate: NAME=
            off = max(k for k in range(len(item.value) + 1) if typed.endswith(item.value[:k]))
            lines.append(self.format_completion(CompletionItem(item.value[off:], item.type, item.help)))
        return "\n".join(lines)


class Zsh(_Shell):
    """Zsh."""

    name = "zsh"
    source_template: ClassVar[str] = _ZSH


class Fish(_Shell):
    """Fish."""

    name = "fish"
    source_template: ClassVar[str] = _FISH


SHELLS: dict[str, type[_Shell]] = {shell.name: shell for shell in (Bash, Zsh, Fish)}


def register() -> None:
    """Register these shells with click."""
    for shell in SHELLS.values():
        add_completion_class(shell)


def script(shell: str) -> str:
    """Return the completion script of a shell. Raises KeyError for an unknown shell."""
    return SHELLS[shell].source_template


def _unquoted(word: str) -> str:
    """Remove quotes as the shell would: an open quote is closed, and a trailing backslash escapes nothing."""
    for text in (word, word + '"', word + "'", word[:-1]):
        try:
            return "".join(shlex.split(text))
        except ValueError:
            continue
    return word
