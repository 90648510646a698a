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
.PHONY: test test-all lint test-unit test-race test-root test-envtest test-sanity test-node test-e2e conformance test-sandbox
test: packages tools ## What CI runs: lint, unit, adapter, root, API server, csi-sanity, node in a VM, e2e, half of Kubernetes' suite
	@$(MAKE) --no-print-directory lint test-root test-envtest test-sanity test-node test-e2e
	@$(MAKE) --no-print-directory conformance HALF=quick
test-all: packages tools ## Everything: make test, the race detector, all of Kubernetes' suite, and the tests of the sandbox itself
	@$(MAKE) --no-print-directory lint test-root test-race test-envtest test-sanity test-node test-e2e conformance test-sandbox
lint: go-version ## Check format, vet and lint
	@go tool -modfile=tools/go.mod golangci-lint run --allow-parallel-runners ./...
test-unit: go-version ## Unit tests, and the AWS SDK against the simulator (needs no root)
	go test ./...
test-race: go-version ## The same with the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race ./driver/... ./internal/ec2/... ./internal/ec2sim/... ./internal/blockdev/... ./internal/fs/... ./internal/kube/...
test-root: packages ## The same, and mounts, filesystems and loop devices on this machine
	go test -tags root ./...
test-envtest: packages tools ## Our kinds and controllers against a real API server
	@HOLDFAST_BIN=$$(go run ./cmd/sandbox build) && export HOLDFAST_BIN && set -x && go test -count=1 -tags envtest ./api/... ./internal/certs/... ./webhooks/... ./controllers/...
test-sanity: packages tools ## Kubernetes' csi-sanity against driver and simulator
	@HOLDFAST_BIN=$$(go run ./cmd/sandbox build) && export HOLDFAST_BIN && set -x && go test -count=1 -tags sanity ./test/sanity/...
test-node: packages ## The node service on hot-plugged NVMe disks in a small VM
	go test -count=1 -tags vm ./test/node/...
test-e2e: packages tools build ## Holdfast in a real cluster, from claim to deletion
	@bin/sandbox down --name $(E2E_SANDBOX)
	@trap 'bin/sandbox down --name $(E2E_SANDBOX)' EXIT; \
	  go run ./test/install --name $(E2E_SANDBOX); \
	  HOLDFAST_SANDBOX=$(E2E_SANDBOX) go test -count=1 -p 1 -timeout 40m -tags e2e ./test/e2e/...
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
.PHONY: bench-sandbox bench-driver
bench-sandbox: packages tools ## Times of sandbox, claim to running Pod, and the driver's share
	@go run ./test/bench/sandbox
bench-driver: go-version ## What the driver adds to EC2's own time at 1,000 volumes, and asks of EC2 (BENCH_FLAGS=-h lists the flags)
	@go run ./test/bench/driver $(BENCH_FLAGS)

##@ Keep in order
.PHONY: generate fmt verify clean
generate: go-version ## Write what is made from api/: deepcopy, CRDs, docs/api.md
	@go tool -modfile=tools/gen/go.mod controller-gen object paths=./api/... crd output:crd:dir=config/crd
	@go tool -modfile=tools/gen/go.mod crd-ref-docs --source-path=api/v1alpha1 --config=hack/api-docs.yaml --renderer=markdown --output-path=docs/api.md >/dev/null
fmt: ## Format the Go code
	@go tool -modfile=tools/go.mod golangci-lint fmt ./...
verify: generate ## Fail where go.mod, go.sum, generated files or formatting would change
	@git diff --exit-code -- api config/crd docs/api.md
	@for d in . tools tools/gen sandbox/*/; do (cd $$d && go mod tidy -diff); done
	@test -z "$$(gofmt -l api cmd controllers driver internal test webhooks)" || { gofmt -l api cmd controllers driver internal test webhooks; exit 1; }
clean: ## Remove bin/ and out/ (built cluster parts stay in the user cache)
	@rm -rf bin out
