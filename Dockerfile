# The image of a gateway: `docker build -t latchgate .`
#
# The base images have tags here, which somebody may move. To build on exactly the same ones again:
# `scripts/pin-images` asks the registries for their digests and writes them behind the tags, here and in the
# other files that name an image.
#
# The program is built on the same Debian release that the image has, so that it finds its libc.

FROM docker.io/library/rust:1.91-slim-bookworm AS build
WORKDIR /build

# What the program depends on is built on its own: a layer that stays until Cargo.lock changes. For that
# the program itself is empty, and its tests and benchmarks are not there. What builds it is empty as well,
# so that the crates are built which that depends on.
COPY Cargo.toml Cargo.lock ./
COPY clients/rust/Cargo.toml ./clients/rust/
COPY crates/vocabulary/Cargo.toml ./crates/vocabulary/
RUN mkdir -p src clients/rust/src crates/vocabulary/src \
    && touch src/lib.rs clients/rust/src/lib.rs crates/vocabulary/src/lib.rs \
    && echo 'fn main() {}' | tee build.rs > src/main.rs \
    && cargo build --locked --release --lib --bins

# Files come with the time of the checkout. Without a new one Cargo might take the empty program for
# the one that was built.
COPY build.rs ./
COPY build ./build
COPY dashboard ./dashboard
COPY clients/js/src ./clients/js/src
COPY clients/rust ./clients/rust
COPY crates/vocabulary ./crates/vocabulary
COPY src ./src
# Whoever builds it for others says from which commit: --build-arg REVISION=$(git rev-parse HEAD)
ARG REVISION=unknown
RUN touch build.rs src/lib.rs src/main.rs clients/rust/src/lib.rs crates/vocabulary/src/lib.rs \
    && LATCHGATE_COMMIT="${REVISION:-}" cargo build --locked --release --bins \
    && install -D target/release/latchgate /out/usr/bin/latchgate \
    && install -d -m 0700 /out/var/lib/latchgate

# libc and root certificates; no shell, no package manager. `nonroot` is user and group 65532.
FROM gcr.io/distroless/cc-debian12:nonroot

# The same, for the label; and where its source is: --build-arg SOURCE=https://HOST/OWNER/REPOSITORY
ARG REVISION=unknown
ARG SOURCE=
LABEL org.opencontainers.image.title="Latchgate" \
      org.opencontainers.image.description="A lock gateway: distributed locks over plain HTTP and JSON, on Redis or on an embedded durable store." \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0"

COPY --from=build --chown=0:0 /out/usr/bin/latchgate /usr/bin/latchgate
COPY --from=build --chown=65532:65532 /out/var/lib/latchgate /var/lib/latchgate

# Every address, because no other one can be reached from outside of a container. The gateway starts
# there only with API keys (LATCHGATE_AUTH_KEYS_FILE), or with LATCHGATE_INSECURE_NO_AUTH=true.
ENV LATCHGATE_LISTEN=0.0.0.0:7420 \
    LATCHGATE_STORE=embedded:/var/lib/latchgate
EXPOSE 7420

# The root may be read-only: the embedded store is all that is ever written.
VOLUME ["/var/lib/latchgate"]
WORKDIR /var/lib/latchgate
USER 65532:65532

# Longer than `latchgate healthcheck` waits for an answer, so that it is told why there was none.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["/usr/bin/latchgate", "healthcheck"]

# TERM, which is the default, drains it: give it `docker stop --time` of more than shutdown.grace_ms.
ENTRYPOINT ["/usr/bin/latchgate"]
CMD ["serve"]
