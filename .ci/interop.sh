#!/usr/bin/env bash
# The official interop programs of gRPC against each other: clients and servers of Fulmar, grpc-go and grpc-java, each pair that has
# Fulmar on a side, in plain text and over TLS; the negative HTTP/2 cases; hello world and route guide; hello world over mutual TLS.
# Prints two tables, and fails when a cell of one does.
# docs/interop.md tells more. The others' programs are fetched once, into target/interop, by their own tools: go and mvn.
#
#   .ci/interop.sh [CASE…]    only these cases
set -euo pipefail
cd "$(dirname "$0")/.."

# Rows of the table.
readonly CASES=(empty_unary cacheable_unary large_unary very_large_request pick_first_unary client_compressed_unary
    client_compressed_unary_noprobe server_compressed_unary client_streaming client_compressed_streaming
    client_compressed_streaming_noprobe server_streaming server_compressed_streaming ping_pong empty_stream custom_metadata
    status_code_and_message special_status_message unimplemented_method unimplemented_service cancel_after_begin
    cancel_after_first_response timeout_on_sleeping_server orca_per_rpc orca_oob rpc_soak channel_soak)
readonly NEGATIVE=(goaway rst_after_header rst_during_data rst_after_data ping max_streams data_frame_padding
    no_df_padding_sanity_test)
readonly EXAMPLES=(hello_world compressing_hello_world route_guide)

# Columns: client and server.
readonly PAIRS=("ours ours" "ours go" "ours java" "go ours" "java ours")

readonly SERVICE_CONFIG='{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}'
readonly CASE_SECONDS_MAX=60
# A server has a minute to start, in steps of a tenth of a second: a virtual machine on a slow one takes its time.
readonly START_STEPS_MAX=600

