# Offramp. `make help` says what each target does.

GO      ?= go
BIN     := bin
TOOLS   := .tools
BUF     := tools/node_modules/.bin/buf
LINT    := $(TOOLS)/golangci-lint

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# The commit's date, so that the same commit gives the same binary.
DATE    ?= $(shell git log -1 --format=%cI 2>/dev/null || echo unknown)
STAMP   := offramp.dev/offramp/internal/version
LDFLAGS := -s -w -X $(STAMP).version=$(VERSION) -X $(STAMP).commit=$(COMMIT) -X $(STAMP).date=$(DATE)

# The kernels that tests run on, by version; e2e/lab knows which Debian suite has which.
KERNELS ?= 5.10,6.1,6.12
# The demo adds SEED virtual servers as kube-proxy leaves them, SEED foreign ones and SEED foreign sets to the dirty node.
SEED    ?= 0
# KUBE_PROXY=stand-in lets the demo do without the real kube-proxy where that is in the cache, too.
KUBE_PROXY ?= real

.PHONY: help build build-agent build-aggregator build-cli have-go images images-tar sbom reproducible krew generate lint test test-unit test-kernel test-e2e test-images test-deploy test-monitoring test-states e2e e2e-all e2e-deploy cluster record demo bench bench-fleet bench-fleet-soak bench-fleet-state clean deps tools check-generated

help: ## say what each target does
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

# -buildvcs=false: the stamp says the commit, and where there is no .git (in an image's build) the same binary comes out.
GO_BUILD := CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '$(LDFLAGS)'

build: build-agent build-aggregator build-cli ## build the three programs, static, into bin/

build-agent: have-go
	$(GO_BUILD) -o $(BIN)/offramp-agent ./agent

build-aggregator: have-go
	$(GO_BUILD) -o $(BIN)/offramp-aggregator ./aggregator

build-cli: have-go
	$(GO_BUILD) -o $(BIN)/kubectl-offramp ./cli

have-go:
	@command -v $(GO) >/dev/null || { echo "make build: no go in PATH; install Go 1.26 or newer" >&2; exit 1; }

# Where images are to be pushed, under which tag, and for what they are made: linux/amd64, linux/arm64; empty is the builder's own.
REGISTRY ?= ghcr.io/offramp-dev
TAG      ?= $(VERSION)
PLATFORM ?=
DOCKER   ?= docker
# More for docker build, as --network=host or --build-arg GOPROXY=….
IMAGE_FLAGS ?=
STAMPS   := --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) --build-arg DATE=$(DATE)
IMAGE    := DOCKER_BUILDKIT=1 $(DOCKER) build $(if $(PLATFORM),--platform=$(PLATFORM)) $(STAMPS) $(IMAGE_FLAGS)

images: ## build the images of agent and aggregator with docker (REGISTRY, TAG, PLATFORM, IMAGE_FLAGS)
	$(IMAGE) -f Dockerfile.agent -t $(REGISTRY)/offramp-agent:$(TAG) .
	$(IMAGE) -f Dockerfile.aggregator -t $(REGISTRY)/offramp-aggregator:$(TAG) .

images-tar: ## the same where no image can be pulled and no docker runs: base images stood in for, bin/images/*.tar for docker load or ctr import
	$(GO) run ./e2e/images/build -o $(BIN)/images $(if $(PLATFORM),-platform $(PLATFORM)) -tag $(TAG) -registry $(REGISTRY)

