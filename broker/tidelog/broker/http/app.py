"""The HTTP application of a node, on aiohttp.

Imported when the first request comes (see ``side``), since aiohttp takes longer to import than a
node takes to start. Everything is read-only. Long answers are made in pieces, and the event loop
gets its turn between them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, Final

from aiohttp import web

from tidelog.broker.http import answers
from tidelog.broker.http.answers import Listing, NotFound
from tidelog.broker.http.routes import ROUTES, Route, openapi
from tidelog.broker.metrics.collecting import Collector
from tidelog.broker.metrics.facts import NodeView
from tidelog.broker.metrics.page import CONTENT_TYPE

log = logging.getLogger(__name__)

_ITEMS_PER_SLICE: Final = 50
_MAX_REQUEST_BYTES: Final = 1 << 14


def make_app(view: NodeView, collector: Collector, *, version: str) -> web.Application:
    app = web.Application(middlewares=[_errors_as_json], client_max_size=_MAX_REQUEST_BYTES)

    async def metrics(request: web.Request) -> web.Response:
        text = await collector.page(asyncio.get_running_loop().time())
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def health(request: web.Request) -> web.Response:
        return _json(answers.health(view, {}))

    async def ready(request: web.Request) -> web.Response:
        is_ready, told = answers.readiness(view)
        return _json(told, status=200 if is_ready else 503)

    async def document(request: web.Request) -> web.Response:
        return _json(openapi(version))

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", health)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/v1/openapi.json", document)
    for route in ROUTES:
        app.router.add_get(route.path, _answering(view, route))
    return app


def _answering(view: NodeView, route: Route) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        given = {name: request.query[name] for name in route.query if name in request.query}
        found = route.answer(view, {**given, **request.match_info})
        if not isinstance(found, Listing):
            return _json(found)
        return web.Response(body=await _listed(found), content_type="application/json")

    return answer


async def _listed(listing: Listing) -> bytes:
    parts: list[str] = []
    while some := list(islice(listing.items, _ITEMS_PER_SLICE)):
        parts.append(",".join(json.dumps(item) for item in some))
        await asyncio.sleep(0)
    return f'{{"{listing.key}":[{",".join(parts)}]}}'.encode()


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=json.dumps(value).encode(), status=status, content_type="application/json"
    )


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except NotFound as error:
        return _json({"error": str(error)}, status=404)
    except web.HTTPNotFound:
        known = "see /v1/openapi.json for what there is"
        return _json({"error": f"there is nothing at {request.path}; {known}"}, status=404)
    except web.HTTPMethodNotAllowed as error:
        reply = _json({"error": "everything here is read-only: use GET"}, status=405)
        reply.headers["Allow"] = ",".join(sorted(error.allowed_methods))
        return reply
