"""The interface description, out of the schemas that validate: what openapi.json holds."""

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin

import schemas

TYPES = {
    schemas.PhoneNumber: ("string", "phone"),
    schemas.Text: ("string", None),
    # RFC 3339, which OpenAPI means by date-time, has no time without an offset, no basic format
    schemas.FutureInstant: ("string", "iso-date-time"),
    schemas.Flag: ("boolean", None),
}

INFO = {
    "description": "Creates text messages, sent immediately or scheduled by the recipient's own "
    "clock.\n\nAn API key is made by the operator of the service: `flask keys create NAME` prints "
    "it, once. Send it as `X-Api-Key`, or as `Authorization: Bearer`.",
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
        "description": "Made by the operator of the service: `flask keys create NAME`.",
    },
    "Bearer": {"type": "http", "scheme": "bearer", "description": "The same API key."},
}

IDEMPOTENCY_KEY = {
    "description": "Any text of your own, such as a UUID. The same key with the same body gets the "
    "first answer again, and no second message; with another body, 400.",
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

# status: name, when, the message of an example
ERRORS = {
    400: (
        "BadRequest",
        "Validation or bad request error; `details.validationErrors` lists the problems.",
        "The request is not valid.",
    ),
    401: (
        "Unauthorized",
        "API key missing or invalid.",
        "The API key is missing or invalid: send it as X-Api-Key or Authorization: Bearer.",
    ),
    403: (
        "Forbidden",
        "The number is on the Do Not Call list, or of a country that texts may not go to.",
        "The recipient is on the Do Not Call list.",
    ),
    405: (
        "MethodNotAllowed",
        "Method not allowed on the path.",
        "The method is not allowed for the requested URL.",
    ),
    413: (
        "ContentTooLarge",
        "The body has more than 64 KiB.",
        "The body has more than 64 KiB.",
    ),
    500: ("InternalServerError", "The service failed.", "Something went wrong on our side."),
    503: (
        "ServiceUnavailable",
        "The service cannot reach its database.",
        "The service cannot reach its database. Try again later.",
    ),
}
DETAILS = {
    400: {"validationErrors": ["to: is not a valid phone number", "message: is required"]},
}
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 405: {"Allow": "POST, OPTIONS"}}


def document() -> dict:
    """Describe the interface in OpenAPI 3.0.

    The request's schema stands in the operation, not among the components: only there does
    openapi-typescript take a field with a default for one that may be left out.
    """
    plugin = MarshmallowPlugin(schema_name_resolver=lambda schema: None)
    spec = APISpec(
        title="Text Message Sending Service",
        version="1.0.0",
        openapi_version="3.0.3",
        info=INFO,
        plugins=[plugin],
        servers=SERVERS,
        security=[{name: []} for name in KEY_SCHEMES],
    )
    for field, type_and_format in TYPES.items():
        plugin.map_to_openapi_type(field, *type_and_format)
    for schema in (schemas.TextMessageResponse, schemas.Error):
        spec.components.schema(schema.__name__, schema=schema)
        described = spec.components.schemas[schema.__name__]
        described["required"] = list(described["properties"])  # an answer has all its fields
    for name, scheme in KEY_SCHEMES.items():
        spec.components.security_scheme(name, scheme)
    spec.components.parameter("Idempotency-Key", "header", IDEMPOTENCY_KEY)
    for status, (name, description, message) in ERRORS.items():
        spec.components.response(name, _response(status, description, message))
    spec.tag({"name": "Text messages", "description": "Texts to one phone number each."})
    spec.path(
        "/v1/text-messages",
        operations={
            "post": {
                "operationId": "createTextMessage",
                "summary": "Create (send or schedule) a text message",
                "description": "Without `send_date`, the text goes now where it is business hours "
                "at the recipient's, or else at their next opening; with `send_date`, at that "
                "instant. The answer says which, and what it knows of the recipient.",
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
                        "description": "The message is created.",
                        "content": {"application/json": {"schema": schemas.TextMessageResponse}},
                    }
                }
                | {status: name for status, (name, *_) in ERRORS.items()},
            }
        },
    )
    described = spec.to_dict()
    order = ("openapi", "info", "servers", "security", "tags", "paths", "components")
    return {part: described[part] for part in order}


def _response(status, description, message):
    example = {
        "error": True,
        "message": message,
        "statusCode": status,
        "details": DETAILS.get(status, {}),
        "timestamp": "2026-03-03T17:00:00.000Z",
    }
    response = {
        "description": description,
        "content": {"application/json": {"schema": schemas.Error, "example": example}},
    }
    if status in HEADERS:
        response["headers"] = {
            name: {"required": True, "schema": {"type": "string"}, "example": value}
            for name, value in HEADERS[status].items()
        }
    return response
