"""The parameters of a function as a pydantic model: what a model may pass, strictly and nothing else."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from typing import Final, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from tools.errors import ToolDefinitionError

CONTEXT: Final = "context"
"""The parameter that ``execute`` fills in and the model does not see."""

# What every provider takes as the name of a property.
_PARAMETER: Final = re.compile(r"[A-Za-z0-9_]{1,64}\Z")

_STRICT: Final = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def read_signature(
    label: str, function: Callable[..., object], context_type: type
) -> tuple[inspect.Signature, dict[str, object]]:
    """The signature and the annotations of a function, or ``ToolDefinitionError`` where no model could call it."""
    signature = inspect.signature(function)
    try:
        hints = cast("dict[str, object]", get_type_hints(function, include_extras=True))
    except (NameError, TypeError) as error:
        raise ToolDefinitionError(label, f"its annotations cannot be read: {error}") from error
    if "return" not in hints:
        raise ToolDefinitionError(label, "it does not say what it returns; add a return annotation")
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolDefinitionError(label, f"parameter {name!r} is not a named one; a model passes names only")
        if not _PARAMETER.match(name):
            raise ToolDefinitionError(label, f"parameter {name!r}: providers take up to 64 of A-Z, a-z, 0-9 and '_'")
        if name not in hints:
            raise ToolDefinitionError(label, f"parameter {name!r} has no type")
        if (name == CONTEXT) != (hints[name] is context_type):
            raise ToolDefinitionError(
                label, f"parameter {name!r}: the name 'context' and the type ToolContext go together, or neither"
            )
    return signature, hints


def build_arguments_model(label: str, signature: inspect.Signature, hints: dict[str, object]) -> type[BaseModel]:
    """A strict model of the parameters; ``ToolDefinitionError`` for a type or a default without a JSON form."""
    # The fields have neutral names and the parameters' names as aliases, so that a parameter may be called
    # `copy`, `schema` or `_x` without meeting the attributes of a pydantic model.
    fields: dict[str, tuple[object, FieldInfo]] = {}
    parameters = [item for name, item in signature.parameters.items() if name != CONTEXT]
    for place, parameter in enumerate(parameters):
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[argument_field(place)] = (hints[parameter.name], Field(default, alias=parameter.name))
    try:
        model = create_model(f"{label}_arguments", __config__=_STRICT, **fields)  # type: ignore[call-overload]
        for parameter in parameters:
            if parameter.default is not inspect.Parameter.empty:
                _check_default(label, parameter, hints[parameter.name])
        model.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise ToolDefinitionError(label, f"a parameter has a type without a JSON form: {error}") from error
    return cast("type[BaseModel]", model)


def _check_default(label: str, parameter: inspect.Parameter, hint: object) -> None:
    single = create_model("default", __config__=_STRICT, value=(hint, ...))  # type: ignore[arg-type]  # a type form
    try:
        single.model_validate_json(json.dumps({"value": to_jsonable_python(parameter.default)}, allow_nan=False))
    except (ValidationError, PydanticSerializationError, ValueError) as error:
        raise ToolDefinitionError(
            label, f"parameter {parameter.name!r}: its default {parameter.default!r} is not of its type: {error}"
        ) from error


def argument_field(place: int) -> str:
    """The name of the field of an arguments model that holds the parameter at this place."""
    return f"argument_{place}"
