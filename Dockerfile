# Holdfast's three images, for those who have Docker or BuildKit:
#
#   docker build --target controller -t ghcr.io/holdfast-dev/holdfast-driver:v0.1.0 .
#   docker build --target manager    -t ghcr.io/holdfast-dev/holdfast-manager:v0.1.0 .
#   docker build --target node       -t ghcr.io/holdfast-dev/holdfast-driver-node:v0.1.0 .
#
# What goes into them is listed once, in internal/image/catalog: `make images`
# makes the same images without Docker, from the machine's own tools.

FROM docker.io/library/golang:1.26-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates dash e2fsprogs mount util-linux xfsprogs \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=v0.1.0
ENV CGO_ENABLED=0
RUN go run ./cmd/images rootfs --version "$VERSION" driver /rootfs/controller \
 && go run ./cmd/images rootfs --version "$VERSION" driver-node /rootfs/node \
 && go run ./cmd/images rootfs --version "$VERSION" manager /rootfs/manager

FROM scratch AS controller
COPY --from=build /rootfs/controller/ /
USER 65532:65532
ENTRYPOINT ["/holdfast-driver"]

FROM scratch AS manager
COPY --from=build /rootfs/manager/ /
USER 65532:65532
ENTRYPOINT ["/holdfast-manager"]

FROM scratch AS node
COPY --from=build /rootfs/node/ /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENTRYPOINT ["/holdfast-driver"]
