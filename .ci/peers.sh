#!/usr/bin/env bash
# HTTP/2 clients that are not gRPC's, against a running hello_world_server: curl, nghttp and h2load (Debian's packages curl
# and nghttp2-client). A framed POST gets its gRPC answer, a plain GET gets 415, and a load of calls all succeed. Then the same over
# TLS against secure_hello_server, with curl and `openssl s_client`, and a certificate that is made for the run.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly CALLS=20000

work=$(mktemp -d)
server=
address=
url=
curl_flags=()

main() {
    trap clean_up EXIT
    cargo build --locked --release -p fulmar-examples --example hello_world_server --example secure_hello_server
    start_server hello_world_server
    url="http://$address/helloworld.Greeter/SayHello"
    curl_flags=(--http2-prior-knowledge)
    # HelloRequest { name: "world" } (field 1, seven bytes) behind gRPC's prefix (not compressed, length 7).
    printf '\0\0\0\0\007\n\005world' >"$work/request"

    post_with_curl
    get_with_curl
    post_with_nghttp
    load_with_h2load
    post_with_curl # whatever came before, the server still answers
    stop_server

    make_certificates
    start_server secure_hello_server --certificate "$work/server.pem" --key "$work/server.key"
    url="https://localhost:${address##*:}/helloworld.Greeter/SayHello"
    curl_flags=(--http2 --cacert "$work/ca.pem")
    post_with_curl
    get_with_curl
    shake_hands_with_openssl
    load_with_h2load
    post_with_curl
}

# start_server EXAMPLE [FLAG…]
start_server() {
    address=
    # Its own words only: the shell that is to empty the file may be later than the first look at it.
    : >"$work/log"
    "${CARGO_TARGET_DIR:-target}/release/examples/$1" --port 0 "${@:2}" >"$work/log" 2>&1 &
    server=$!
    for _ in $(seq 600); do
        address=$(grep -oE -m1 '127\.0\.0\.1:[0-9]+' "$work/log" || true)
        [[ -n $address ]] && break
        kill -0 "$server" 2>/dev/null || fail "the server ended at once"
        sleep 0.1
    done
    [[ -n $address ]] || fail "the server did not tell its address within a minute"
}

stop_server() {
    [[ -n $server ]] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}

make_certificates() {
    .ci/certificates.sh "$work" >"$work/openssl" 2>&1 || { cat "$work/openssl"; fail "no certificates could be made"; }
}

# shake FLAG…: a handshake of openssl's, without anything behind it; what it tells is in $work/openssl.
shake() {
    timeout 60 openssl s_client -connect "$address" -servername localhost -CAfile "$work/ca.pem" -verify_return_error \
        "$@" </dev/null >"$work/openssl" 2>&1 || true
}

shake_hands_with_openssl() {
    shake -alpn h2
    expect "$work/openssl" 'ALPN protocol: h2' "openssl: h2 is agreed"
    expect "$work/openssl" 'Verify return code: 0 \(ok\)' "openssl: the certificate is the server's"
    expect "$work/openssl" 'TLSv1.3' "openssl: TLS 1.3 is taken by itself"
    shake -alpn h2 -tls1_2
    expect "$work/openssl" 'Protocol *: TLSv1.2' "openssl: TLS 1.2 is spoken"
    shake -alpn h2,http/1.1
    expect "$work/openssl" 'ALPN protocol: h2' "openssl: h2 is chosen before http/1.1"
    shake -alpn http/1.1
    expect "$work/openssl" 'no application protocol' "openssl: a client of HTTP/1.1 gets alert 120"
    shake -alpn h2 -tls1_1
    expect "$work/openssl" '(alert protocol version|alert handshake failure|no protocols available|unsupported protocol)' "openssl: TLS 1.1 is refused"
    # One of those that HTTP/2 blocks (RFC 9113 appendix A): its keys are not ephemeral.
    shake -alpn h2 -tls1_2 -cipher AES128-GCM-SHA256
    expect "$work/openssl" 'handshake failure' "openssl: a blocked cipher suite is refused"
}

post_with_curl() {
    curl --silent --show-error --max-time 60 "${curl_flags[@]}" --dump-header "$work/head" --output "$work/reply" \
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
    curl --silent --show-error --max-time 60 "${curl_flags[@]}" --output /dev/null \
        --write-out '%{http_code}\n' "$url" >"$work/code"
    expect "$work/code" '^415$' "curl: a plain GET is answered with 415"
}

post_with_nghttp() {
    nghttp --verbose --no-dep --timeout=60 --data="$work/request" \
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
    stop_server
    rm -rf "$work"
}

main "$@"
