"""Where clients work that share a machine and a lab."""


def own_folder(below: str, number: int) -> str:
    """The folder of client ``number`` from 1."""
    return f"{below}/client-{number}"
