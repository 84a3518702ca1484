"""Requests that schemathesis makes from the OpenAPI schema, right ones and wrong ones."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis
import requests
import schemathesis
from schemathesis import GenerationMode

from anneal.campaign.campaign import Campaign
from served import Site, page_of
from torture.grounds import small_campaign

AT_ONCE = 100  # requests of one kind, at most: to begin with a kind takes as long as twenty requests
HANGS = 300  # seconds without a reply; a busy machine may take long
QUIET = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.filter_too_much]


def run(count: int) -> str:
    """At least ``count`` requests; none may be answered with a 5xx."""
    with TemporaryDirectory() as scratch:
        campaign = Campaign.open(small_campaign(Path(scratch)))
        with page_of(campaign) as site:
            said = fuzz(site, count)
        campaign.close()
    return said


def fuzz(site: Site, count: int) -> str:
    schema: Any = schemathesis.openapi.from_url(f"{site.address}openapi.json", timeout=HANGS)
    schema.config.update(base_url=site.address.rstrip("/"))
    operations = [result.ok() for result in schema.get_all_operations()]
    at_once = min(AT_ONCE, max(count // (len(operations) * len(GenerationMode)), 2))
    statuses: Counter[int] = Counter()
    seed = 0
    with requests.Session() as session:
        while statuses.total() < count:  # some operations have few different requests
            for operation in operations:
                for mode in GenerationMode:
                    _fuzz_one(operation, mode, seed, at_once, session, statuses)
            seed += 1
    by_status = ", ".join(f"{number:,} × {status}" for status, number in sorted(statuses.items()))
    return f"{statuses.total():,} requests to {len(operations)} operations: 0 × 5xx ({by_status})"


def _fuzz_one(
    operation: Any,
    mode: GenerationMode,
    seed: int,
    at_once: int,
    session: requests.Session,
    statuses: Counter[int],
) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=at_once,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],  # what was found first is small enough
        suppress_health_check=QUIET,
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the requests library thinks about wrong headers
            reply = case.call(session=session, timeout=HANGS)
        statuses[reply.status_code] += 1
        assert reply.status_code < 500, (case.as_curl_command(), reply.content[:200])

    try:
        ask()
    except hypothesis.errors.Unsatisfiable:
        return  # nothing about this operation can be wrong
