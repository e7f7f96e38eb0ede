"""`sh` and `bash`: a shell as a program of the host, as `sudo sh -c …` and Ansible call it."""

from rollout.lab.hosts import files
from rollout.lab.hosts.process import Process
from rollout.lab.hosts.shell.interpreter import NOT_FOUND, Shell


async def shell(process: Process) -> int:
    """`sh -c SCRIPT [name words]`, `sh FILE`, and a script on standard input."""
    words, options = list(process.arguments), ""
    while words and words[0].startswith("-"):
        options += words.pop(0).lstrip("-")
    name = process.argv[0].rpartition("/")[2]
    if "c" in options:
        script = words.pop(0) if words else ""
        name = words.pop(0) if words else name
    elif words and "s" not in options:
        name = words.pop(0)
        text = files.read(process.machine, name)
        if text is None:
            process.complain(f"{process.argv[0]}: {name}: No such file or directory")
            return NOT_FOUND
        script = text
    else:
        script = await process.streams.stdin.rest()
    inner = Shell(
        process.machine,
        process.programs,
        process.streams,
        user=process.user,
        name=name,
        variables=process.environment,
        arguments=tuple(words),
    )
    inner.options.update(letter for letter in options if letter in "eu")
    return await inner.run(script)
