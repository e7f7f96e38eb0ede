#!/bin/sh
# Print the command of a turn as soon as its file exists, or the final one once the folder or the writing process is gone.
# After a while it polls less often, because drains take time.
# usage: next_turn.sh FOLDER TURN PROCESS
looks=0
while kill -0 "$3" 2>/dev/null && [ -d "$1" ]; do
    if [ -e "$1/$2" ]; then exec cat "$1/$2"; fi
    looks=$((looks + 1))
    if [ "$looks" -lt 50 ]; then sleep 0.2; else sleep 1; fi
done
echo '{"command": "", "seconds": 1}'
