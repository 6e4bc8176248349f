#!/bin/sh
# Makes MODELS hold what SOURCE holds, NAME/VERSION/..., by rclone: once, or again every EVERY_S seconds until SIGTERM.
#   sync.sh once|always
set -eu

# A version is served when its graph is there (or its pipeline.yaml), so that comes last. rclone writes each file under
# another name and renames it when it is whole.
bring() {
  # 0. A bucket lists nothing for a name that it does not have: that must not delete what is served.
  [ -n "$(rclone lsf "$SOURCE")" ] || {
    echo "$SOURCE holds nothing; is that its name?" >&2
    return 1
  }

  # 1. Everything else. Nothing is deleted yet: what is served stays while the network fails.
  rclone copy "$SOURCE" "$MODELS" --exclude 'saved_model.pb*' --exclude pipeline.yaml

  # 2. The rest. When all of it is here, what SOURCE does not hold any more goes.
  rclone sync "$SOURCE" "$MODELS" --delete-after
}

if [ "$1" = once ]; then
  bring
  exit
fi

# As the first process of a container a shell ignores signals that it does not trap, and it runs a trap only after the
# command in the foreground: so each runs in the background.
trap 'kill $! 2>/dev/null; exit 0' TERM INT
while :; do
  sleep "$EVERY_S" &
  wait $!
  bring &
  wait $! || echo "The models could not be brought from $SOURCE; next try in $EVERY_S s" >&2
done
