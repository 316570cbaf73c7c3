"""Shape annotations such as Float[Tensor, "docs"]: checked in tests, plain text elsewhere.

jaxtyping comes with the `test` extra; without it an annotation is just the array's type.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Float
else:
    try:
        from jaxtyping import Float
    except ImportError:

        class Float:
            """Float[Tensor, "docs"] means Tensor."""

            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]


__all__ = ["Float"]
