#!/usr/bin/env bash
# Makes an authority, a server's certificate for localhost and a client's, all for two days: ca.pem, server.pem, server.key, client.pem
# and client.key in a folder.
#
#   .ci/certificates.sh FOLDER
set -euo pipefail
cd "$1"

printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >server.ext
printf 'extendedKeyUsage=clientAuth\n' >client.ext
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem
for name in server client; do
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=the $name" -keyout "$name.key" -out "$name.csr"
    openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -days 2 -extfile "$name.ext" -out "$name.pem"
done
