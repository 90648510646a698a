# Holdfast: `make help` lists what there is to do.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# One build configuration for everything, so that the Go build cache is shared
# between the product, the tests and the cluster's parts.
export CGO_ENABLED := 0

GO_MINIMUM := 1.26
DEMO_KEEP ?= 1
SANDBOX ?= default
CLONE := $(shell printf '%s' '$(CURDIR)' | cksum | cut -d' ' -f1)
# e2e tests share this sandbox; Kubernetes' suite has one of its own.
E2E_SANDBOX := e2e-$(CLONE)
CONFORMANCE_SANDBOX := conformance-$(CLONE)
HALF ?= all
FUZZ_TIME ?= 2m
PROCS ?= 8

.PHONY: help
help: ## List the targets
	@echo "Holdfast: volumes of StatefulSets on Kubernetes, guarded from claim to retirement."
	@echo
	@echo "Two commands do everything on a fresh Linux machine, as root:"
	@echo "  make demo    see a volume's whole life on a real cluster (first time: about 25 minutes of building)"
	@echo "  make test    what CI runs"
	@echo
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ See it
.PHONY: demo
demo: packages ## Play a volume's life on a sandbox cluster; DEMO_KEEP=0 takes it down at the end
	@go run ./test/demo --keep=$(DEMO_KEEP)

.PHONY: sandbox-up sandbox-down sandbox-status
sandbox-up: packages tools build ## Bring a cluster up on this machine with Holdfast installed (SANDBOX=name)
	@go run ./test/install --name $(SANDBOX)
sandbox-down: build ## Take it down; leaves nothing behind, also after a crash
	@bin/sandbox down --name $(SANDBOX)
sandbox-status: build ## Show its nodes and components
	@bin/sandbox status --name $(SANDBOX)

##@ Build
.PHONY: go-version packages tools build images
go-version:
	@command -v go >/dev/null || { echo "make: Go is missing: install Go $(GO_MINIMUM) or newer (https://go.dev/dl)" >&2; exit 1; }
	@have=$$(go env GOVERSION | sed 's/^go//'); \
	  [ "$$(printf '%s\n' $(GO_MINIMUM) "$$have" | sort -V | head -1)" = $(GO_MINIMUM) ] || \
	  { echo "make: Go $$have is too old: install Go $(GO_MINIMUM) or newer (https://go.dev/dl)" >&2; exit 1; }
packages: go-version ## Install the distribution's packages that are missing (Debian, Ubuntu), or name them
	@hack/install-packages
tools: go-version ## Build Kubernetes, etcd, containerd and the CSI sidecars from pinned modules into the user cache
	@go run ./cmd/sandbox build
build: go-version ## Build our binaries into bin/
	@go build -o bin/ ./cmd/...
images: packages tools ## Write container image tars into out/images
	@go run ./cmd/images build --out out/images

##@ Test
.PHONY: test test-all lint test-unit test-long test-race test-fuzz test-root test-chart test-monitoring test-envtest test-sanity test-node test-e2e conformance test-sandbox
test: packages tools ## What CI runs: lint, unit, adapter, root, chart, API server, csi-sanity, node in a VM, e2e, half of Kubernetes' suite
	@$(MAKE) --no-print-directory lint test-root test-chart test-envtest test-sanity test-node test-e2e
	@$(MAKE) --no-print-directory conformance HALF=quick
test-all: packages tools ## Everything: make test, alerts and dashboard, the race detector, every hour of every time zone, a whole rotation under load, all of Kubernetes' suite, and the tests of the sandbox itself
	@$(MAKE) --no-print-directory lint test-root test-chart test-monitoring test-long test-race test-envtest test-sanity test-node
	@HOLDFAST_LONG=1 $(MAKE) --no-print-directory test-e2e
	@$(MAKE) --no-print-directory conformance test-sandbox
lint: go-version ## Check format, vet and lint; our kinds by the API conventions too
	@go tool -modfile=tools/go.mod golangci-lint run --allow-parallel-runners ./...
	@cd tools/chart && go tool -modfile=../go.mod golangci-lint run --allow-parallel-runners ./...
	@go tool -modfile=tools/go.mod golangci-lint-kube-api-linter run --allow-parallel-runners -c api/.golangci.yml ./api/...
test-unit: go-version ## Unit tests, and the AWS SDK against the simulator (needs no root)
	go test ./...
test-long: go-version ## Schedules in every time zone for two years, each hour, and each minute around changes of the clocks
	HOLDFAST_LONG=1 go test -count=1 -timeout 30m ./internal/cron/...
test-race: go-version ## The same with the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race ./driver/... ./internal/ec2/... ./internal/ec2sim/... ./internal/blockdev/... ./internal/fs/... ./internal/kube/...
test-fuzz: go-version ## Hostile objects for each webhook, FUZZ_TIME each (default 2m)
	@for t in $$(go test -list '^Fuzz' ./webhooks | grep ^Fuzz); do go test -run '^$$' -fuzz "^$$t\$$" -fuzztime $(FUZZ_TIME) ./webhooks; done
test-root: packages ## The same, and mounts, filesystems and loop devices on this machine
	go test -tags root ./...
test-chart: go-version ## The Helm chart, rendered by Helm's own library and compared with config/
	cd tools/chart && go test -count=1 ./...
