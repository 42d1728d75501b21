#!/usr/bin/env bash
# HTTP/2 clients that are not gRPC's, against a running hello_world_server: curl, nghttp and h2load (Debian's packages curl
# and nghttp2-client). A framed POST gets its gRPC answer, a plain GET gets 415, and a load of calls all succeed.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly CALLS=20000

work=$(mktemp -d)
server=

main() {
    trap clean_up EXIT
    cargo build --locked --release -p fulmar-examples --example hello_world_server
    start_server
    # HelloRequest { name: "world" } (field 1, seven bytes) behind gRPC's prefix (not compressed, length 7).
    printf '\0\0\0\0\007\n\005world' >"$work/request"

    post_with_curl
    get_with_curl
    post_with_nghttp
    load_with_h2load
    post_with_curl # whatever came before, the server still answers
}

start_server() {
    "${CARGO_TARGET_DIR:-target}/release/examples/hello_world_server" --port 0 >"$work/log" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        address=$(grep -oE -m1 '127\.0\.0\.1:[0-9]+' "$work/log" || true)
        [[ -n $address ]] && break
        kill -0 "$server" 2>/dev/null || fail "the server ended at once"
        sleep 0.1
    done
    [[ -n $address ]] || fail "the server did not tell its address within 10 s"
    url="http://$address/helloworld.Greeter/SayHello"
}

post_with_curl() {
    curl --silent --show-error --max-time 10 --http2-prior-knowledge --dump-header "$work/head" --output "$work/reply" \
        --header 'content-type: application/grpc' --header 'te: trailers' --data-binary "@$work/request" "$url"
    expect "$work/head" '^HTTP/2 200' "curl: a framed POST is answered with 200"
    expect "$work/head" '^content-type: application/grpc' "curl: the answer is gRPC's"
    expect "$work/head" '^grpc-status: 0' "curl: the trailers carry the status OK"
    expect "$work/reply" 'world' "curl: the reply greets the world"
    local length
    length=$(($(od -An -tu1 -j1 -N4 "$work/reply" | awk '{ print ($1 * 256 + $2) * 65536 + $3 * 256 + $4 }') + 5))
    [[ $length -eq $(stat -c %s "$work/reply") ]] || fail "curl: the prefix does not tell the length of the reply"
}

get_with_curl() {
    curl --silent --show-error --max-time 10 --http2-prior-knowledge --output /dev/null \
        --write-out '%{http_code}\n' "$url" >"$work/code"
    expect "$work/code" '^415$' "curl: a plain GET is answered with 415"
}

post_with_nghttp() {
    nghttp --verbose --no-dep --timeout=10 --data="$work/request" \
        --header='content-type: application/grpc' --header='te: trailers' "$url" >"$work/nghttp" 2>&1
    expect "$work/nghttp" 'grpc-status: 0' "nghttp: a framed POST gets its gRPC answer"
}

load_with_h2load() {
    h2load --requests="$CALLS" --clients=4 --max-concurrent-streams=64 --data="$work/request" \
        --header='content-type: application/grpc' --header='te: trailers' "$url" >"$work/h2load" 2>&1
    expect "$work/h2load" " $CALLS succeeded, 0 failed, 0 errored, 0 timeout" "h2load: $CALLS calls on 4 connections succeed"
    grep -E '^(finished in|time for request:)' "$work/h2load"
}

# expect FILE PATTERN WHAT
expect() {
    grep -aqE "$2" "$1" || { sed 's/^/  | /' "$1" | head -n 60; fail "$3: no match for '$2'"; }
    printf 'ok: %s\n' "$3"
}

fail() {
    printf 'FAILED: %s\n' "$1" >&2
    [[ ! -s $work/log ]] || sed 's/^/  server: /' "$work/log" >&2
    exit 1
}

clean_up() {
    if [[ -n $server ]]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}

main "$@"
