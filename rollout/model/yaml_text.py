from typing import Any

import yaml

_SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(text: str) -> Any:
    """Parse, or raise `YAMLError` without the text: it may be secret."""
    try:
        return yaml.load(text, Loader=_SAFE_LOADER)  # noqa: S506 - the safe one
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise yaml.YAMLError(
            "a value looks like a number or a date but is not one: quote it"
        ) from error
    except RecursionError as error:
        raise yaml.YAMLError("it is nested too deeply") from error
