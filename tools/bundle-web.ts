/**
 * Builds the inspector's page into a folder, with a compressed copy of each file. Nothing is
 * built when no source has changed.
 *
 * The names of all files but index.html have a hash of their content. index.html is replaced last,
 * and files of earlier builds stay for a day, for pages that are open.
 */
import { execFile } from "node:child_process";
import { mkdir, readdir, rm, stat } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { isCurrent, replace, ROOT, stampsOf } from "./stamps.ts";

const SOURCES = "web-sources.json";
const INDEX = "index.html";

interface Built {
  readonly files: ReadonlyMap<string, Buffer>;
  /** Paths relative to the root. */
  readonly sources: readonly string[];
}

/** Builds into `web` of the folder; with the list of sources. */
export async function bundleWeb(folder: string): Promise<void> {
  if (await isCurrent(join(folder, SOURCES), join(folder, "web", INDEX))) return;
  // In another process: NODE_ENV decides which React is built, and a test run sets it.
  const env = { NODE_ENV: "production" };
  await promisify(execFile)(process.execPath, [import.meta.filename, folder], { env });
}

async function make(folder: string): Promise<void> {
  const home = join(folder, "web");
  const startedMs = Date.now();
  const { files, sources } = await build();
  await mkdir(join(home, "assets"), { recursive: true });
  const written = [...files].filter(([name]) => name !== INDEX);
  await Promise.all(written.map(([name, contents]) => write(join(home, name), contents)));
  const index = files.get(INDEX);
  if (index === undefined) throw new Error("the build of the page has no index.html");
  await write(join(home, INDEX), index);
  await removeOld(join(home, "assets"), new Set(files.keys()));
  const stamps = await stampsOf(sources, { beforeMs: startedMs });
  await replace(join(folder, SOURCES), Buffer.from(JSON.stringify(stamps)));
}

async function build(): Promise<Built> {
  const vite = await import("vite");
  const seen = new Set<string>([
    "package.json",
    "tools/bundle-web.ts",
    "tools/stamps.ts",
    "web/vite.config.ts",
  ]);
  const made = await vite.build({
    configFile: join(ROOT, "web/vite.config.ts"),
    logLevel: "warn",
    build: { write: false },
    plugins: [
      {
        name: "sources",
        buildEnd() {
          for (const id of this.getModuleIds()) {
            const [path = ""] = id.split("?", 1);
            if (path.startsWith(ROOT)) seen.add(relative(ROOT, path));
          }
        },
      },
    ],
  });
  const [output] = [made].flat();
  if (output === undefined || !("output" in output)) throw new Error("the page was not built");
  const files = new Map<string, Buffer>();
  for (const file of output.output) {
    files.set(file.fileName, Buffer.from(file.type === "chunk" ? file.code : file.source));
  }
  return { files, sources: [...seen].toSorted() };
}

/** The compressed copies first: the service answers with them as soon as the file exists. */
async function write(path: string, contents: Buffer): Promise<void> {
  const params = { [constants.BROTLI_PARAM_SIZE_HINT]: contents.length };
  const [br, gz] = await Promise.all([
    promisify(brotliCompress)(contents, { params }),
    promisify(gzip)(contents, { level: 9 }),
  ]);
  await Promise.all([replace(`${path}.br`, br), replace(`${path}.gz`, gz)]);
  await replace(path, contents);
}

const OLD_MS = 24 * 3_600_000;

/** An open page may still ask for a part of an earlier build. */
async function removeOld(assets: string, files: ReadonlySet<string>): Promise<void> {
  for (const name of await readdir(assets)) {
    if (files.has(`assets/${name.replace(/\.(?:br|gz)$/, "")}`)) continue;
    const path = join(assets, name);
    const isOld = await stat(path).then(
      ({ mtimeMs }) => mtimeMs < Date.now() - OLD_MS,
      () => false, // Another build has removed it, or put it into place.
    );
    if (isOld) await rm(path, { force: true });
  }
}

if (import.meta.main) await make(resolve(process.argv[2] ?? join(ROOT, "dist")));