readonly built=${CARGO_TARGET_DIR:-target}/release
readonly cache=$PWD/target/interop
# Quick to start rather than quick in the long run.
readonly JAVA=(java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$cache/java/examples.jar:$cache/java/lib/*")

work=$(mktemp -d)
declare -A cell   # "CASE CLIENT SERVER" → ok, n/a or FAIL
declare -A reason # "CASE CLIENT SERVER" → why it is n/a
servers=()        # the processes that were started and not ended yet
command=()        # the client of a cell
port=             # where the server that was started last listens
security=         # "tls:" while cases run over TLS: it stands in front of their names

main() {
    trap clean_up EXIT
    cargo build --locked --quiet --release -p fulmar-interop --bins
    cargo build --locked --quiet --release -p fulmar-examples --examples
    fetch_go
    fetch_java
    local pair
    for pair in "${PAIRS[@]}"; do
        run_cases $pair
    done
    run_negative_cases
    run_examples
    make_certificates
    security=tls:
    for pair in "${PAIRS[@]}"; do
        run_cases $pair
    done
    run_mutual
    print_table
}

# --- The programs of the others ---

# The versions are those of crates/interop/go/go.mod.
fetch_go() {
    local bin=$cache/go stamp
    stamp=$(cat crates/interop/go/go.{mod,sum} crates/interop/go/secure/*.go .ci/interop.sh | sha256sum)
    [[ $(cat "$bin/stamp" 2>/dev/null) == "$stamp" ]] && return
    mkdir -p "$bin"
    (
        cd crates/interop/go
        local grpc=google.golang.org/grpc
        go build -o "$bin/interop_client" $grpc/interop/client
        go build -o "$bin/interop_server" $grpc/interop/server
        go build -o "$bin/http2_client" $grpc/interop/http2
        go build -o "$bin/hello_world_client" $grpc/examples/helloworld/greeter_client
        go build -o "$bin/hello_world_server" $grpc/examples/helloworld/greeter_server
        go build -o "$bin/route_guide_client" $grpc/examples/route_guide/client
        go build -o "$bin/route_guide_server" $grpc/examples/route_guide/server
        go build -o "$bin/secure" ./secure
        # The official test certificates: what everybody's programs trust, and what their servers show, as *.test.google.fr.
        cp "$(go list -m -f '{{.Dir}}' $grpc)"/testdata/{ca.pem,server1.pem,server1.key} "$bin"
    ) >"$work/go" 2>&1 || { cat "$work/go"; fail "grpc-go could not be built"; }
    echo "$stamp" >"$bin/stamp"
}

# The versions are those of crates/interop/java/pom.xml.
fetch_java() {
    local folder=$cache/java stamp
    stamp=$(cat crates/interop/java/pom.xml crates/interop/java/src/main/java/interop/*.java proto/*.proto | sha256sum)
    [[ $(cat "$folder/stamp" 2>/dev/null) == "$stamp" ]] && return
    mkdir -p "$folder"
    mvn --batch-mode --quiet --file crates/interop/java/pom.xml -Dinterop.directory="$folder" package \
        dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$folder/lib" >"$work/java" 2>&1 ||
        { cat "$work/java"; fail "grpc-java could not be fetched"; }
    echo "$stamp" >"$folder/stamp"
}

# --- Official cases ---

# run_cases CLIENT SERVER: a column of the table.
run_cases() {
    local client=$1 server=$2 case began=$SECONDS
    start_interop_server "$server"
    for case in $(wanted "${CASES[@]}"); do
        local why
        why=$(why_not "$case" "$client" "$server")
        if [[ -n $why ]]; then
            mark "$security$case" "$client" "$server" n/a "$why"
        else
            set_interop_client "$client" "$case"
            attempt "$security$case" "$client" "$server"
        fi
    done
    stop_servers
    printf -- '-- %sclient %s, server %s: %d s\n' "$security " "$client" "$server" "$((SECONDS - began))"
}

start_interop_server() {
    local flags=(--use_tls=false)
    [[ -z $security ]] ||
        flags=(--use_tls=true --tls_cert_file="$cache/go/server1.pem" --tls_key_file="$cache/go/server1.key")
    case $1 in
        ours) start_server "$built/interop_server" --port=0 "${flags[@]}" ;;
        go) start_server_on_port "$cache/go/interop_server" -port=PORT "${flags[@]}" ;;
        # It has the certificate with it.
        java) start_server_on_port "${JAVA[@]}" io.grpc.testing.integration.TestServiceServer --port=PORT "${flags[0]}" ;;
    esac
}

# set_interop_client CLIENT CASE: sets `command`.
set_interop_client() {
    local flags=(--server_host=127.0.0.1 --server_port="$port" --test_case="$2")
    if [[ -z $security ]]; then
        flags+=(--use_tls=false)
    else
        flags+=(--use_tls=true --use_test_ca=true --server_host_override=foo.test.google.fr)
        # grpc-java has it with it.
        [[ $1 == java ]] || flags+=(--ca_file="$cache/go/ca.pem")
    fi
    [[ $2 != orca_* ]] || flags+=(--service_config_json="$SERVICE_CONFIG")
    case $1 in
        ours) command=("$built/interop_client" "${flags[@]}") ;;
        go) command=("$cache/go/interop_client" "${flags[@]}") ;;
        java) command=("${JAVA[@]}" io.grpc.testing.integration.TestServiceClient "${flags[@]}") ;;
    esac
}

# why_not CASE CLIENT SERVER: why a peer cannot take part in a case; nothing where it can.
why_not() {
    case "$1 $2 $3" in
        "cacheable_unary ours go" | "cacheable_unary ours java") echo "the server has no CacheableUnaryCall" ;;
        "cacheable_unary go "*) echo "the client does not have the case" ;;
        "cacheable_unary java "*) echo "the client calls with GET, for a proxy that keeps answers" ;;
        "very_large_request ours go") echo "the server takes 4 MiB at most" ;;
        "very_large_request go "*) echo "the client does not have the case" ;;
        *_compressed_*" ours go" | *_compressed_*" go ours") echo "grpc-go does not have the case" ;;
        "client_compressed_unary ours java" | "client_compressed_streaming ours java")
            echo "the server does not look whether a request is compressed"
            ;;
        "server_compressed_streaming ours java") echo "the server does not compress the replies of streams" ;;
        "compressing_hello_world ours go") echo "the server does not accept gzip" ;;
        "compressing_hello_world go ours") echo "the client does not compress" ;;
        "compressing_hello_world java ours") echo "in hello_world: the second call is compressed" ;;
        "pick_first_unary ours go" | "pick_first_unary ours java") echo "the server does not tell its server_id" ;;
    esac
}

# --- Negative HTTP/2 cases ---

run_negative_cases() {
    local client case
    for case in $(wanted "${NEGATIVE[@]}"); do
        for client in ours go java; do
            start_server "$built/http2_server" --port=0 --test_case="$case"
            set_negative_client "$client" "$case"
            attempt "$case" "$client" ours
            ! grep violation: "$work/server" || mark "$case" "$client" ours FAIL
            stop_servers
        done
    done
}

# set_negative_client CLIENT CASE: sets `command`.
set_negative_client() {
    local flags=(--server_host=127.0.0.1 --server_port="$port" --test_case="$2")
    case "$1 $2" in
        ours*) command=("$built/http2_client" "${flags[@]}") ;;
        # These two are for the ordinary client.
        *data_frame_padding | *no_df_padding_sanity_test) set_interop_client "$1" large_unary ;;
        go*) command=("$cache/go/http2_client" "${flags[@]}") ;;
        java*) command=("${JAVA[@]}" io.grpc.testing.integration.Http2Client "${flags[@]}") ;;
    esac
}

# known_complaint CASE CLIENT: what a client says of its own library, whatever the server: its call fails as it must, but with a
# code or a text that the client was not told of when the library changed.
known_complaint() {
    case "$1 $2" in
        "rst_during_data go") echo "UnaryCall() = _, Internal, want _, Unknown" ;;
        "rst_"*" java")
            echo "Expected: HTTP/2 error code: NO_ERROR Received: RST_STREAM closed stream. HTTP/2 error code: NO_ERROR"
            ;;
    esac
}

# --- Hello world and route guide ---

run_examples() {
    local example pair
    for example in $(wanted "${EXAMPLES[@]}"); do
        for pair in "${PAIRS[@]}"; do
            run_example "$example" $pair
        done
    done
}

# run_example EXAMPLE CLIENT SERVER
run_example() {
    local why
    why=$(why_not "$@")
    if [[ -n $why ]]; then
        mark "$@" n/a "$why"
        return
    fi
    start_example_server "$1" "$3"
    set_example_client "$2" "$1"
    attempt "$@"
    case $1 in
        hello_world) grep -q 'Hello world' "$work/log" || mark "$@" FAIL ;;
        compressing_hello_world)
            # Both ends tell: the client of the reply, grpc-java's server of the requests.
            grep -q 'it came compressed: true' "$work/log" || mark "$@" FAIL
            [[ $3 != java ]] || (($(grep -c 'grpc-encoding gzip' "$work/server") == 2)) || mark "$@" FAIL
            ;;
    esac
    stop_servers
}

# start_example_server EXAMPLE SERVER
start_example_server() {
    local example=${1#compressing_}
    case $2 in
        ours) start_server "$built/examples/${example}_server" --port 0 ;;
        go) start_server_on_port "$cache/go/${example}_server" -port=PORT ;;
        java) start_server "${JAVA[@]}" "$(java_class "$example")" server ;;
    esac
}

# set_example_client CLIENT EXAMPLE: sets `command`.
set_example_client() {
    case $1 in
        ours) command=("$built/examples/${2}_client" --server "http://127.0.0.1:$port") ;;
        go) command=("$cache/go/${2}_client" -addr="127.0.0.1:$port") ;;
        java) command=("${JAVA[@]}" "$(java_class "$2")" client "127.0.0.1:$port") ;;
    esac
}

java_class() {
    case $1 in
        hello_world) echo interop.HelloWorld ;;
        route_guide) echo interop.RouteGuide ;;
    esac
}

# --- Mutual TLS ---

# Made for this run, and gone with it.
make_certificates() {
    .ci/certificates.sh "$work" >"$work/openssl" 2>&1 || { cat "$work/openssl"; fail "no certificates could be made"; }
}

# Hello world between servers that ask for a certificate and clients that have one; and clients without one, who must not get in.
run_mutual() {
    [[ -n $(wanted mutual_tls no_certificate) ]] || return 0
    local pair
    for pair in "ours ours" "ours go" "go ours"; do
        local client=${pair% *} server=${pair#* }
        case $server in
            ours)
                start_server "$built/examples/secure_hello_server" --port 0 \
                    --certificate "$work/server.pem" --key "$work/server.key" --client-ca "$work/ca.pem"
                ;;
            go)
                start_server "$cache/go/secure" server -port=0 -ca="$work/ca.pem" \
                    -cert="$work/server.pem" -key="$work/server.key"
                ;;
        esac
        set_secure_client "$client" yes
        attempt tls:mutual_tls "$client" "$server"
        # The server has seen the certificate: grpc-go's tells whom it names, ours how long it is.
        grep -qE 'Hello world (of the client|by a certificate of [0-9]+ bytes)' "$work/log" || mark tls:mutual_tls "$client" "$server" FAIL
        set_secure_client "$client" no
        if timeout "$CASE_SECONDS_MAX" "${command[@]}" >"$work/log" 2>&1 || ! grep -qi certificate "$work/log"; then
            mark tls:no_certificate "$client" "$server" FAIL
            cat "$work/log"
        else
            mark tls:no_certificate "$client" "$server" ok
        fi
        stop_servers
    done
}

# set_secure_client CLIENT yes|no: sets `command`, with a certificate of its own or without.
set_secure_client() {
    case $1 in
        ours)
            command=("$built/examples/secure_hello_client" --server "https://localhost:$port" --ca "$work/ca.pem")
            [[ $2 == no ]] || command+=(--certificate "$work/client.pem" --key "$work/client.key")
            ;;
        go)
            command=("$cache/go/secure" client -addr="localhost:$port" -ca="$work/ca.pem")
            [[ $2 == no ]] || command+=(-cert="$work/client.pem" -key="$work/client.key")
            ;;
    esac
}

# --- Processes ---

# start_server COMMAND…: one that picks its port and prints it, "listening on …PORT".
start_server() {
    # Its own words only: the shell that is to empty the file may be later than the first look at it.
    : >"$work/server"
    "$@" >"$work/server" 2>&1 &
    servers+=($!)
    for _ in $(seq "$START_STEPS_MAX"); do
        port=$(sed -nE 's/^listening on .*[^0-9]([0-9]+)$/\1/p' "$work/server")
        [[ -z $port ]] || return 0
        kill -0 "${servers[-1]}" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/server"
    fail "a server did not start: $*"
}

# start_server_on_port COMMAND…: one that must be told its port, in place of PORT. A port that another program takes in the
# meantime ends the server, and the next one is tried.
start_server_on_port() {
    for _ in $(seq 10); do
        port=$((20000 + RANDOM % 10000))
        "${@//PORT/$port}" >"$work/server" 2>&1 &
        servers+=($!)
        for _ in $(seq "$START_STEPS_MAX"); do
            kill -0 "${servers[-1]}" 2>/dev/null || break
            ! is_listening "${servers[-1]}" || return 0
            sleep 0.1
        done
        stop_servers
    done
    cat "$work/server"
    fail "a server did not start: $*"
}

# is_listening PROCESS: it is this one, and not another program, that listens on the port.
is_listening() {
    local socket
    for socket in $(awk -v port="$(printf ':%04X' "$port")" '$4 == "0A" && $2 ~ port "$" { print $10 }' /proc/net/tcp*); do
        [[ -z $(find "/proc/$1/fd" -lname "socket:\\[$socket\\]" 2>/dev/null) ]] || return 0
    done
    return 1
}

stop_servers() {
    local server
    for server in "${servers[@]}"; do
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    done
    servers=()
}

# attempt CASE CLIENT SERVER: runs `command` for a cell of the table, and shows what was said where it fails.
attempt() {
    if timeout "$CASE_SECONDS_MAX" "${command[@]}" >"$work/log" 2>&1; then
        mark "$1" "$2" "$3" ok
        return
    fi
    local complaint
    complaint=$(known_complaint "$1" "$2")
    if [[ -n $complaint ]] && grep -qF -- "$complaint" "$work/log"; then
        mark "$1" "$2" "$3" 'ok*' "it says: $complaint"
        return
    fi
    mark "$1" "$2" "$3" FAIL
    printf -- '-- %s, client %s, server %s:\n' "$1" "$2" "$3"
    tail -n 40 "$work/log"
    printf -- '-- its server:\n'
    tail -n 20 "$work/server"
}

# --- The tables ---

# wanted NAME…: those of the names that the command line asks for; all without one.
wanted() {
    local name
    for name in "$@"; do
        [[ -z $only || " $only " == *" $name "* ]] && echo "$name"
    done
    return 0
}

# mark CASE CLIENT SERVER RESULT [REASON]
mark() {
    cell["$1 $2 $3"]=$4
    reason["$1 $2 $3"]=${5:-}
}

print_table() {
    local row
    printf '\ngrpc-go %s, grpc-java %s; client > server\n' "$(go_version)" "$(java_version)"
    print_rows "in plain text" "" $(wanted "${CASES[@]}" "${NEGATIVE[@]}" "${EXAMPLES[@]}")
    print_rows "over TLS" tls: $(wanted "${CASES[@]}" mutual_tls no_certificate)
    printf '\n-: not tried with these two; n/a: a peer cannot; ok*: it did as it must, and did not expect it:\n'
    for row in "${!reason[@]}"; do
        [[ -z ${reason[$row]} ]] || printf '%s: %s\n' "$row" "${reason[$row]}"
    done | sort
    local failures
    failures=$(printf '%s\n' "${cell[@]}" | grep -c FAIL || true)
    printf '\n%d passed, %d failed\n' "$(printf '%s\n' "${cell[@]}" | grep -c ok || true)" "$failures"
    [[ $failures == 0 ]] || fail "$failures cells of the table"
}

# print_rows HEADLINE SECURITY CASE…
print_rows() {
    local security=$2 case pair
    printf '\n%-36s' "$1"
    for pair in "${PAIRS[@]}"; do
        printf ' %-12s' "${pair/ / > }"
    done
    printf '\n'
    for case in "${@:3}"; do
        printf '%-36s' "$case"
        for pair in "${PAIRS[@]}"; do
            printf ' %-12s' "${cell[$security$case $pair]:--}"
        done
        printf '\n'
    done
}

go_version() {
    sed -nE 's|.*google.golang.org/grpc (v[0-9.]+).*|\1|p' crates/interop/go/go.mod
}

java_version() {
    sed -nE 's|.*<grpc.version>(.*)</grpc.version>.*|\1|p' crates/interop/java/pom.xml
}

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

clean_up() {
    stop_servers
    rm -rf "$work"
}

only="$*"
main
