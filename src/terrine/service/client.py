"""A labeller on another machine: the same method, paid from the service's ledger."""

from __future__ import annotations

import io
import json
import math
import os
import random
import time
import weakref
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError

from terrine import _validate
from terrine._files import write_atomically
from terrine._optional import require
from terrine.budgets import mechanism_from_json
from terrine.datasets.data import array_of
from terrine.errors import (
    BudgetError,
    InputError,
    LedgerError,
    QuotaError,
    RequestError,
    ServiceError,
    TestedRowsError,
    TestFailedError,
    UnreadWarning,
    warn_caller,
)
from terrine.ledger import Head
from terrine.ledger.entries import is_digest
from terrine.ledger.merkle import EMPTY, is_consistent, is_included
from terrine.mechanisms import ABSTAIN, Answers, InteractiveGNMax, Mechanism, Outcome
from terrine.service import schemas
from terrine.service.encoder_files import EncoderFiles, is_table_of_rows
from terrine.service.schemas import About, Budget

require("httpx", use="The client of a label service", extra="service")
import httpx  # noqa: E402

Progress = Callable[[float], object]
KEY = "TERRINE_API_KEY"

_NPY = "application/x-npy"
_OUTCOMES = {
    "answered": Outcome.TEACHERS,
    "reinforced": Outcome.REINFORCED,
    "withheld": Outcome.ABSTAINED,
    "unasked": Outcome.UNASKED,
}
_AGAIN = (429, 502, 503, 504)  # what may pass; a request is charged once however often it is sent