sbom: build ## list what the programs are made of, and the images that images-tar wrote: CycloneDX, into bin/sbom/
	cd tools/sbom && $(GO) build -o $(CURDIR)/$(TOOLS)/sbom .
	$(TOOLS)/sbom -o $(BIN)/sbom -version $(VERSION) $(BIN)/offramp-agent $(BIN)/offramp-aggregator $(BIN)/kubectl-offramp $(wildcard $(BIN)/images/*.tar)

reproducible: have-go ## build the last commit in two folders, with two caches of Go's, and compare: several minutes
	@set -eu; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	for copy in one a/second/one; do \
		mkdir -p "$$dir/$$copy"; git archive HEAD | tar -x -C "$$dir/$$copy"; \
		GOCACHE="$$dir/$$copy.cache" $(MAKE) --no-print-directory -C "$$dir/$$copy" build VERSION=$(VERSION) COMMIT=$(COMMIT) DATE=$(DATE); \
	done; \
	cd "$$dir/one/bin"; sha256sum *; \
	for program in *; do cmp "$$program" "$$dir/a/second/one/bin/$$program"; done; echo "Both builds are the same."

# Of krew's own version: v0.1.0, not what git describes.
KREW_PLATFORMS := darwin-amd64 darwin-arm64 linux-amd64 linux-arm64 windows-amd64 windows-arm64

krew: have-go ## build kubectl-offramp for six platforms, and what krew installs it from, into bin/krew/ (VERSION=v0.1.0)
	@set -eu; for platform in $(KREW_PLATFORMS); do \
		case $$platform in windows-*) end=.exe;; *) end=;; esac; \
		echo "kubectl-offramp for $$platform"; \
		GOOS=$${platform%-*} GOARCH=$${platform#*-} $(GO_BUILD) -o $(BIN)/krew/$$platform/kubectl-offramp$$end ./cli; \
	done
	cd tools/krew && $(GO) build -o $(CURDIR)/$(TOOLS)/krew .
	$(TOOLS)/krew -dir $(BIN)/krew -version $(VERSION)

tools: $(LINT) $(BUF) ## build or fetch the pinned build tools (needs Go and npm)

$(LINT): tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../$(TOOLS)/ tool
	@touch $(LINT)

$(BUF): tools/package.json tools/package-lock.json
	@command -v npm >/dev/null || { echo "make tools: no npm in PATH, which brings buf; on Debian: apt-get install npm" >&2; exit 1; }
	cd tools && npm ci --ignore-scripts --no-fund --no-audit
	@touch $(BUF)

generate: tools ## make the Go code of proto/ again
	$(BUF) generate

check-generated: generate
	@git diff --exit-code --stat -- proto || { echo "make lint: generated code is stale; run make generate and commit" >&2; exit 1; }
	@test -z "$$(git status --porcelain -- proto)" || { echo "make lint: generated files are not committed" >&2; exit 1; }

lint: tools check-generated ## check style, generated code, the wire and go.mod
	$(LINT) run --allow-parallel-runners ./...
	$(BUF) lint
	$(GO) mod tidy -diff

deps: ## install the Debian packages that tests and demo need, or name them
	@$(GO) run ./e2e/lab/deps

test: deps test-unit test-kernel test-e2e test-images test-states ## run every test: units, kernels, whole programs

test-states: ## say which of the public node states the last test-kernel ran, and fail for one that is missing
	$(STATES) check -kernels $(KERNELS) $(BIN)/states/collect.json

test-unit: ## run what needs no VM: units, and kernel tests in network namespaces (as root)
	$(GO) test -race -timeout 15m $$($(GO) list ./... | grep -v /e2e)

VMEXEC  := $(GO) run $(CURDIR)/e2e/lab/vmexec -kernel $(KERNELS)
# The tests of a clean-up that need IPVS and kube-ipvs0; the others run in namespaces of the host.
NEED_VM := TestConnections|TestSource|TestTheOrder|TestTheTable|TestApplyAndRestore|TestState(02|10|11|12|15|19|21|22|33|49|50)

STATES  := $(GO) run $(CURDIR)/e2e/states

test-kernel: deps ## run the kernel tests of the agent inside VMs with the kernels of KERNELS
	$(STATES) record -o $(BIN)/states/collect.json env CGO_ENABLED=0 $(GO) test -json -count=1 -timeout 45m -exec "$(VMEXEC)" ./agent/collect
	CGO_ENABLED=0 $(GO) test -count=1 -timeout 45m -exec "$(VMEXEC)" -run '$(NEED_VM)' ./agent/cleanup

# Tests that wait for one machine in software most of the time, so two packages at a time. The others want the host.
IN_VMS  := ./e2e/lab/... ./e2e/plan/... ./e2e/trace/...

test-e2e: deps build ## run the whole programs: lab, fleet under fire, no trace left, plans
	$(GO) test -count=1 -p 2 -timeout 30m $(IN_VMS)
	$(GO) test -count=1 -p 1 -timeout 30m $$($(GO) list ./e2e/... | grep -vE '/e2e/(cluster|identity|images|lab|plan|readiness|trace)')

test-images: deps ## build the images as CI does, look what is in them, compare their binaries with make build's, clean a node with the agent's
	OFFRAMP_E2E_PLATFORM=$(PLATFORM) $(GO) test -count=1 -timeout 30m ./e2e/images/...
	cd tools/sbom && $(GO) test ./...

test-monitoring: ## try the alert rules with promtool, and check dashboard, metrics' names and krew's manifest (the first time builds promtool: 4 minutes of one core)
	cd e2e/monitoring && $(GO) test -count=1 ./...
	cd tools/krew && $(GO) test -count=1 ./...

test-deploy: deps ## check the manifests: kustomize and chart agree, fit the programs, ask for what docs/privileges.md says, and the agent needs all of it
	cd e2e/deploycheck && $(GO) vet ./... && $(GO) test -count=1 -timeout 10m ./...

# What a run sees of kube-proxy goes through this folder into docs/kube-proxy-facts.md.
FACTS   := $(BIN)/facts

e2e: deps ## a real cluster: every way that nodes leave ipvs mode, with a table of what stays (the first time builds Kubernetes, 10 minutes more)
	$(GO) run ./e2e/cluster/build
	rm -rf $(FACTS) && mkdir -p $(FACTS) docs
	OFFRAMP_FACTS_DIR=$(CURDIR)/$(FACTS) $(GO) test -count=1 -timeout 45m -p 1 -parallel 2 -v ./e2e/cluster/... ./e2e/identity ./e2e/readiness
	$(GO) run ./e2e/cluster/facts/render -rows $(FACTS) -o docs/kube-proxy-facts.md -what 'make e2e'

e2e-all: deps ## the same with both versions of kube-proxy, both backends of iptables and all kernels: about two hours
	$(GO) run ./e2e/cluster/build -all
	rm -rf $(FACTS) && mkdir -p $(FACTS) docs
	OFFRAMP_E2E_ALL=1 OFFRAMP_FACTS_DIR=$(CURDIR)/$(FACTS) $(GO) test -count=1 -timeout 5h -p 1 -parallel 2 -v ./e2e/cluster/... ./e2e/readiness
	$(GO) run ./e2e/cluster/facts/render -rows $(FACTS) -o docs/kube-proxy-facts-all.md -what 'make e2e-all'

e2e-deploy: deps ## install from our own images with kubectl and with Helm on real kubelets, clean a dirty node, uninstall (the first time builds Kubernetes, 20 minutes more)
	$(GO) run ./e2e/cluster/build -nodes
	$(MAKE) images-tar TAG=dev
	OFFRAMP_E2E_DEPLOY=1 OFFRAMP_IMAGES=$(CURDIR)/$(BIN)/images $(GO) test -count=1 -timeout 30m -p 1 -v ./e2e/nodes ./e2e/deploy

cluster: deps ## run an empty cluster of two nodes on this host, with Offramp's images on them, until Ctrl-C (REGISTRY, TAG; the first time builds Kubernetes, 20 minutes)
	$(GO) run ./e2e/cluster/build -nodes
	$(MAKE) images-tar
	$(GO) run ./e2e/nodes/up -images $(BIN)/images

record: deps ## take the captures of e2e/captures/recorded anew: both versions of kube-proxy, both backends, every state (about 20 minutes)
	$(GO) run ./e2e/cluster/build -all
	rm -rf $(BIN)/recorded && mkdir -p $(BIN)/recorded
	OFFRAMP_RECORD_DIR=$(CURDIR)/$(BIN)/recorded $(GO) test -count=1 -timeout 90m -parallel 2 -v -run TestRecordAll ./e2e/cluster
	rm -rf e2e/captures/recorded && mv $(BIN)/recorded e2e/captures/recorded

demo: deps build ## three VMs, three kernels, three node states: who can leave ipvs, and what is left (SEED=n)
	$(GO) run ./e2e/demo -bin $(BIN) -seed $(SEED) $(if $(filter stand-in,$(KUBE_PROXY)),-stand-in)

bench: ## measure, as ratios against the tool a person would use; fails at the end where a target is missed
	@mkdir -p $(BIN)
	@{ $(GO) test -run '^$$' -bench . -benchmem -timeout 30m $$($(GO) list ./... | grep -v /e2e); reading=$$?; \
	OFFRAMP_BENCH=1 OFFRAMP_REQUIRE_KERNEL=1 $(GO) test -count=1 -timeout 40m -v -run TestCleanupOfALargeNode ./e2e/bench; \
	echo $$((reading + $$?)) >$(BIN)/bench.rc; } 2>&1 | tee $(BIN)/bench.txt
	@{ echo; echo "Targets:"; sed -n 's/^TARGET /  /p' $(BIN)/bench.txt; \
	echo "$$(grep -c '^TARGET .*: reached' $(BIN)/bench.txt) reached, $$(grep -c '^TARGET .*: MISSED' $(BIN)/bench.txt) missed"; }
	@exit $$(cat $(BIN)/bench.rc)

# How many nodes the simulated fleets of bench-fleet have, and more flags of e2e/fleetsim/bench.
NODES       ?= 1000,5000,10000,20000
BENCH_FLEET ?=
FLEET_BENCH  = $(GO) run ./e2e/fleetsim/bench -aggregator $(BIN)/offramp-aggregator -o docs/performance.md

bench-fleet: build-aggregator ## measure one aggregator under simulated fleets (NODES=1000,5000), and write docs/performance.md
	$(FLEET_BENCH) -nodes $(NODES) $(BENCH_FLEET)

bench-fleet-soak: build-aggregator ## the same with 20,000 nodes, 200 of which change each second for a quarter of an hour
	$(FLEET_BENCH) -place bench-fleet-soak -nodes 20000 -churn 15m $(BENCH_FLEET)

bench-fleet-state: build-aggregator ## the same with 100,000 nodes, a fifth of which has a stream
	$(FLEET_BENCH) -place bench-fleet-state -nodes 20000 -state 80000 $(BENCH_FLEET)

clean: ## remove what was built; the lab's kernels stay in the cache
	rm -rf $(BIN) $(TOOLS) tools/node_modules