test-monitoring: go-version ## Alerts and dashboard, evaluated by Prometheus' own engine (minutes to compile it the first time)
	cd tools/monitoring && go test -count=1 ./...
test-envtest: packages tools ## Our kinds and controllers against a real API server
	@HOLDFAST_BIN=$$(go run ./cmd/sandbox build) && export HOLDFAST_BIN && set -x && go test -count=1 -tags envtest ./api/... ./cmd/holdfast-manager/... ./internal/certs/... ./internal/gate/... ./internal/usage/... ./webhooks/... ./controllers/... ./test/bench ./test/bench/admission ./test/bench/schedule ./test/bench/expansion
test-sanity: packages tools ## Kubernetes' csi-sanity against driver and simulator
	@HOLDFAST_BIN=$$(go run ./cmd/sandbox build) && export HOLDFAST_BIN && set -x && go test -count=1 -tags sanity ./test/sanity/...
test-node: packages ## The node service on hot-plugged NVMe disks in a small VM
	go test -count=1 -tags vm ./test/node/...
test-e2e: packages tools build ## Holdfast in a real cluster, from claim to deletion, installed by kubectl and by Helm
	@bin/sandbox down --name $(E2E_SANDBOX)
	@trap 'bin/sandbox down --name $(E2E_SANDBOX)' EXIT; \
	  go run ./test/install --name $(E2E_SANDBOX); \
	  HOLDFAST_SANDBOX=$(E2E_SANDBOX) go test -count=1 -p 1 -timeout 40m -tags e2e ./test/e2e/...; \
	  (cd tools/chart && HOLDFAST_SANDBOX=$(E2E_SANDBOX) go test -count=1 -timeout 20m -tags e2e ./install/...)
conformance: packages tools build ## Kubernetes' own suite for storage drivers (HALF=quick: a third of the time)
	@bin/sandbox down --name $(CONFORMANCE_SANDBOX)
	@go build -o bin/ ./test/conformance
	@trap 'bin/sandbox down --name $(CONFORMANCE_SANDBOX)' EXIT; \
	  go run ./test/install --name $(CONFORMANCE_SANDBOX); \
	  HOLDFAST_SANDBOX=$(CONFORMANCE_SANDBOX) bin/conformance --half=$(HALF) --procs=$(PROCS)
test-sandbox: packages tools build ## The sandbox itself: side by side, killed, taken down
	go test -count=1 -timeout 30m -tags sandbox ./internal/sandbox/...
	go test -count=1 -timeout 30m -tags vm ./internal/sandbox/...

##@ Measure
.PHONY: bench-sandbox bench-driver bench-admission bench-schedule bench-expansion
bench-sandbox: packages tools ## Times of sandbox, claim to running Pod, and the driver's share
	@go run ./test/bench/sandbox
bench-driver: go-version ## What the driver adds to EC2's own time at 1,000 volumes, and asks of EC2 (BENCH_FLAGS=-h lists the flags)
	@go run ./test/bench/driver $(BENCH_FLAGS)
bench-admission: packages tools ## What the webhooks add to the creation of claims, and the manager's memory at 5,000 claims (BENCH_FLAGS=-h)
	@HOLDFAST_BIN=$$(go run ./cmd/sandbox build) && export HOLDFAST_BIN && go run ./test/bench/admission $(BENCH_FLAGS)
bench-schedule: packages tools ## A slot of 1,000 claims with the real snapshot stack, and the manager's memory at 20,000 snapshots (BENCH_FLAGS=-h)
	@HOLDFAST_BIN=$$(go run ./cmd/sandbox build) && export HOLDFAST_BIN && go run ./test/bench/schedule $(BENCH_FLAGS)
bench-expansion: packages tools ## A round over 5,000 claims on 100 kubelets, and the manager's memory (BENCH_FLAGS=-h)
	@HOLDFAST_BIN=$$(go run ./cmd/sandbox build) && export HOLDFAST_BIN && go run ./test/bench/expansion $(BENCH_FLAGS)

##@ Keep in order
.PHONY: generate fmt verify clean
generate: go-version ## Write what is made from api/ and the chart's schema: deepcopy, CRDs, docs/api.md, the chart's table of values
	@go tool -modfile=tools/gen/go.mod controller-gen object paths=./api/... crd output:crd:dir=config/crd
	@go tool -modfile=tools/gen/go.mod crd-ref-docs --source-path=api/v1alpha1 --config=hack/api-docs.yaml --renderer=markdown --output-path=docs/api.md >/dev/null
	@cd tools/chart && go test -count=1 -run TestREADMEListsTheValues . -update >/dev/null
fmt: ## Format the Go code
	@go tool -modfile=tools/go.mod golangci-lint fmt ./...
verify: generate ## Fail where go.mod, go.sum, generated files or formatting would change
	@git diff --exit-code -- api config/crd docs/api.md charts
	@for d in . tools tools/chart tools/gen tools/monitoring sandbox/*/; do (cd $$d && go mod tidy -diff); done
	@test -z "$$(gofmt -l api cmd controllers driver internal test tools webhooks)" || { gofmt -l api cmd controllers driver internal test tools webhooks; exit 1; }
clean: ## Remove bin/ and out/ (built cluster parts stay in the user cache)
	@rm -rf bin out
