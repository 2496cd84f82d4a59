"""The page at `/docs`, and the description of the API that it shows. Everything on it comes from this process."""

from functools import cache
from importlib import resources

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from gossamer.api.problems import not_found

_FILES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}
DOCS_PATHS = frozenset({"/docs", "/openapi.json", "/docs/start.js", *(f"/docs/{name}" for name in _FILES)})

# Addresses are relative, for a proxy that serves the API under a path of its own.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Gossamer's REST API</title>
<link rel="icon" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="docs"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  displayRequestDuration: true,
  validatorUrl: null,
});
"""
_HEADERS = {
    # The browser itself refuses to ask anybody else for anything.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs() -> Response:
    """The page."""
    return HTMLResponse(_PAGE, headers=_HEADERS)


@router.get("/docs/{name}")
async def asset(name: str) -> Response:
    """A file of the page."""
    if name == "start.js":
        return Response(_START, media_type="text/javascript", headers=_HEADERS)
    if name not in _FILES:
        raise not_found(f"there is no /docs/{name}")
    headers = {**_HEADERS, "Cache-Control": "max-age=3600"}
    return Response(_read(name), media_type=_FILES[name], headers=headers)


@router.get("/openapi.json")
async def description(request: Request) -> Response:
    """What OpenAPI says of the endpoints."""
    return Response(request.app.state.description(), media_type="application/json")


@cache
def _read(name: str) -> bytes:
    return (resources.files("fastapi_swagger.resources") / name).read_bytes()
