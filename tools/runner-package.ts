/**
 * Writes `@session-ledger/runner` into a folder: `node tools/runner-package.ts [FOLDER]`,
 * `dist-runner` by default. It is the client side of the service alone, for processes that drive
 * agents; `npm publish ./dist-runner` publishes it.
 *
 * Packages of frameworks that entries with their names import are optional peers in package.json.
 */
import { execFile } from "node:child_process";
import { copyFile, readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const NAME = "@session-ledger/runner";

/** test/tidy.test.ts refuses any other package in the code. */
export const DEPENDENCIES: readonly string[] = ["@bufbuild/protobuf", "@grpc/grpc-js"];

/** The entries of the package, and their compiled modules. */
export const ENTRIES: Readonly<Record<string, string>> = {
  ".": "./src/runner/index.js",
  "./agui": "./src/sdk/bridges/agui.js",
  "./ai-sdk": "./src/sdk/bridges/ai-sdk.js",
  "./bridge": "./src/sdk/index.js",
  "./claude": "./src/sdk/bridges/claude.js",
  "./compressor": "./src/compressor/index.js",
  "./copilotkit": "./src/sdk/drop-ins/copilotkit.js",
  "./http": "./src/sdk/http/index.js",
  "./langgraph": "./src/sdk/bridges/langgraph.js",
  "./langgraph-callbacks": "./src/sdk/drop-ins/langgraph-callbacks.js",
  "./middleware": "./src/sdk/middleware/index.js",
  "./resumable-stream": "./src/sdk/drop-ins/resumable-stream.js",
  "./turns": "./src/runner/turn-blocks.js",
};

type Manifest = Readonly<Record<string, unknown>> & {
  readonly dependencies: Readonly<Record<string, string>>;
};

export async function writeRunnerPackage(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
  const tsc = join(ROOT, "node_modules/.bin/tsc");
  const config = join(ROOT, "tsconfig.runner.json");
  await promisify(execFile)(tsc, ["-p", config, "--outDir", folder]);
  const manifest: Manifest = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
  await writeFile(join(folder, "package.json"), `${JSON.stringify(made(manifest), null, 2)}\n`);
  await writeFile(join(folder, "README.md"), await readme(manifest));
  await copyFile(join(ROOT, "LICENSE"), join(folder, "LICENSE"));
}

function made(manifest: Manifest): object {
  const { version, license, homepage, bugs, repository, dependencies } = manifest;
  const entries = Object.entries(ENTRIES).map(([name, file]) => [
    name,
    { types: file.replace(/\.js$/, ".d.ts"), default: file },
  ]);
  return {
    name: NAME,
    version,
    description: "For processes that drive AI agents: record, read and serve sessions of a ledger.",
    homepage,
    bugs,
    repository,
    license,
    type: "module",
    engines: { node: ">=20.9" },
    exports: { ...Object.fromEntries(entries), "./package.json": "./package.json" },
    dependencies: Object.fromEntries(DEPENDENCIES.map((name) => [name, `^${dependencies[name]}`])),
    peerDependencies: manifest["peerDependencies"],
    peerDependenciesMeta: manifest["peerDependenciesMeta"],
  };
}

/** The guide of the writer, with links that work outside of the repository. */
async function readme({ homepage }: Manifest): Promise<string> {
  const guide = await readFile(join(ROOT, "docs/runner.md"), "utf8");
  const docs = `${String(homepage).replace(/#.*/, "")}/blob/main/docs/`;
  return guide.replaceAll(
    /\]\((?!https?:|#)([^)]+)\)/g,
    (_, path: string) => `](${new URL(path, docs).href})`,
  );
}

if (import.meta.main)
  await writeRunnerPackage(resolve(process.argv[2] ?? join(ROOT, "dist-runner")));
