#!/bin/sh
# Wait until rollout has written the next command to its file, and print the file. If the folder or the rollout process
# is gone, print an empty command, which ends the loop in run_commands.yml. After 10 seconds, check only once a second,
# because drains take minutes.
# usage: next_command.sh FOLDER NUMBER PROCESS
checks=0
while kill -0 "$3" 2>/dev/null && [ -d "$1" ]; do
    if [ -e "$1/$2" ]; then exec cat "$1/$2"; fi
    checks=$((checks + 1))
    if [ "$checks" -lt 50 ]; then sleep 0.2; else sleep 1; fi
done
echo '{"command": "", "seconds": 1}'
