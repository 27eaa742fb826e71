/**
 * Builds this package, with the modules of workspace packages that it uses, into a folder that npm can
 * publish: `node packages/react/build.ts [FOLDER]`, `dist-react` by default. The styles are one file, whose
 * rules all stand below the class of the view.
 */
import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { transform } from "esbuild";

const HOME = import.meta.dirname;
const ROOT = join(HOME, "../..");
const TYPES = ["index.d.ts", "props.d.ts"];

/** They stay imports: an app has one React, and may have the others. */
const IMPORTED = /^(?:react|react-dom|react-markdown|remark-gfm|@tanstack\/[\w-]+)(?:\/|$)/;

interface Manifest extends Readonly<Record<string, unknown>> {
  readonly devDependencies: Readonly<Record<string, string>>;
}

/** In another process: NODE_ENV decides which React a bundler chooses, and a test run sets it. */
export async function buildReact(folder: string): Promise<void> {
  const env = { ...process.env, NODE_ENV: "production" };
  await promisify(execFile)(process.execPath, [import.meta.filename, folder], { env });
}

async function make(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  await Promise.all([bundle(folder), declare(folder)]);
  const manifest: Manifest = JSON.parse(await readFile(join(HOME, "package.json"), "utf8"));
  const text = `${JSON.stringify(published(manifest), null, 2)}\n`;
  await writeFile(join(folder, "package.json"), text);
  await copyFile(join(HOME, "README.md"), join(folder, "README.md"));
  await copyFile(join(ROOT, "LICENSE"), join(folder, "LICENSE"));
}

async function bundle(folder: string): Promise<void> {
  const { build } = await import("vite");
  await build({
    configFile: false,
    root: HOME,
    logLevel: "warn",
    build: {
      outDir: folder,
      emptyOutDir: false,
      target: "es2023",
      minify: false,
      lib: {
        entry: "src/index.tsx",
        formats: ["es"],
        fileName: () => "index.js",
        cssFileName: "styles",
      },
      rolldownOptions: { external: IMPORTED, output: { banner: '"use client";' } },
    },
  });
  const styles = join(folder, "styles.css");
  await writeFile(styles, await scoped(await readFile(styles, "utf8")));
}

/** Puts every rule below the class of the view: nothing in the page around it matches. */
async function scoped(css: string): Promise<string> {
  const nested = `.session-ledger {\n${css.replaceAll(/:root|\.session-ledger\b/g, "&")}\n}`;
  const { code } = await transform(nested, { loader: "css", supported: { nesting: false } });
  return code;
}

/** The types of the entry alone: those of its parts are not for apps. */
async function declare(folder: string): Promise<void> {
  const made = await mkdtemp(join(tmpdir(), "session-ledger-types-"));
  const options = [
    "--noEmit",
    "false",
    "--declaration",
    "--emitDeclarationOnly",
    "--rootDir",
    ROOT,
  ];
  const tsc = join(ROOT, "node_modules/.bin/tsc");
  await promisify(execFile)(tsc, ["-p", HOME, ...options, "--outDir", made]);
  for (const name of TYPES) {
    const text = await readFile(join(made, "packages/react/src", name), "utf8");
    const types = text.replaceAll(/import "[^"]+\.css";\n/g, "");
    await writeFile(join(folder, name), types.replaceAll('"./props.ts"', '"./props.js"'));
  }
  await rm(made, { recursive: true });
}

function published(manifest: Manifest): object {
  const { devDependencies } = manifest;
  const names = Object.keys(devDependencies).filter((name) => IMPORTED.test(name));
  const ranges = names.map((name) => [name, `^${devDependencies[name]}`] as const);
  return {
    ...manifest,
    scripts: undefined,
    devDependencies: undefined,
    sideEffects: ["*.css"],
    exports: {
      ".": { types: "./index.d.ts", default: "./index.js" },
      "./styles.css": "./styles.css",
      "./package.json": "./package.json",
    },
    dependencies: Object.fromEntries(ranges.filter(([name]) => name !== "react")),
    peerDependencies: { react: "^19.0.0", "react-dom": "^19.0.0" },
  };
}

if (import.meta.main) await make(resolve(process.argv[2] ?? join(ROOT, "dist-react")));
