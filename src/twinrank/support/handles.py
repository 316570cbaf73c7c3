"""Numbers for objects, which torch's operators can take as arguments."""

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

_objects: "WeakValueDictionary[int, Any]" = WeakValueDictionary()
_numbers = count(1)


def handle_for(thing: Any) -> int:
    """A new number by which `from_handle` finds an object as long as it exists."""
    number = next(_numbers)
    _objects[number] = thing
    return number


def from_handle(number: int) -> Any:
    """The object with a number."""
    return _objects[number]
