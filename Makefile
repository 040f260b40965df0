# One word per thing a person does.

TIME ?= 30m
CARGO ?= cargo

FILES ?= 2000000

.PHONY: help build demo test test-all test-metrics takeover crash simulate volume-soak soak bench lab lab-debug extmap-race fuzz lint modules msrv publish-check audit install uninstall clean test-systemd packages test-packages

help:
	@echo "make demo     mirror this repository: compare native with mirrored speed, count the requests to the daemon"
	@echo "make test     run all tests that need no other kernel: units, the wire format, mounts, third-party suites"
	@echo "make test-all  run make test, the tests over io_uring, and the short part of the lab: required for every change"
	@echo "make test-metrics  scrape mounts by a real Prometheus, check rules and dashboard, measure what scrapes cost"
	@echo "make takeover  kill daemons for TIME=$(TIME), check what programs see, print the pauses"
	@echo "make test-systemd  boot Debian 12 and 13 in containers, and check the systemd units: restarts under load, watchdog, fstab"
	@echo "make crash    simulate power cuts at every write to ext4 images for TIME=$(TIME); resumes where it was stopped"
	@echo "make simulate  simulate the nodes of a volume on faulty networks and disks for TIME=$(TIME), from SEED on"
	@echo "make volume-soak  run users on three machines with real servers for TIME=$(TIME), while networks, daemons and servers fail"
	@echo "make soak     run all open-ended tests, in shares of TIME=$(TIME): a tree of FILES=$(FILES), crash, fuzz, takeover, models, databases"
	@echo "make bench    measure all published numbers, beside other file systems; writes bench/report.html"
	@echo "make lab      run all tests that depend on the kernel on Debian's kernels of lab/kernels, in QEMU"
	@echo "make modules  build the kernel modules for the running kernel; KVER, KDIR: another one; MODULE_KEY, MODULE_CERT: sign them"
	@echo "make lab-debug  build kernels with lockdep and KASAN, the oldest and the newest of lab/kernels, and test the modules on them"
	@echo "make extmap-race  race accesses to files that the kernel writes past the daemon, with power cuts, in the lab, for TIME=$(TIME)"
	@echo "make fuzz     fuzz the wire format, the session and ext4 images for TIME=$(TIME)"
	@echo "make lint     check formatting, clippy, rustdoc, import cycles, names and comments, and what a small file system compiles"
	@echo "make msrv     check the published libraries with the oldest supported compiler, Rust 1.85; installs it with rustup"
	@echo "make publish-check  pack the libraries, and build each package, as cargo publish does; uploads nothing"
	@echo "make audit    check known vulnerabilities, licences and origin of all dependencies; needs a network"
	@echo "make packages  build Debian packages, an rpm, a container image, a tarball and an SBOM into target/packages"
	@echo "make test-packages  install, use, upgrade and remove those packages in roots of Debian 12 and 13"
	@echo "make install  install the command, its mount helpers, completions, man pages and systemd units, under PREFIX=/usr/local"
	@echo "make uninstall  remove what make install has installed"

build:
	@$(CARGO) build --release -p shunt-cli

demo:
	@scripts/demo

test:
	@scripts/test

test-all:
	@scripts/test --all

test-systemd:
	@scripts/test-systemd

test-metrics:
	@tests/setup --prometheus
	@$(CARGO) build --release --quiet -p shunt-cli
	@SHUNT_BIN=$(CURDIR)/target/release/shunt $(CARGO) test --quiet -p shunt-tests --test integration metrics:: -- --include-ignored --nocapture

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

modules:
	@scripts/modules

lab-debug:
	@lab/matrix --debug

lab:
	@tests/setup
	@lab/lint
	@lab/matrix

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
	@$(CARGO) run --quiet -p xtask -- hello-size

msrv:
	@scripts/msrv

publish-check:
	@scripts/publish-check

audit:
	@scripts/audit

packages:
	@scripts/packages

test-packages:
	@tests/packages/run

install: build
	@scripts/install

uninstall:
	@scripts/install --uninstall

clean:
	@$(CARGO) clean
