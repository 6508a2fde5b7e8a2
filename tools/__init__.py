"""Typed tools for agents: a function, what a model may know of it, and one result for every call."""

from tools.address import contact_key, is_plain_address, same_address
from tools.audit import AuditedTools, AuditLog, AuditRow
from tools.audit_table import AuditCheck
from tools.budget import Round, run_calls
from tools.calculator import CalculationError, calculate, evaluate
from tools.call import ToolCall, ToolResult, error_result
from tools.email import RECORD_EMAIL, Mailer, send_email_tool
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
    UnknownDeliveryError,
)
from tools.execute import execute, prepare
from tools.outbox import Delivery, DeliveryChange, DeliveryState
from tools.redact import Redaction
from tools.retrieve import Document, DocumentIndex, Passage, search_tool
from tools.smtp import Outcome, SmtpTransport, Transport
from tools.tool import Tier, Tool, ToolContext, tool, tools_by_name

__all__ = [
    "RECORD_EMAIL",
    "AuditCheck",
    "AuditLog",
    "AuditRow",
    "AuditedTools",
    "BudgetError",
    "CalculationError",
    "Delivery",
    "DeliveryChange",
    "DeliveryState",
    "Document",
    "DocumentIndex",
    "InvalidArgumentsError",
    "KeyConflictError",
    "Kind",
    "Mailer",
    "NotPermittedError",
    "Outcome",
    "Passage",
    "Redaction",
    "ResultTooLargeError",
    "Round",
    "SmtpTransport",
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
    "Transport",
    "UnknownDeliveryError",
    "calculate",
    "contact_key",
    "error_result",
    "evaluate",
    "execute",
    "is_plain_address",
    "prepare",
    "run_calls",
    "same_address",
    "search_tool",
    "send_email_tool",
    "tool",
    "tools_by_name",
]
