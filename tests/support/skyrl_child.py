"""SkyRL's Tinker server and its engine, as they are, on loopback and on a Python 3.11 that it was not packed for.

It runs in the environment that `make test-tinker` makes, and knows nothing of turnwise. The server starts its engine
with `uv`; here it is this file once more, in the same environment.
"""

import runpy
import sys
import typing

import typing_extensions

if sys.version_info < (3, 12):  # pydantic takes no other TypedDict there
    typing.TypedDict = typing_extensions.TypedDict

ENGINE = "--engine"


def main() -> None:
    if ENGINE in sys.argv:
        sys.argv.remove(ENGINE)
        runpy.run_module("skyrl.tinker.engine", run_name="__main__")
        return
    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, config_to_argv

    folder, model, port = sys.argv[1:]
    engine = EngineConfig(
        base_model=model,
        backend="jax",
        # two texts at a time: what belongs to one optimiser step is accumulated there
        backend_config={"max_lora_adapters": 128, "max_lora_rank": 16, "train_micro_batch_size": 2},
        session_timeout_sec=30,
        session_cleanup_interval_sec=5,
        checkpoints_base=f"{folder}/checkpoints",
        database_url=f"sqlite:///{folder}/tinker.db",
    )
    api._build_uv_run_cmd_engine = lambda _parent, config: [sys.executable, __file__, ENGINE, *config_to_argv(config)]
    api.app.state.engine_config = engine
    uvicorn.run(api.app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
