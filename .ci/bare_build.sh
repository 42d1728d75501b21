#!/usr/bin/env bash
# Field case R74: the examples build and run offline, from sources that are not written to, with neither protoc nor rustfmt to be
# found. Takes a minute.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

# What a machine with a Rust toolchain and a linker has, and nothing else.
mkdir "$work/bin" "$work/source"
for program in cargo rustc cc ld as ar; do
    ln -s "$(command -v "$program")" "$work/bin/$program"
done
tar --exclude=./target --exclude=./fuzz/target --exclude=./.git -c . | tar -x -C "$work/source"
chmod -R a-w "$work/source"

# Permissions do not stop root, so what is there is looked at too.
content() { find "$work/source" -type f -exec sha256sum {} + | sort -k 2; }
content >"$work/before"

cargo fetch --locked --quiet
(
    cd "$work/source"
    export PATH="$work/bin" PROTOC=/no/such/protoc CARGO_TARGET_DIR="$work/target"
    export CARGO_PROFILE_DEV_DEBUG=0
    cargo build --locked --offline --quiet -p fulmar-examples --example quickstart
)
"$work/target/debug/examples/quickstart" >/dev/null

content | diff "$work/before" - || { echo "the build wrote to its sources" >&2; exit 1; }
echo "quickstart was built without protoc, rustfmt and network, and its sources are as they were"
