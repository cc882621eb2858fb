BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE batches (
	id INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	parent INTEGER NOT NULL, 
	turn_ids BLOB NOT NULL, 
	lease_owner TEXT, 
	lease_token TEXT, 
	lease_until FLOAT, 
	version INTEGER, 
	metrics BLOB, 
	gate BLOB, 
	created_at FLOAT NOT NULL, 
	finished_at FLOAT, 
	PRIMARY KEY (id)
);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	kind TEXT NOT NULL, 
	turn_id TEXT, 
	data BLOB NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE loops (
	name TEXT NOT NULL, 
	data BLOB NOT NULL, 
	updated_at FLOAT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE samples (
	turn_id TEXT NOT NULL, 
	reward FLOAT NOT NULL, 
	hint TEXT, 
	created_at FLOAT NOT NULL, 
	PRIMARY KEY (turn_id), 
	FOREIGN KEY(turn_id) REFERENCES turns (id)
);
CREATE TABLE sessions (
	id TEXT NOT NULL, 
	client TEXT NOT NULL, 
	source TEXT NOT NULL, 
	parent_id TEXT, 
	created_at FLOAT NOT NULL, 
	last_seen_at FLOAT NOT NULL, 
	closed_at FLOAT, 
	close_reason TEXT, 
	PRIMARY KEY (id)
);
CREATE TABLE turns (
	id TEXT NOT NULL, 
	session_id TEXT NOT NULL, 
	idx INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	state TEXT NOT NULL, 
	state_at FLOAT NOT NULL, 
	exclusion TEXT, 
	parent_id TEXT, 
	extends_parent BOOLEAN NOT NULL, 
	bridged BOOLEAN NOT NULL, 
	version INTEGER NOT NULL, 
	pinned BOOLEAN NOT NULL, 
	model TEXT NOT NULL, 
	client TEXT NOT NULL, 
	request_hash TEXT NOT NULL, 
	context_hash TEXT, 
	retry_key TEXT, 
	temperature FLOAT NOT NULL, 
	hint_at INTEGER, 
	finish_reason TEXT, 
	created_at FLOAT NOT NULL, 
	answered_at FLOAT, 
	prompt_tokens INTEGER NOT NULL, 
	response_tokens INTEGER NOT NULL, 
	messages BLOB NOT NULL, 
	tools BLOB, 
	params BLOB NOT NULL, 
	answer BLOB, 
	prompt_ids BLOB NOT NULL, 
	response_ids BLOB, 
	logprobs BLOB, 
	next_state BLOB, 
	next_state_at FLOAT, 
	lease_owner TEXT, 
	lease_token TEXT, 
	lease_until FLOAT, 
	attempts INTEGER NOT NULL, 
	retry_at FLOAT NOT NULL, 
	last_error TEXT, 
	batch_id INTEGER, 
	PRIMARY KEY (id), 
	FOREIGN KEY(session_id) REFERENCES sessions (id)
);
CREATE TABLE verdicts (
	id INTEGER NOT NULL, 
	turn_id TEXT NOT NULL, 
	judge TEXT NOT NULL, 
	score INTEGER NOT NULL, 
	hint TEXT, 
	reason TEXT NOT NULL, 
	votes BLOB NOT NULL, 
	prompt_tokens INTEGER NOT NULL, 
	completion_tokens INTEGER NOT NULL, 
	seconds FLOAT NOT NULL, 
	created_at FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(turn_id) REFERENCES turns (id)
);
CREATE TABLE versions (
	number INTEGER NOT NULL, 
	parent INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	batch_id INTEGER, 
	metrics BLOB NOT NULL, 
	gate BLOB NOT NULL, 
	created_at FLOAT NOT NULL, 
	published_at FLOAT NOT NULL, 
	PRIMARY KEY (number), 
	FOREIGN KEY(batch_id) REFERENCES batches (id)
);
CREATE INDEX ix_batches_state ON batches (state);
CREATE INDEX ix_sessions_open ON sessions (closed_at, last_seen_at);
CREATE INDEX ix_turns_batch ON turns (batch_id);
CREATE INDEX ix_turns_context ON turns (context_hash);
CREATE INDEX ix_turns_request ON turns (session_id, request_hash);
CREATE INDEX ix_turns_session ON turns (session_id, idx);
CREATE INDEX ix_turns_state ON turns (state, retry_at);
CREATE INDEX ix_versions_published ON versions (published_at);
CREATE INDEX ix_verdicts_turn ON verdicts (turn_id);
COMMIT;
