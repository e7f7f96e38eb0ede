"""An output is checked before the work whose result it takes."""

from pathlib import Path

import pytest

from rollout.adapters.local_files import check_output_file, check_output_folder
from rollout.errors import InputError


@pytest.mark.parametrize("check", [check_output_file, check_output_folder])
@pytest.mark.parametrize("rest", ["", "out"])
def test_a_path_that_the_system_refuses_to_look_up_is_an_error_of_input(
    check: object, rest: str, tmp_path: Path
) -> None:
    path = tmp_path / ("n" * 300) / rest
    with pytest.raises(InputError, match=r"^cannot write .*: File name too long$"):
        check(path)  # type: ignore[operator]
