"""Errors as the service sends them: a status, a stable code, a line for people, and numbers for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from terrine.errors import (
    BudgetError,
    InputError,
    LedgerError,
    QuotaError,
    RequestError,
    TeachersError,
    TerrineError,
    TestedRowsError,
    TestFailedError,
)
from terrine.service.batching import Busy
from terrine.service.limits import Refused
from terrine.service.parsing import BodyError


def kind(error: TerrineError) -> tuple[int, str, dict[str, str] | None]:
    """Status, code and headers."""
    match error:
        case Refused():
            return error.status, error.code, error.headers
        case QuotaError():
            return 402, "quota_exhausted", None
        case BudgetError():
            return 402, "budget_exhausted", None
        case TestFailedError():
            return 410, "test_failed", None
        case TestedRowsError():
            return 422, "tested_rows", None
        case Busy():
            return 503, "busy", {"Retry-After": "1"}
        case BodyError():
            return 400, "bad_body", None
        case RequestError():
            return 409, "request_conflict", None
        case LedgerError():
            return 503, "ledger_unavailable", {"Retry-After": "1"}
        case TeachersError():
            return 503, "teachers_failed", None
        case InputError():
            return 422, "bad_rows", None
        case _:
            return 503, "unavailable", None


def failure(
    request: Request,
    status: int,
    code: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    **numbers: Any,
) -> JSONResponse:
    request.state.code = code
    return JSONResponse(
        {"error": {"code": code, "message": message, **numbers}}, status_code=status, headers=dict(headers or {})
    )


def refusal(request: Request, error: TerrineError, **numbers: Any) -> JSONResponse:
    status, code, headers = kind(error)
    if isinstance(error, TestFailedError):
        numbers |= {"epsilon": error.epsilon, "delta": error.delta, "lost": error.lost}
    return failure(request, status, code, str(error), headers, **numbers)
