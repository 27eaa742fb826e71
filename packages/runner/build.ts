/**
 * Compiles this package, with the modules of workspace packages that it uses, into a folder that npm
 * can publish: `node packages/runner/build.ts [FOLDER]`, `dist-runner` by default. The manifest is
 * that of this folder, with the compiled modules as exports.
 */
import { execFile } from "node:child_process";
import { copyFile, glob, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { promisify } from "node:util";

const HOME = import.meta.dirname;
const ROOT = join(HOME, "../..");

interface Manifest extends Readonly<Record<string, unknown>> {
  readonly exports: Readonly<Record<string, string>>;
  readonly dependencies: Readonly<Record<string, string>>;
}

export async function buildRunner(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
  const tsc = join(ROOT, "node_modules/.bin/tsc");
  const config = join(HOME, "tsconfig.build.json");
  await promisify(execFile)(tsc, ["-p", config, "--outDir", folder]);
  await linkModules(folder);
  const manifest: Manifest = JSON.parse(await readFile(join(HOME, "package.json"), "utf8"));
  const text = `${JSON.stringify(published(manifest), null, 2)}\n`;
  await writeFile(join(folder, "package.json"), text);
  await copyFile(join(HOME, "README.md"), join(folder, "README.md"));
  await copyFile(join(ROOT, "LICENSE"), join(folder, "LICENSE"));
}

/** Writes the names of workspace modules in imports as paths. */
async function linkModules(folder: string): Promise<void> {
  for await (const name of glob("**/*.{js,d.ts}", { cwd: folder })) {
    const file = join(folder, name);
    const text = await readFile(file, "utf8");
    const linked = text.replaceAll(
      /"@session-ledger\/(\w+)(?:\/([\w./-]+))?"/g,
      (_all, workspace: string, module = "index") => {
        const home = workspace === "proto" ? "gen/src" : `packages/${workspace}/src`;
        const path = relative(dirname(file), join(folder, home, `${module}.js`));
        return `"${path.startsWith(".") ? path : `./${path}`}"`;
      },
    );
    if (linked !== text) await writeFile(file, linked);
  }
}

function published({ exports, dependencies, ...manifest }: Manifest): object {
  const entries = Object.entries(exports).filter(([name]) => !name.startsWith("./internal/"));
  const compiled = entries.map(([name, source]) => {
    const module = `./packages/runner/${source.slice("./".length, -".ts".length)}`;
    return [name, { types: `${module}.d.ts`, default: `${module}.js` }];
  });
  const others = Object.entries(dependencies).filter(
    ([name]) => !name.startsWith("@session-ledger/"),
  );
  return {
    ...manifest,
    scripts: undefined,
    exports: { ...Object.fromEntries(compiled), "./package.json": "./package.json" },
    dependencies: Object.fromEntries(others),
  };
}

if (import.meta.main) await buildRunner(resolve(process.argv[2] ?? join(ROOT, "dist-runner")));
