#!/usr/bin/env bash
# Stands in for a C compiler of another system (other_systems.sh): whatever it is told to compile is empty.
for argument in "$@"; do
    case $argument in
        # Which compiler is this? Like the one that is here.
        -E | --version) exec cc "$@" ;;
        # None of Microsoft's.
        '-?') exit 1 ;;
    esac
done
while (($#)); do
    [[ $1 != -o ]] || : >"$2"
    shift
done
exit 0
