"""Fields that servers beside OpenAI's own have, and that clients of theirs send here too."""

from __future__ import annotations

from typing import Any

SERVERS_OWN: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True, False),
    "continue_final_message": (True, False),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True, False),
    "spaces_between_special_tokens": (True, False),
    "include_reasoning": (True,),
    "separate_reasoning": (True,),
    "ignore_eos": (False,),
    "echo": (False,),
    "use_beam_search": (False,),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "return_hidden_states": (False,),
    "min_tokens": (0,),
    "best_of": (1,),
    "length_penalty": (1, 1.0),
    "typical_p": (1, 1.0),
    "top_a": (0, 0.0),
    "tfs_z": (1, 1.0),
    "mirostat": (0,),
    "stop_token_ids": ([],),
    "bad_words": ([],),
    "logits_processors": ([],),
    "truncate_prompt_tokens": (None,),
    "allowed_token_ids": (None,),
    "prompt_logprobs": (None,),
}
"""Fields of vLLM, SGLang and their like, in the values with which they ask for what is done here anyway.

Special tokens are never part of a text here, and a last message from the assistant is always gone on with.
"""
