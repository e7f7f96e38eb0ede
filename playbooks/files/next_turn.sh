#!/bin/sh
# Print what is written down for a turn, as soon as it is; the end once the folder, or the process that writes, is gone.
# usage: next_turn.sh FOLDER TURN PROCESS
while kill -0 "$3" 2>/dev/null && [ -d "$1" ]; do
    if [ -e "$1/$2" ]; then exec cat "$1/$2"; fi
    sleep 0.2
done
echo '{"command": "", "seconds": 1}'
