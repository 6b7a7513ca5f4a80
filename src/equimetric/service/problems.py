"""Error responses: a status, and one sentence that says what is wrong and what to do."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from equimetric.errors import EquimetricError, StorageError, quote
from equimetric.escaping import one_line

__all__ = ["Problem", "RefusedError", "handle_problems", "problem_response"]

SENTENCES = {
    400: "the request cannot be read; send a form with the fields that /docs lists",
    404: "there is nothing at this address; see /docs for those that exist",
    405: "this address does not take that method; see /docs for those it takes",
}
"""Messages for errors that the framework raises itself."""


class Problem(BaseModel):
    """The body of an error response."""

    detail: str = Field(description="One sentence that says what is wrong and what to do.")


class RefusedError(HTTPException):
    """A request that cannot be answered."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, sentence, headers)


def problem_response(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response to a refused request."""
    return JSONResponse(Problem(detail=one_line(sentence)).model_dump(), status, headers)


def handle_problems(app: FastAPI) -> None:
    """Answer every error in the same form."""

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        has_detail = isinstance(error, RefusedError) or error.status_code not in SENTENCES
        sentence = error.detail if has_detail else SENTENCES[error.status_code]
        return problem_response(error.status_code, sentence, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem_response(422, describe_invalid(error.errors()))

    @app.exception_handler(StorageError)
    async def not_stored(_: Request, error: StorageError) -> JSONResponse:
        return problem_response(507, str(error))

    @app.exception_handler(EquimetricError)
    async def conflict(_: Request, error: EquimetricError) -> JSONResponse:
        return problem_response(409, str(error))

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> JSONResponse:  # noqa: ARG001  (the server logs it)
        return problem_response(500, "the server failed to answer; the reason is in its log")


def describe_invalid(errors: Sequence[Any]) -> str:
    """The first of the errors that a request has, as a sentence."""
    first = errors[0]
    location = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    if first["type"] == "missing":
        return f"{location} is missing; send it as a field of the form"
    input_value = first.get("input")
    value = f" is {quote(input_value)}" if isinstance(input_value, str | int | float) else ""
    return f"{location}{value}: {first['msg'].lower()}; see /docs"
