"""The processes of the ranks of a program, for the tests that end them."""

import pathlib


def rank_of(process, variable):
    """The number of the rank that this process is by a launcher's variable, or none yet."""
    try:
        variables = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    name = f"{variable}=".encode()
    return next((int(v[len(name):]) for v in variables if v.startswith(name)), None)


def started_by(program, variable="SPOOL_RANK"):
    """The processes of the ranks that a program has started, by rank."""
    tasks = pathlib.Path(f"/proc/{program}/task")
    children = [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]
    return {rank_of(child, variable): child for child in children}
