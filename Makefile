# One word per thing a person does.

TIME ?= 30m
CARGO ?= cargo

FILES ?= 2000000

.PHONY: help build demo test test-all takeover crash simulate volume-soak soak bench lab lab-debug extmap-race fuzz lint audit install uninstall clean

help:
	@echo "make demo     mirror this repository: native against mirrored speed, and what the daemon saw"
	@echo "make test     units, the wire, real mounts, suites of others: all tests that need no other kernel"
	@echo "make test-all  make test, the tests that move requests over io_uring, the lab's short part: what a change must pass"
	@echo "make takeover  kill daemons for TIME=$(TIME), check what programs see, print how long they waited"
	@echo "make crash    cut the power under ext4 images for TIME=$(TIME), at every write; goes on where it was stopped"
	@echo "make simulate  nodes of a volume on bad networks and disks, seed after seed from SEED on, for TIME=$(TIME)"
	@echo "make volume-soak  users on three machines with real servers, while networks, daemons and servers fail, for TIME=$(TIME)"
	@echo "make soak     all that has no end, in shares of TIME=$(TIME): a tree of FILES=$(FILES), crash, fuzz, takeover, models, data bases"
	@echo "make bench    all published numbers, beside their peers; writes bench/report.html"
	@echo "make lab      the mount tests on Debian's stock 6.12 kernel, in QEMU"
	@echo "make lab-debug  the extension's tests on a 6.12 kernel with lockdep and KASAN, which it builds"
	@echo "make extmap-race  race files that the kernel writes past the daemon, in the lab, and cut the power, for TIME=$(TIME)"
	@echo "make fuzz     fuzz the wire, the session and ext4 images for TIME=$(TIME)"
	@echo "make lint     formatting, clippy, rustdoc, import cycles, and names and comments that the style forbids"
	@echo "make audit    known vulnerabilities, licences and origin of all crates that are built in; takes a network"
	@echo "make install  the command, its mount helpers, completions and man pages, under PREFIX=/usr/local"
	@echo "make uninstall  removes them"

build:
	@$(CARGO) build --release -p shunt

demo:
	@scripts/demo

test:
	@scripts/test

test-all:
	@scripts/test --all

takeover:
	@scripts/takeover $(TIME)

crash:
	@scripts/crash $(TIME)

simulate:
	@scripts/simulate $(TIME) $(SEED)

volume-soak:
	@scripts/volume-soak $(TIME)

soak:
	@scripts/soak $(TIME) $(FILES)

bench: build
	@bench/setup
	@tests/setup
	@$(CARGO) run --release -q -p shunt-bench -- --shunt target/release/shunt $(BENCH)

extmap-race:
	@scripts/extmap-race $(TIME)

lab-debug:
	@lab/debug --stress

lab:
	@tests/setup
	@lab/suite
	@lab/dkms
	@lab/extension --long
	@lab/extmap
	@lab/virtiofs --long
	@TIME=30 lab/policy

fuzz:
	@scripts/fuzz $(TIME)

lint:
	@tests/setup --packages
	@$(CARGO) fmt --all --check
	@. scripts/lib/features.sh && $(CARGO) clippy --workspace --all-targets --features "$$FEATURES" --quiet -- -D warnings
	@# Without BPF programs, as `make install` builds it.
	@$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	@RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	@$(CARGO) run --quiet -p xtask -- cycles
	@$(CARGO) run --quiet -p xtask -- names

audit:
	@scripts/audit

install: build
	@scripts/install

uninstall:
	@scripts/install --uninstall

clean:
	@$(CARGO) clean
