"""The errors of the tools, each class carrying what the model may do about it.

    ToolsError
    |-- ToolDefinitionError          a function that cannot become a tool; raised where it is written
    `-- ToolError                    raised while a tool runs            kind "failed"
        |-- InvalidArgumentsError    correct the arguments, call again   kind "invalid_arguments"
        |-- TemporaryToolError       the same call may work later        kind "temporary"
        |-- NotPermittedError        do not try again                    kind "not_permitted"
        |   `-- KeyConflictError     one key, two different contents
        |-- ResultTooLargeError      ask for less                        kind "too_large"
        |-- BudgetError              no calls left                       kind "budget"
        |-- UnknownDeliveryError     may have happened; never repeated   kind "failed"
        `-- ToolStorageError         a file that cannot be used          kind "failed"
            `-- StorageBusyError     another writer holds the file       kind "temporary"

The kind of a failure is read from the class of the exception and never from its text.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "ok",
    "invalid_arguments",
    "temporary",
    "not_permitted",
    "unknown_tool",
    "too_large",
    "budget",
    "failed",
]
"""What a result means for the model: `ok`, or why the call did not get through and what it may do next."""

ERROR_KINDS: frozenset[Kind] = frozenset(
    {"invalid_arguments", "temporary", "not_permitted", "unknown_tool", "too_large", "budget", "failed"}
)


class ToolsError(Exception):
    """Anything this package raises on purpose."""


class ToolDefinitionError(ToolsError):
    """A function, or a set of tools, that does not say enough to be offered to a model."""

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(f"tool {tool!r}: {problem}")
        self.tool = tool
        self.problem = problem

    def __reduce__(self) -> tuple[type[ToolDefinitionError], tuple[str, str]]:
        return type(self), (self.tool, self.problem)


class ToolError(ToolsError):
    """A tool could not do its work. A subclass says what the model may do by its ``kind``."""

    kind: ClassVar[Kind] = "failed"


class InvalidArgumentsError(ToolError):
    """The arguments are well formed and still not usable; other ones may be."""

    kind: ClassVar[Kind] = "invalid_arguments"


class TemporaryToolError(ToolError):
    """Nothing was done, and the same call may work later."""

    kind: ClassVar[Kind] = "temporary"


class NotPermittedError(ToolError):
    """The call is against a rule; trying again cannot help."""

    kind: ClassVar[Kind] = "not_permitted"


class KeyConflictError(NotPermittedError):
    """The key of a once-only effect was used before for a different content; nothing was done."""


class ResultTooLargeError(ToolError):
    """The result is larger than the tool may return; a narrower call is needed."""

    kind: ClassVar[Kind] = "too_large"


class BudgetError(ToolError):
    """The run has no tool calls left, or repeats itself."""

    kind: ClassVar[Kind] = "budget"


class UnknownDeliveryError(ToolError):
    """The effect may or may not have happened; it is never repeated without a person."""


class ToolStorageError(ToolError):
    """A file that cannot be opened, is damaged, or holds something else."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[ToolStorageError], tuple[str, str]]:
        return type(self), (self.path, self.problem)


class StorageBusyError(ToolStorageError):
    """Another writer held the file for longer than the time-out."""

    kind: ClassVar[Kind] = "temporary"
