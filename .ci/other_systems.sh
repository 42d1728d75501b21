#!/usr/bin/env bash
# Fulmar for macOS and Windows: compiled with every feature and with none, and linted as for Linux. Nothing is linked or run, so that
# neither system's linker, SDK or C compiler is needed; only Rust's standard library for it is, which rustup fetches. Where rustup is
# not there, or has no such target, that is said, and nothing fails.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TARGETS=(x86_64-pc-windows-gnu x86_64-apple-darwin)

# What `ring`, `aws-lc-rs` and `zstd` are compiled with there: cargo looks at no object as long as nothing is linked.
readonly COMPILER=$PWD/.ci/no_compiler.sh

main() {
    local target checked=0
    for target in "${TARGETS[@]}"; do
        if ! rustup target add "$target" >/dev/null 2>&1; then
            printf -- '-- %s: not checked, its standard library cannot be had here\n' "$target"
            continue
        fi
        check "$target" --no-default-features
        check "$target" --all-features
        checked=$((checked + 1))
    done
    printf '%d of %d systems checked\n' "$checked" "${#TARGETS[@]}"
}

# check TARGET FLAG…
check() {
    local name=${1//-/_}
    env "CC_$name=$COMPILER" "AR_$name=$(command -v ar)" \
        cargo clippy --locked --quiet -p fulmar --target "$1" "${@:2}" -- -D warnings
    printf -- '-- %s %s: ok\n' "$@"
}

main
