/**
 * Bundles the service into a folder: `node tools/bundle.ts [FOLDER]`, `dist` by default.
 *
 * Node reads the package.json of drizzle-orm (179 KB) again for each of its 106 files. The bundle has
 * that package and @bufbuild/protobuf, which has many small files too, inside. All other packages stay
 * outside (decision 044).
 *
 * A file is replaced in one step and only when its content changes, so that a service that runs from
 * the folder, or starts from it at the same time, never reads half a file.
 */
import { cp, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import manifest from "../package.json" with { type: "json" };

const ROOT = fileURLToPath(new URL("..", import.meta.url));

const INSIDE: readonly string[] = ["drizzle-orm", "@bufbuild/protobuf"];

export async function bundle(folder: string): Promise<void> {
  const { outputFiles } = await build({
    absWorkingDir: ROOT,
    entryPoints: ["src/main.ts"],
    outdir: folder,
    entryNames: "[name]",
    chunkNames: "[name]-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node22.18",
    external: Object.keys(manifest.dependencies).filter((name) => !INSIDE.includes(name)),
    sourcemap: "linked",
    sourcesContent: false,
    write: false,
    logLevel: "warning",
  });
  await mkdir(folder, { recursive: true });
  await Promise.all(outputFiles.map(({ path, contents }) => replace(path, contents)));
  await cp(join(ROOT, "src/store/migrations"), join(folder, "migrations"), { recursive: true });
}

async function replace(path: string, contents: Uint8Array): Promise<void> {
  const existing = await readFile(path).catch(() => undefined);
  if (existing?.equals(contents) === true) return;
  const draft = join(path, "..", `.${basename(path)}.${process.pid}`);
  await writeFile(draft, contents);
  await rename(draft, path);
}

if (import.meta.main) await bundle(resolve(process.argv[2] ?? join(ROOT, "dist")));
