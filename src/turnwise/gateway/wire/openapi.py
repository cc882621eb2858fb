"""Request schemas of the wire formats for the OpenAPI document, from the models that check the bodies.

The routes read raw bodies, so FastAPI cannot see them. Fields that are only kept in the record may have any value.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel

from turnwise.gateway.wire.chat import request as chat_input
from turnwise.gateway.wire.messages import request as messages_input
from turnwise.gateway.wire.responses import request as responses_input

_MODELS: dict[str, tuple[type[BaseModel], frozenset[str], dict[str, tuple[Any, ...]]]] = {
    "chat": (chat_input.ChatFields, chat_input.KEPT_FIELDS, chat_input.NEUTRAL_VALUES),
    "responses": (responses_input.ResponsesFields, responses_input.KEPT_FIELDS, responses_input.NEUTRAL_VALUES),
    "messages": (messages_input.MessagesFields, messages_input.KEPT_FIELDS, messages_input.NEUTRAL_VALUES),
}


@cache
def request_schema(codec_name: str) -> dict[str, Any]:
    """The `openapi_extra` of a wire format's route."""
    model, kept, neutral = _MODELS[codec_name]
    schema = model.model_json_schema(by_alias=True)
    properties = schema["properties"] | {name: {} for name in kept}
    properties |= {name: {"enum": list(values)} for name, values in neutral.items()}
    body = {key: value for key, value in _inlined(schema, schema.get("$defs", {})).items() if key != "$defs"}
    body["properties"] = _inlined(properties, schema.get("$defs", {}))
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}}


def _inlined(value: Any, definitions: dict[str, Any]) -> Any:
    """The schema with its definitions put where they are named: the document has no place for them."""
    if isinstance(value, list):
        return [_inlined(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inlined(definitions[value["$ref"].rsplit("/", 1)[1]], definitions)
    return {key: _inlined(item, definitions) for key, item in value.items()}