class RemoteLabeller:
    """Asks a label service. It takes and gives what `Labeller` does.

    Args:
        url: of the service, as https://labels.example.org.
        key: as `terrine keys create` printed it (default: the environment's TERRINE_API_KEY).
        batch: rows in one request.
        retries: how often a request that failed on the way is sent again, with the same id.
        timeout: seconds for one request.
        head: a file that keeps the ledger's head and root; a service that does not prove that its ledger continues from
            there is refused, now and at every later call. Without a file the same holds as long as this object lives.

    Attributes:
        route: "teachers", or "probe" where a trained probe answers; then ``mechanism`` and ``n_teachers`` are None.
        why_unasked: where the last call of `label` left rows unasked, "budget_exhausted" or "quota_exhausted".
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        batch: int = 1000,
        retries: int = 8,
        timeout: float = 120.0,
        head: str | Path | None = None,
    ) -> None:
        self._key_from = "key=" if key else KEY
        key = key or os.environ.get(KEY)
        if not key:
            raise InputError(f"No API key for {url}. Set {KEY} in the environment, or pass key=.")
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise InputError("url must start with http:// or https://, as in https://labels.example.org.")
        self.url = url.rstrip("/")
        self._retries = _validate.integer("retries", retries, at_least=0)
        self._head = None if head is None else Path(head)
        self._last: dict[str, str] | None = None
        self.why_unasked: str | None = None
        try:
            headers = {"Authorization": f"Bearer {key}"}
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout)
        except (httpx.InvalidURL, UnicodeEncodeError):
            raise InputError(
                "The service's URL cannot be read, or the key has characters that are not ASCII."
            ) from None
        weakref.finalize(self, self._http.close)
        about = self.about()
        self.route = about.route
        first = about.mechanism
        self.mechanism: Mechanism | None = None if first is None else mechanism_from_json(first)
        self.rounds: tuple[Mechanism | None, ...] = tuple(map(mechanism_from_json, about.rounds)) or (self.mechanism,)
        self.classes: tuple[str, ...] = tuple(about.classes)
        self.row_shape: tuple[int, ...] = tuple(about.row_shape)
        self.n_teachers: int | None = about.n_teachers
        batch = max(_validate.integer("batch", batch, at_least=1), about.one_release or 1)  # a release is asked whole
        self._batch = min(batch, about.rows_at_most)
        self._index = {name: k for k, name in enumerate(self.classes)}

    def about(self) -> About:
        """What the service takes and gives, and its guarantee."""
        try:
            found = About.model_validate(self._call("GET", "/v1/about"), strict=True)
            for one in (found.mechanism, *found.rounds):
                if one is not None:
                    mechanism_from_json(one)
        except ValidationError as error:
            first = error.errors()[0]
            wrong = f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
        except InputError as error:
            wrong = f"mechanism: {str(error).rstrip('.')}"
        else:
            return found
        raise ServiceError(
            f"{self.url} does not answer /v1/about as a terrine label service does ({wrong}). Check "
            "the URL and the service's version."
        )

    def encoder(self) -> EncoderFiles | None:
        """What makes numbers of a table's rows there, as `Encoder.from_files` takes it; None where there is none."""
        digest = self.about().encoder
        if digest is None:
            return None
        try:
            found = schemas.Encoder.model_validate(self._call("GET", "/v1/encoder"), strict=True)
            return EncoderFiles.unpacked(found.files, sha256=digest)
        except (ValidationError, InputError):
            raise ServiceError(
                f"{self.url} did not send its encoder as a terrine label service does. Make the same call again; if it "
                "fails again, ask the service's owner."
            ) from None

    def budget(self) -> Budget:
        """What is spent and left there. Its head is kept, once it is proved to continue from the one kept before."""
        kept = self._kept()  # before the call: another process may keep a newer head meanwhile
        found = self._call("GET", "/v1/budget")
        self._compare(found, kept)
        try:
            return Budget.model_validate(found, strict=True)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise ServiceError(f"/v1/budget at {self.url} has no usable {where}; its version is not known.") from None

    def label(
        self,
        X: Any,
        *,
        request_id: str,
        student_proba: ArrayLike | None = None,
        round: int = 1,
        progress: Progress | None = None,
    ) -> Answers:
        """Answers to public rows, as `Labeller.label` gives them: the same request again costs nothing.

        Where the budget, or the key's quota, has room for some rows only, the rest are `Outcome.UNASKED`, and
        `why_unasked` says which it was; where it has room for none, BudgetError or QuotaError is raised. ``round``
        chooses among the service's ``rounds``, where it has several mechanisms. A service with a probe (``route``)
        labels all rows, and charges nothing.

        Args:
            X: rows of numbers as the teachers take them; or, where the owner's rows are a table, a table (of pandas,
                polars or Arrow, of `read_table`, lists by name, or a list of dicts), whose rows the service's encoder
                makes numbers of, here. A label or a unit among its columns is left out. Cells that cannot be read, or
                that the schema does not list, are warned of (`UnreadWarning`); where most of a column cannot be read,
                the table is refused, and nothing asked.
        """
        round = _validate.integer("round", round, at_least=1)
        if round > len(self.rounds):
            raise InputError(f"round must be at most {len(self.rounds)}, the rounds of {self.url}, got {round}.")
        mechanism = self.rounds[round - 1]
        rows = self._numbers(X)
        if rows.shape[1:] != self.row_shape:
            table = "" if self._encoder is None else " Give the table itself: the service's encoder makes them of it."
            raise InputError(f"X must have rows of shape {self.row_shape}, got {rows.shape[1:]}.{table}")
        if isinstance(mechanism, InteractiveGNMax) != (student_proba is not None):
            raise InputError("InteractiveGNMax needs student_proba; no other mechanism takes it.")
        proba = None if student_proba is None else np.asarray(student_proba, dtype=np.float64)
        if proba is not None and proba.shape != (len(rows), len(self.classes)):
            raise InputError(f"student_proba must have shape {(len(rows), len(self.classes))}, got {proba.shape}.")
        of_round = {} if round == 1 else {"round": round}  # an older service knows no rounds
        self.budget()  # before as after: all answers are of one ledger
        labels = np.full(len(rows), ABSTAIN, dtype=np.int64)
        outcomes = np.full(len(rows), int(Outcome.UNASKED), dtype=np.int64)
        secure, self.why_unasked = True, None
        exhausted: BudgetError | None = None
        for start in range(0, len(rows), self._batch):
            part = slice(start, start + self._batch)
            try:
                name = request_id if len(rows) <= self._batch else f"{request_id} {start}+{self._batch}"
                found = self._ask(rows[part], name, None if proba is None else proba[part], **of_round)
            except BudgetError as error:
                exhausted = error  # rows that were answered before still have their answers: go on
                self.why_unasked = "quota_exhausted" if isinstance(error, QuotaError) else "budget_exhausted"
                continue
            labels[part], outcomes[part] = self._read(found, len(labels[part]))
            secure = secure and bool(found.get("secure"))
            self.why_unasked = found.get("why_unasked") or self.why_unasked
            if progress is not None:
                progress(min(part.stop, len(rows)) / len(rows))
        if exhausted is not None and (outcomes == Outcome.UNASKED).all():
            raise exhausted
        self.budget()
        return Answers(labels=labels, outcomes=outcomes, mechanism=mechanism, secure=secure)

    def names_of(self, answers: Answers) -> list[str | None]:
        """The class that each answer names; None where there is no answer."""
        return [None if label == ABSTAIN else self.classes[label] for label in answers.labels.tolist()]

    @cached_property
    def _encoder(self) -> EncoderFiles | None:
        return self.encoder()

    def _numbers(self, X: Any) -> NDArray[Any]:
        """Rows as they are sent."""
        if is_table_of_rows(X) and self._encoder is not None:
            rows, told = self._encoder.read(X, role="X")
            for one in told:
                warn_caller(str(one), UnreadWarning)
            return rows
        return array_of(X, who="This label service")

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        who = "a probe" if self.mechanism is None else f"{self.mechanism} of {self.n_teachers} teachers"
        return f"<RemoteLabeller: {who}, at {self.url}>"

    def _ask(
        self, rows: NDArray[Any], request_id: str, proba: NDArray[np.float64] | None, **params: int
    ) -> dict[str, Any]:
        if proba is not None:
            sent = {"request_id": request_id, "rows": rows.tolist(), "student_proba": proba.tolist()}
            return self._call("POST", "/v1/labels", params=params, json=sent)
        file = io.BytesIO()
        np.save(file, np.ascontiguousarray(rows), allow_pickle=False)
        return self._call(
            "POST",
            "/v1/labels",
            params={"request_id": request_id, **params},
            content=file.getvalue(),
            headers={"Content-Type": _NPY},
        )

    def _read(self, found: dict[str, Any], n_rows: int) -> tuple[list[int], list[int]]:
        try:
            labels = [ABSTAIN if name is None else self._index[name] for name in found["labels"]]
            outcomes = [int(_OUTCOMES[name]) for name in found["outcomes"]]
        except (KeyError, TypeError):
            labels, outcomes = [], []
        if len(labels) != n_rows or len(outcomes) != n_rows:
            raise ServiceError(
                f"{self.url} did not send the {n_rows} labels that it was asked for. Check the service's version."
            )
        return labels, outcomes

    def _call(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        """One request, sent again with the same id while that may help."""
        for attempt in range(self._retries + 1):
            wait = min(0.2 * 2**attempt, 10.0) * random.uniform(0.5, 1.0)
            try:
                response = self._http.request(method, path, **sent)
            except httpx.HTTPError as error:
                failure = f"{self.url} did not answer ({type(error).__name__})"
            else:
                if response.status_code not in _AGAIN:
                    return self._value(response)
                failure = f"{self.url} answered with status {response.status_code}"
                asked = response.headers.get("Retry-After", "")
                wait = max(wait, min(float(asked), 60.0)) if asked.isdecimal() else wait
            if attempt < self._retries:
                time.sleep(wait)
        raise ServiceError(
            f"{failure}, {self._retries + 1} times. Make the same call again: it continues where this one stopped."
        )

    def _value(self, response: httpx.Response) -> dict[str, Any]:
        try:
            value = response.json()
            if response.status_code == 200:
                return dict(value)
            error = value["error"]
            code, message = str(error["code"]), " ".join(str(error["message"]).split())
            left = {str(name): float(number) for name, number in (error.get("left") or {}).items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            said = f"status {response.status_code}, and no JSON"
            raise ServiceError(
                f"{self.url} does not answer as a terrine label service does ({said}). Check the URL."
            ) from None
        match code:
            case "budget_exhausted" | "quota_exhausted":
                raise (QuotaError if code == "quota_exhausted" else BudgetError)(
                    f"{error.get('requested')} queries",
                    ", ".join(f"{number:g} {name}" for name, number in left.items()),
                )
            case "request_conflict":
                raise RequestError(message)
            case "test_failed":
                numbers = (error.get("epsilon"), error.get("delta"))
                epsilon, delta = (float(one) if isinstance(one, int | float) else math.nan for one in numbers)
                raise TestFailedError(epsilon, delta, lost=error.get("lost") is True)
            case "tested_rows":
                raise TestedRowsError(message)
            case "bad_rows" | "bad_body" | "bad_request" | "body_too_large":
                raise InputError(message)
            case "unknown_key":
                raise ServiceError(
                    f"{self.url} does not know this key (from {self._key_from}), or it was revoked. Ask the service's "
                    f"owner for a new one, and give it as key=, or in the environment as {KEY}."
                )
            case _:
                raise ServiceError(f"{self.url} refused the request. {code}: {message}")

    def _kept(self) -> dict[str, str] | None:
        """The ledger's id, head and root as they were last connected; an older client kept no root."""
        kept = self._last
        if self._head is not None and self._head.is_file():
            try:
                kept = json.loads(self._head.read_text())
            except ValueError:
                kept = {}
        if kept is not None:
            try:
                Head.parse(kept["head"])
                if not isinstance(kept["ledger_id"], str) or not is_digest(kept.get("root", "0" * 64)):
                    raise ValueError
            except (AttributeError, KeyError, TypeError, ValueError):
                raise LedgerError(
                    f"{self._head} does not hold a ledger's head. Put back the file that this client wrote."
                ) from None
        return kept

    def _compare(self, budget: dict[str, Any], kept: dict[str, str] | None) -> None:
        """Keep the newer head if the service proves that its ledger continues the kept one; refuse it if not."""
        try:
            now = {name: str(budget[name]) for name in ("ledger_id", "head", "root")}
            head = Head.parse(now["head"])
            if not is_digest(now["root"]):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise LedgerError(
                f"{self.url} does not publish its ledger's head and root. It is older than this client, "
                "or not a terrine label service."
            ) from None
        if kept is not None and kept["ledger_id"] != now["ledger_id"]:
            raise LedgerError(
                f"{self.url} now uses a different ledger than before ({now['ledger_id'][:40]}). Ask "
                "whoever runs it why."
            )
        before = Head.parse(kept["head"]) if kept else None
        why = self._disconnected(before, (kept or {}).get("root"), head, now["root"])
        if why is not None:
            was = "nothing" if before is None else f"{str(before)[:20]}..."
            raise LedgerError(
                f"The ledger of {self.url} does not continue from {was} to {str(head)[:20]}...: {why}. "
                "An older one was restored, or entries were changed. Do not use its answers; tell "
                "whoever runs it."
            )
        unchanged = self._kept() == kept  # else another process kept a newer one
        self._last = now
        if self._head is not None and now != kept and unchanged:
            write_atomically(self._head, lambda file: file.write(json.dumps(now).encode()))

    def _disconnected(self, before: Head | None, old_root: str | None, head: Head, root: str) -> str | None:
        """Why the head does not continue the one before; None if it does."""
        first, second = before.seq if before else 0, head.seq
        if second < first:
            return "it is shorter"
        if second == 0:
            return "it starts differently" if root != EMPTY or before not in (None, head) else None
        if before == head and old_root == root:
            return None
        if before is not None and first == second and (before != head or old_root not in (None, root)):
            return "its newest entry is a different one"
        try:
            found = self._call("GET", "/v1/ledger/consistency", params={"first": first, "second": second})
            paths = [list(found[name]) for name in ("path", "first_path", "second_path")]
            if not all(is_digest(value) for path in paths for value in path):
                raise ValueError
        except (InputError, KeyError, TypeError, ValueError):
            return "it gives no proof"
        path, first_path, second_path = paths
        if not is_included(head.digest, index=second - 1, size=second, path=second_path, root=root):
            return "its newest entry is not in its tree"
        if before is None or first == 0:
            return None
        if not is_included(before.digest, index=first - 1, size=second, path=first_path, root=root):
            return "the entry that was kept is not in it"
        if old_root is not None and not is_consistent(
            first=first, second=second, first_root=old_root, root=root, path=path
        ):
            return "its tree does not contain the one that was kept"
        return None
