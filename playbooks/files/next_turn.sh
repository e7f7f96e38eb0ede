#!/bin/sh
# Print what is written down for a turn, as soon as it is; the end once the folder, or the process that writes, is gone.
# A turn that is long in coming is looked for less often: a drain takes its time.
# usage: next_turn.sh FOLDER TURN PROCESS
looks=0
while kill -0 "$3" 2>/dev/null && [ -d "$1" ]; do
    if [ -e "$1/$2" ]; then exec cat "$1/$2"; fi
    looks=$((looks + 1))
    if [ "$looks" -lt 50 ]; then sleep 0.2; else sleep 1; fi
done
echo '{"command": "", "seconds": 1}'
