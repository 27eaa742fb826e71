# syntax=docker/dockerfile:1

# Compile with every dependency; only dist/ leaves this stage.
FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY gen ./gen
COPY src ./src
RUN npm run build

# What production needs and nothing else.
FROM node:24-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --no-audit --no-fund

FROM node:24-slim
ENV NODE_ENV=production \
    DATA_DIR=/data
WORKDIR /app
COPY --from=dependencies /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY package.json LICENSE ./
# The embedded PostgreSQL keeps its files here; with DATABASE_URL nothing is written, and the root may
# be read-only in either case.
RUN install -d -o node -g node -m 0700 /data
VOLUME /data
# By number, so that Kubernetes can see that it is not root. What is mounted of TLS_CERT_FILE,
# TLS_KEY_FILE and AUTH_TOKENS_FILE has to be readable by it.
USER 1000:1000
EXPOSE 9000 8000 8083
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["node", "dist/src/main.js", "health"]
STOPSIGNAL SIGTERM
# No address is set: without TLS and tokens the service listens on loopback only, unless told twice
# (ALLOW_INSECURE_TRANSPORT, ALLOW_ANONYMOUS). docs/operations.md, "Container", has a trial and the rest.
ENTRYPOINT ["node", "dist/src/main.js"]
CMD ["serve"]
