#!/bin/sh
# Does what the entry point of docker.io/library/postgres is documented to do, as
# far as Pods of the examples and tests ask for it: it makes the database of a
# volume that has none, by POSTGRES_PASSWORD (or _FILE), POSTGRES_USER,
# POSTGRES_DB and POSTGRES_INITDB_ARGS, and then is the server.
set -eu
[ "${1:-}" = postgres ] || exec "$@"

mkdir -p "$PGDATA"
# The server refuses a folder that others may read, as kubelet makes it for fsGroup.
chmod 700 "$PGDATA"

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  user=${POSTGRES_USER:-postgres}
  password=${POSTGRES_PASSWORD:-}
  [ -z "${POSTGRES_PASSWORD_FILE:-}" ] || password=$(cat "$POSTGRES_PASSWORD_FILE")
  [ -n "$password" ] || { echo "no database in $PGDATA: set POSTGRES_PASSWORD or POSTGRES_PASSWORD_FILE" >&2; exit 1; }
  # shellcheck disable=SC2086 # the arguments are words
  printf '%s\n' "$password" | initdb --username="$user" --pwfile=/dev/stdin --encoding=UTF8 --locale=C \
    --auth-local=trust --auth-host=scram-sha-256 ${POSTGRES_INITDB_ARGS:-}
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
  if [ "${POSTGRES_DB:-$user}" != postgres ]; then
    echo "CREATE DATABASE \"${POSTGRES_DB:-$user}\"" | postgres --single -j postgres >/dev/null
  fi
fi
exec "$@"
