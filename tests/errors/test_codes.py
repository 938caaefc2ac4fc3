from importlib import import_module
from pkgutil import iter_modules

import polyker.errors


def test_no_two_catalogues_have_one_code() -> None:
    for module in iter_modules(polyker.errors.__path__):
        import_module(f"polyker.errors.{module.name}")  # registering a code twice raises
