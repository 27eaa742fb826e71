/**
 * What a build was made from, so that it is not made again, and how its files get into place while
 * other processes read them.
 */
import { readFile, rename, stat, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** The sources of a build, relative to the root, with their sizes and times. */
export type Stamps = Readonly<Record<string, string>>;

/** Whether no source has changed since `list` was written, and `made` exists. */
export async function isCurrent(list: string, made: string): Promise<boolean> {
  try {
    await stat(made);
    const known: unknown = JSON.parse(await readFile(list, "utf8"));
    if (typeof known !== "object" || known === null) return false;
    const seen = await stampsOf(Object.keys(known));
    return Object.entries(known).every(([path, stamp]) => seen[path] === stamp);
  } catch {
    return false; // No build, or a source is gone.
  }
}

/** The sources of the bundle of the service, with their sizes and times. */
export const BUNDLE_SOURCES = "sources.json";

export function isBundleCurrent(folder: string): Promise<boolean> {
  return isCurrent(join(folder, BUNDLE_SOURCES), join(folder, "main.js"));
}

/** A file that changed at `beforeMs` or later has no stamp: the build may have its older content. */
export async function stampsOf(
  paths: readonly string[],
  { beforeMs = Number.POSITIVE_INFINITY } = {},
): Promise<Stamps> {
  const stamps = paths.map(async (path) => {
    const { size, mtimeMs } = await stat(join(ROOT, path));
    return [path, mtimeMs < beforeMs ? `${size} ${mtimeMs}` : ""] as const;
  });
  return Object.fromEntries(await Promise.all(stamps));
}

/** In one step, and only when the content changes. */
export async function replace(path: string, contents: Uint8Array): Promise<void> {
  const existing = await readFile(path).catch(() => undefined);
  if (existing?.equals(contents) === true) return;
  const draft = join(path, "..", `.${basename(path)}.${process.pid}`);
  await writeFile(draft, contents);
  await rename(draft, path);
}
