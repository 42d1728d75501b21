#!/usr/bin/env bash
# h2spec against the engine's server end (echo_server, in plain text and over TLS), and h2specd against its client end
# (get_client). Nothing is skipped, and a summary that is not read counts as a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

# The newest version that the module proxy serves. It has 146 cases; the strict one that came later (5.4.1/2: a malformed PING is
# answered with GOAWAY before the connection is closed) is in crates/http2/tests/engine/frames.rs:
# frames_that_show_in_their_head_to_be_wrong_end_the_connection_before_their_payload_arrives.
readonly H2SPEC=v2.2.1+incompatible
readonly SERVER_CASES=146
readonly CLIENT_CASES=57

work=$(mktemp -d)
server=

main() {
    trap clean_up EXIT
    build_h2spec
    cargo build --locked --release -p fulmar-http2 --example echo_server --example get_client
    serve_and_check "plain text"
    serve_and_check "TLS" --tls
    check_client
}

# h2spec has no go.mod of its own, so a throw-away module pins what it is built with.
build_h2spec() {
    mkdir "$work/module"
    (
        cd "$work/module"
        go mod init throwaway 2>/dev/null
        go get github.com/summerwind/h2spec/cmd/h2spec@"$H2SPEC" github.com/summerwind/h2spec/cmd/h2specd@"$H2SPEC" \
            github.com/spf13/cobra@v1.10.2 golang.org/x/net@v0.62.0 github.com/fatih/color@v1.19.0 2>"$work/get" ||
            { cat "$work/get"; fail "h2spec could not be fetched"; }
        go build -o "$work/" github.com/summerwind/h2spec/cmd/h2spec github.com/summerwind/h2spec/cmd/h2specd
    )
}

# serve_and_check NAME [--tls]
serve_and_check() {
    local name=$1 address port
    # Its own words only: the shell that is to empty the file may be later than the first look at it.
    : >"$work/log"
    "${CARGO_TARGET_DIR:-target}/release/examples/echo_server" --port 0 "${@:2}" >"$work/log" 2>&1 &
    server=$!
    for _ in $(seq 600); do
        address=$(grep -oE -m1 '127\.0\.0\.1:[0-9]+' "$work/log" || true)
        [[ -n $address ]] && break
        kill -0 "$server" 2>/dev/null || fail "echo_server ended at once"
        sleep 0.1
    done
    [[ -n $address ]] || fail "echo_server did not tell its address within a minute"
    port=${address##*:}
    local flags=()
    [[ ${2:-} == --tls ]] && flags=(--tls --insecure)
    timeout 300 "$work/h2spec" --strict --host 127.0.0.1 --port "$port" "${flags[@]}" >"$work/report" || true
    expect_all "h2spec, $name" "$SERVER_CASES"
    kill "$server"
    wait "$server" 2>/dev/null || true
    server=
}

# h2specd ends with 0 even when cases fail, and takes one port for each case from --from-port on.
check_client() {
    local first
    first=$(free_ports $((CLIENT_CASES + 1)))
    timeout 300 "$work/h2specd" --strict --host 127.0.0.1 --port "$first" --from-port $((first + 1)) \
        --exec "${CARGO_TARGET_DIR:-target}/release/examples/get_client" >"$work/report" 2>&1 || true
    expect_all "h2specd" "$CLIENT_CASES"
}

# free_ports COUNT: the first of so many ports in a row on which nobody listens, below those that the system gives to clients.
free_ports() {
    local first port
    for first in $(seq 20000 100 29900); do
        for port in $(seq "$first" $((first + $1 - 1))); do
            ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || continue 2
        done
        echo "$first"
        return
    done
    fail "there are no $1 free ports in a row"
}

# expect_all NAME CASES: the report's summary says that all cases passed and none was skipped.
expect_all() {
    if grep -qE "^$2 tests, $2 passed, 0 skipped, 0 failed" "$work/report"; then
        printf 'ok: %s passes %d of %d cases\n' "$1" "$2" "$2"
    else
        cat "$work/report"
        fail "$1: not all of $2 cases passed"
    fi
}

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

clean_up() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}

main "$@"
