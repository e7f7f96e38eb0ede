from importlib import resources

SUFFIX = ".yaml"


def scenario_names() -> list[str]:
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(SUFFIX) for file in files if file.name.endswith(SUFFIX))
