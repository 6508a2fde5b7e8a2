"""Typed tools for agents: a function, what a model may know of it, and one result for every call."""

from tools.errors import (
    BudgetError,
    InvalidArgumentsError,
    KeyConflictError,
    Kind,
    NotPermittedError,
    ResultTooLargeError,
    StorageBusyError,
    TemporaryToolError,
    ToolDefinitionError,
    ToolError,
    ToolsError,
    ToolStorageError,
    UnknownOutcomeError,
)
from tools.execute import ToolCall, ToolResult, error_result, execute
from tools.tool import Tier, Tool, ToolContext, tool, tools_by_name

__all__ = [
    "BudgetError",
    "InvalidArgumentsError",
    "KeyConflictError",
    "Kind",
    "NotPermittedError",
    "ResultTooLargeError",
    "StorageBusyError",
    "TemporaryToolError",
    "Tier",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolResult",
    "ToolStorageError",
    "ToolsError",
    "UnknownOutcomeError",
    "error_result",
    "execute",
    "tool",
    "tools_by_name",
]
