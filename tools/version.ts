/**
 * The version of everything that is released from this repository is that of package.json; every other
 * place that names it is listed here. `node tools/release.ts version` compares and changes them.
 */
import { globSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** A manifest of npm or a lock file: the versions of our packages, and of those among their dependencies. */
const MANIFEST =
  /(?<="name": "(?:session-ledger|@session-ledger\/\w+)",\n\s+"version": "|"@session-ledger\/\w+": ")[^"]+/g;
const POM = /(?<=<artifactId>session-ledger-java<\/artifactId>\s+<version>)[^<]+/g;
const CHANGELOG = "CHANGELOG.md";

/** By files: each has at least one place, and every one has the version. */
const PLACES: readonly (readonly [files: string, places: RegExp])[] = [
  ["package.json", MANIFEST],
  ["package-lock.json", MANIFEST],
  ["{gen,packages/*,web}/package.json", MANIFEST],
  ["clients/python/pyproject.toml", /(?<=^version = ")[^"]+/gm],
  ["clients/java/{pom.xml,*/pom.xml}", POM],
  [
    "clients/java/README.md",
    /(?<=<artifactId>session-ledger-client<\/artifactId>\s+<version>)[^<]+/g,
  ],
  ["Dockerfile", /(?<=image\.version=")[^"]+/g],
  ["docs/operations/kubernetes/kustomization.yaml", /(?<=newTag: ")[^"]+/g],
  ["docs/operations/kubernetes/migrate.yaml", /(?<=image: \S+:)\S+$/gm],
  ["compose.yaml", /(?<=image: session-ledger:)\S+/g],
  // The first one: of the next release, or of the last one.
  [CHANGELOG, /(?<=^Becomes )\S+(?=\.$)|(?<=^## \[)\d[^\]]*/m],
];

/** Of every registry; PyPI writes the part behind the hyphen without its signs. */
const VERSION = /^\d+\.\d+\.\d+(?:-rc\.\d+)?$/;

async function versionOf(root: string): Promise<string> {
  const { version }: { readonly version: string } = JSON.parse(
    await readFile(join(root, "package.json"), "utf8"),
  );
  return version;
}

/** The version, and every place that has another one. */
export async function compareVersions(
  root: string,
): Promise<{ readonly version: string; readonly faults: readonly string[] }> {
  const version = await versionOf(root);
  const faults: string[] = [];
  for (const [files, places] of PLACES) {
    for (const file of filesOf(root, files)) {
      const found = (await readFile(join(root, file), "utf8")).match(places) ?? [];
      if (found.length === 0) faults.push(`${file}: no version found, ${version} expected`);
      for (const one of found)
        if (one !== version) faults.push(`${file}: ${one}, and package.json has ${version}`);
    }
  }
  return { version, faults };
}

/** All files that name the version. */
export function versionFiles(root: string): readonly string[] {
  return PLACES.flatMap(([files]) => filesOf(root, files));
}

/** Writes the next version into every place; the changelog gets a part for it. */
export async function writeVersion(root: string, version: string): Promise<void> {
  if (!VERSION.test(version))
    throw new Error(`${version}: expected a version like 1.2.3 or 1.2.3-rc.1`);
  const changelog = await readFile(join(root, CHANGELOG), "utf8");
  await writeFile(join(root, CHANGELOG), withUnreleased(changelog, version));
  for (const [files, places] of PLACES) {
    for (const file of filesOf(root, files)) {
      const path = join(root, file);
      await writeFile(path, (await readFile(path, "utf8")).replace(places, version));
    }
  }
}

function withUnreleased(changelog: string, version: string): string {
  if (changelog.includes("\n## [Unreleased]\n")) return changelog;
  return changelog.replace(/^(?=## \[)/m, `## [Unreleased]\n\nBecomes ${version}.\n\n`);
}

/** Gives the part of the next release its heading, with the day. */
export async function datedChangelog(root: string, day: string): Promise<void> {
  const path = join(root, CHANGELOG);
  const changelog = await readFile(path, "utf8");
  const heading = `## [${await versionOf(root)}] - ${day}`;
  const dated = changelog.replace(/^## \[Unreleased\]\n\nBecomes \S+\.$/m, heading);
  if (dated === changelog) throw new Error(`${CHANGELOG}: expected a part [Unreleased]`);
  await writeFile(path, dated);
}

function filesOf(root: string, pattern: string): readonly string[] {
  const files = globSync(pattern, { cwd: root });
  if (files.length === 0) throw new Error(`no file is ${pattern}`);
  return files.toSorted();
}
