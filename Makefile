# What there is to do with this repository. Most targets are scripts in scripts/, which can also be
# run by hand; `make help` lists the targets.

.DEFAULT_GOAL := help
.PHONY: help run cluster check test repeat corpus interop build fmt lint bench bench-media-plane bench-faults calibrate audit simulate fuzz peers figures clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' Makefile

run: ## build everything, start the origin with a demo stream, say which page to open
	@scripts/run.sh $(ARGS)

cluster: ## the same as a cluster on this machine: three NATS servers, two origins, three edges
	@scripts/cluster.sh $(ARGS)

check: ## what takes a minute after a build: format, lints, types, tests without browsers and other programs
	@scripts/test.sh check

test: ## format, lints, types, every test of Rust and web, browsers and foreign players included
	@scripts/test.sh

repeat: ## the tests that depend most on time, N (20) times; BUSY=1 keeps every processor busy meanwhile
	@scripts/repeat-tests.sh $(or $(N),20)

corpus: ## the tests over real and broken media, which HEADWATER_MEDIA or ../shared/media holds
	@scripts/corpus.sh

interop: ## other implementations of WebRTC and of S3, an authority, and other media servers (pion, GStreamer, s3s-fs, Azurite, pebble, MediaMTX)
	@scripts/interop.sh

build: ## the web pages and the optimised programs
	@scripts/install.sh run
	@scripts/web.sh
	cargo build --release --workspace

fmt: ## format Rust and TypeScript
	cargo fmt --all
	@scripts/web.sh install
	cd web && npm run fix

lint: ## what the compilers and linters say of Rust and TypeScript
	@scripts/install.sh lint
	@scripts/web.sh
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cd web && npm run check

bench: ## the benchmarks (criterion); BENCH=NAME for one of them
	@scripts/install.sh run
	@scripts/web.sh
	HEADWATER_MEDIA=$${HEADWATER_MEDIA:-$$PWD/../shared/media} cargo bench --workspace $(if $(BENCH),--bench $(BENCH),--benches)

bench-media-plane: ## what an answer costs the origin, nginx and the bare kernel, in five minutes (needs nginx and wrk)
	@scripts/install.sh run
	@scripts/web.sh
	cargo build --release -p headwater -p streamgauge -p baselines
	@scripts/bench-media-plane.py $(ARGS)

bench-faults: ## what viewers of a cluster see while parts of it fail, in half an hour; fails where it is more than promised
	@scripts/install.sh cluster
	@scripts/web.sh
	@scripts/nats.sh
	cargo build --release -p headwater -p streamgauge
	@scripts/bench-faults.py $(ARGS)

calibrate: ## hold every player of the instrument against known delays, rates, stalls and losses, in half a minute
	@scripts/install.sh run
	cargo run --release -p streamgauge -- calibrate $(ARGS)

audit: ## licences, bans and sources of the dependencies (cargo-deny)
	@scripts/audit.sh

simulate: ## walk STEPS (1000000) of a cluster whose nodes and network fail; SEED=N for a walk of before, LOG=1 for its log
	@scripts/simulate.sh

fuzz: ## every fuzz target for FUZZ_SECONDS (30) each; TARGET=NAME for one of them
	@scripts/fuzz.sh $(TARGET)

peers: ## the servers that scenarios compare, into target/peers; PEERS="NAME..." for some of them
	@scripts/peers.sh $(PEERS)

figures: ## draw docs/studies.md and the figures of the documents, from the runs that are kept in lab/runs
	@scripts/figures.sh

clean: ## remove what was built
	cargo clean
	rm -rf web/dist web/node_modules artefacts fuzz/target fuzz/artifacts fuzz/coverage
