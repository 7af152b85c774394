# fish completion for iotrial
function __iotrial_complete
    set -l words (commandline -opc)
    set -l token (commandline -ct)
    set -lx COMP_CWORD (count $words)
    set -lx COMP_WORDS (string join \n -- $words "$token" | string collect --no-trim-newlines)
    set -lx _IOTRIAL_COMPLETE fish_complete
    for line in ($words[1] 2>/dev/null)
        set -l parts (string split \t -- $line)
        switch $parts[1]
            case dir
                __fish_complete_directories "$token"
            case file
                __fish_complete_path "$token"
            case '*'
                printf '%s\t%s\n' $parts[2] "$parts[3]"
        end
    end
end
complete --no-files --command iotrial --arguments '(__iotrial_complete)'
