"""The text of openapi.json, generated from the schemas that validate requests."""

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin

import schemas

TYPES = {
    schemas.PhoneNumber: ("string", "phone"),
    schemas.Text: ("string", None),
    # OpenAPI's date-time is RFC 3339: it needs an offset and has no basic format
    schemas.FutureInstant: ("string", "iso-date-time"),
    schemas.Flag: ("boolean", None),
}

INFO = {
    "description": "Creates text messages, sent immediately or scheduled by the recipient's own "
    "clock.\n\nThe operator of the service creates API keys: `flask keys create NAME` prints one, "
    "once. Send it as `X-Api-Key` or as `Authorization: Bearer`.",
    "contact": {"name": "The operator of this service"},
    "license": {"name": "MIT", "url": "https://opensource.org/license/mit"},
}

SERVERS = [
    {"url": ".", "description": "This service"},
    {
        "url": "https://{host}/{stage}",
        "description": "A stage of a deployment",
        "variables": {
            "host": {"default": "texts.example.com"},
            "stage": {"default": "production", "enum": ["dev", "staging", "production"]},
        },
    },
]

KEY_SCHEMES = {
    "ApiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Api-Key",
        "description": "Created by the operator of the service: `flask keys create NAME`.",
    },
    "Bearer": {"type": "http", "scheme": "bearer", "description": "The same API key."},
}

IDEMPOTENCY_KEY = {
    "description": "Any text of your own, such as a UUID. The same key with the same body returns "
    "the first answer and creates no second message; with another body it is refused.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
}

REQUESTS = {
    "now": {
        "summary": "Send as soon as it is business hours",
        "value": {"to": "+12125550123", "message": "Your table is ready."},
    },
    "later": {
        "summary": "Schedule, with every option",
        "value": {
            "to": "+12125550123",
            "message": "Your table is booked for tonight.",
            "send_date": "2099-11-05T14:05:00-05:00",
            "manual_mode": True,
            "available_to_group": True,
            "check_dnc": True,
        },
    },
}

RESPONSES = {
    400: ("BadRequest", "Invalid request; `details.validationErrors` lists the problems."),
    401: ("Unauthorized", "API key missing or invalid."),
    403: ("Forbidden", "The number is on the Do Not Call list, or its country is not allowed."),
    405: ("MethodNotAllowed", "Method not allowed on the path."),
    413: ("ContentTooLarge", "The body has more than 64 KiB."),
    500: ("InternalServerError", "The service failed."),
    503: ("ServiceUnavailable", "The service cannot reach its database."),
}
MESSAGES = {  # of the examples
    400: "The request is not valid.",
    401: "The API key is missing or invalid: send it as X-Api-Key or Authorization: Bearer.",
    403: "The recipient is on the Do Not Call list.",
    405: "The method is not allowed for the requested URL.",
    413: "The body has more than 64 KiB.",
    500: "Something went wrong on our side.",
    503: "The service cannot reach its database. Try again later.",
}
PROBLEMS = ["to: is not a valid phone number", "message: is required"]
HEADERS = {401: ("WWW-Authenticate", "Bearer"), 405: ("Allow", "POST, OPTIONS")}


def document() -> dict:
    """Return the description of the interface in OpenAPI 3.0.

    The schema of the request is inlined in the operation: among the components, openapi-typescript
    would make fields with a default required.
    """
    plugin = MarshmallowPlugin(schema_name_resolver=lambda schema: None)
    spec = APISpec(
        title="Text Message Sending Service",
        version="1.0.0",
        openapi_version="3.0.3",
        plugins=[plugin],
        info=INFO,
        servers=SERVERS,
        security=[{name: []} for name in KEY_SCHEMES],
        tags=[{"name": "Text messages", "description": "Texts to one phone number each."}],
    )
    for field, type_and_format in TYPES.items():
        plugin.map_to_openapi_type(field, *type_and_format)
    for schema in (schemas.TextMessageResponse, schemas.Error):
        spec.components.schema(schema.__name__, schema=schema)
        described = spec.components.schemas[schema.__name__]
        described["required"] = list(described["properties"])  # every answer has all fields
    for name, scheme in KEY_SCHEMES.items():
        spec.components.security_scheme(name, scheme)
    spec.components.parameter("Idempotency-Key", "header", IDEMPOTENCY_KEY)
    for status, (name, description) in RESPONSES.items():
        spec.components.response(name, {"description": description} | _error(status))
    spec.path(
        "/v1/text-messages",
        operations={
            "post": {
                "operationId": "createTextMessage",
                "summary": "Create (send or schedule) a text message",
                "description": "Without `send_date`, the text is sent now if the recipient is "
                "within business hours, otherwise at their next opening; with `send_date`, at that "
                "instant. The answer says which, and describes the recipient.",
                "tags": ["Text messages"],
                "parameters": ["Idempotency-Key"],
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": schemas.TextMessageRequest,
                            "examples": REQUESTS,
                        }
                    },
                },
                "responses": {
                    201: {
                        "description": "The message was created.",
                        "content": {"application/json": {"schema": schemas.TextMessageResponse}},
                    }
                }
                | {status: name for status, (name, _) in RESPONSES.items()},
            }
        },
    )
    described = spec.to_dict()
    order = ("openapi", "info", "servers", "security", "tags", "paths", "components")
    return {part: described[part] for part in order}


def _error(status):
    example = {
        "error": True,
        "message": MESSAGES[status],
        "statusCode": status,
        "details": {"validationErrors": PROBLEMS} if status == 400 else {},
        "timestamp": "2026-03-03T17:00:00.000Z",
    }
    response = {"content": {"application/json": {"schema": schemas.Error, "example": example}}}
    if status in HEADERS:
        name, value = HEADERS[status]
        header = {"required": True, "schema": {"type": "string"}, "example": value}
        response["headers"] = {name: header}
    return response
