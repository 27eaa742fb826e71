/**
 * Releases what is published from this repository, one registry at a time:
 *
 *   node tools/release.ts version [X.Y.Z]    # compares all places of the version, or writes the next one
 *   node tools/release.ts changelog [DAY]    # dates the part [Unreleased]
 *   node tools/release.ts npm|pypi|go|maven|bsr|image [--publish]
 *
 * Without --publish the packages of a registry are made in a new folder and checked, and the commands that
 * would publish them are printed. docs/releasing.md has the order, and the rights that each command needs.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join, relative } from "node:path";
import { parseArgs, promisify } from "node:util";
import { parse, stringify } from "yaml";
import { z } from "zod";
import { buildReact } from "../packages/react/build.ts";
import { buildRunner } from "../packages/runner/build.ts";
import { ROOT } from "./stamps.ts";
import { compareVersions, datedChangelog, writeVersion } from "./version.ts";

const REPOSITORY = "https://github.com/session-ledger/session-ledger";
const GO_MODULE = "github.com/session-ledger/session-ledger/clients/go";
const BSR_MODULE = "buf.build/session-ledger/session-ledger";
const IMAGE = "ghcr.io/session-ledger/session-ledger";

/** The tools of PyPI, in an environment that a later run finds again. */
const PYTHON_TOOLS = ["build==1.6.1", "twine==7.0.0"];

interface Command {
  readonly cwd: string;
  /** The program, and its arguments. */
  readonly argv: readonly string[];
}

/** What a registry would get. */
export interface Packed {
  readonly name: string;
  readonly files: readonly string[];
  /** Each is one of the files. */
  readonly needed: readonly string[];
  /** Of no file: tests, and sources that others publish. */
  readonly foreign: RegExp;
}

interface Prepared {
  readonly packages: readonly Packed[];
  /** More that is wrong with them. */
  readonly faults?: readonly string[];
  /** They publish the packages. */
  readonly commands: readonly Command[];
}

/** Makes the packages of one registry in the folder. */
type Target = (folder: string, version: string) => Promise<Prepared>;

const TARGETS: Readonly<Record<string, Target>> = { npm, pypi, go, maven, bsr, image };

export function faultsOf({ name, files, needed, foreign }: Packed): readonly string[] {
  return [
    ...needed.filter((file) => !files.includes(file)).map((file) => `${name}: ${file} is missing`),
    ...files.filter((file) => foreign.test(file)).map((file) => `${name}: ${file} is not a part`),
  ];
}

// npm: the service with its commands, the runner, and the view of a session. The code of the other workspaces is in them.

const manifestSchema = z.object({
  name: z.string(),
  private: z.boolean().optional(),
  repository: z.object({ url: z.string() }),
  dependencies: z.record(z.string(), z.string()),
  exports: z
    .record(z.string(), z.union([z.string(), z.record(z.string(), z.string())]))
    .default({}),
});

const NOT_BUILT = /(?<!\.d)\.tsx?$|(?:^|\/)tests?\/|[._]test\.|^src\//;

async function npm(folder: string, version: string): Promise<Prepared> {
  const [runner, react] = [join(folder, "runner"), join(folder, "react")];
  await Promise.all([buildRunner(runner), buildReact(react)]);
  const program = ["dist/main.js", "dist/web/index.html", "bin/session-ledger.cjs"];
  // In this order: the page of the service names the runner.
  const all = [
    await npmPackage(runner, version, { needed: [], foreign: NOT_BUILT }),
    await npmPackage(react, version, {
      needed: ["props.d.ts"],
      foreign: NOT_BUILT,
    }),
    await npmPackage(ROOT, version, {
      needed: [...program, "CHANGELOG.md", "proto/ambient/v1/sessions.proto"],
      foreign: /^(?:src|packages|web|gen|test|tools)\/|(?:^|\/)tests?\/|[._]test\.\w+$/,
    }),
  ];
  return {
    packages: all.flatMap(({ packages }) => packages),
    faults: all.flatMap(({ faults = [] }) => faults),
    commands: all.flatMap(({ commands }) => commands),
  };
}

async function npmPackage(
  cwd: string,
  version: string,
  { needed, foreign }: Pick<Packed, "needed" | "foreign">,
): Promise<Prepared> {
  const manifest = manifestSchema.parse(
    JSON.parse(await readFile(join(cwd, "package.json"), "utf8")),
  );
  const tag = version.includes("-") ? "next" : "latest";
  const publish = ["publish", "--access", "public", "--provenance", "--tag", tag];
  // By force: the registry is not asked for its versions. Without scripts: they would make dist/ again.
  const dry = [...publish, "--dry-run", "--force", "--ignore-scripts", "--json"];
  const listed = z.record(z.string(), z.unknown()).parse(JSON.parse(await run(cwd, "npm", ...dry)));
  // By name since npm 11.
  const [first] = "files" in listed ? [listed] : Object.values(listed);
  const { files } = z.object({ files: z.array(z.object({ path: z.string() })) }).parse(first);
  const exported = Object.values(manifest.exports).flatMap((target) =>
    typeof target === "string" ? [target] : Object.values(target),
  );
  const entries = exported.map((path) => path.replace(/^\.\//, ""));
  const name = `${manifest.name} of npm`;
  const ours = Object.keys(manifest.dependencies).filter((one) =>
    one.startsWith("@session-ledger/"),
  );
  const faults = ours.map((one) => `${name}: ${one} is not in the registry`);
  if (manifest.private === true) faults.push(`${name}: it is private`);
  // Of the provenance: npm refuses a repository that is not the one of the build.
  if (manifest.repository.url !== `git+${REPOSITORY}.git`)
    faults.push(`${name}: repository.url is not git+${REPOSITORY}.git`);
  const documents = ["LICENSE", "README.md", "package.json"];
  const packed = {
    name,
    files: files.map(({ path }) => path),
    needed: [...documents, ...entries, ...needed],
    foreign,
  };
  return { packages: [packed], faults, commands: [{ cwd, argv: ["npm", ...publish] }] };
}

// PyPI: the source distribution, and the wheel that is made of it.

async function pypi(folder: string, version: string): Promise<Prepared> {
  const source = join(folder, "source");
  const client = join(ROOT, "clients/python");
  await copyTracked("clients/python/session_ledger", join(source, "session_ledger"));
  for (const name of ["pyproject.toml", "README.md"])
    await cp(join(client, name), join(source, name));
  await cp(join(ROOT, "LICENSE"), join(source, "LICENSE"));
  await linkAbsolutely(join(source, "README.md"), "clients/python", version);
  const tools = await pythonTools();
  const made = join(folder, "dist");
  await run(source, join(tools, "python"), "-m", "build", "--outdir", made, ".");
  const names = (await readdir(made)).toSorted(); // The wheel, then the source.
  const paths = names.map((name) => join(made, name));
  await run(made, join(tools, "twine"), "check", "--strict", ...paths);
  // The wheel was built from the source, in an isolated environment: installing the source would do it again.
  const [wheel = ""] = paths;
  await installAndImport(join(folder, "venv"), wheel, tools, version);
  const packages = await Promise.all(paths.map(pythonPackage));
  const argv = [join(tools, "twine"), "upload", "--skip-existing", ...paths];
  return { packages, commands: [{ cwd: made, argv }] };
}

const LIST_ZIP = "import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep='\\n')";

async function pythonPackage(path: string): Promise<Packed> {
  const isWheel = path.endsWith(".whl");
  const listed = isWheel
    ? await run(".", "python3", "-c", LIST_ZIP, path)
    : await run(".", "tar", "--list", "--file", path);
  const all = lines(listed);
  // The source has a folder around all.
  const files = isWheel ? all : all.map((file) => file.slice(file.indexOf("/") + 1));
  const info = basename(path).split("-").slice(0, 2).join("-");
  const documents = isWheel
    ? [`${info}.dist-info/licenses/LICENSE`, `${info}.dist-info/METADATA`]
    : ["LICENSE", "README.md", "pyproject.toml"];
  const modules = [
    "__init__.py",
    "py.typed",
    "ambient/v1/turns_pb2.py",
    "ambient/v1/turns_pb2.pyi",
  ];
  return {
    name: `${basename(path)} of PyPI`,
    files,
    needed: [...documents, ...modules.map((module) => `session_ledger/${module}`)],
    foreign: /(?:^|\/)(?:tests?|__pycache__)\/|^(?:conformance|example|runner)\.py$|\.proto$/,
  };
}

/** In an environment without any package, and from another folder. */
async function installAndImport(
  venv: string,
  path: string,
  tools: string,
  version: string,
): Promise<void> {
  await run(".", "python3", "-m", "venv", "--without-pip", venv);
  const python = join(venv, "bin/python");
  const install = ["--python", python, "install", "--quiet", "--no-compile", path];
  await run(dirname(venv), join(tools, "pip"), ...install);
  const script = `
from importlib.metadata import version
from session_ledger import SessionWriter, connect, read_events
assert version("session-ledger") == "${version.replace("-rc.", "rc")}", version("session-ledger")`;
  await run(dirname(venv), python, "-I", "-c", script);
}

/** The folder of their programs. */
async function pythonTools(): Promise<string> {
  const venv = join(ROOT, "clients/python/.venv-release");
  const list = join(venv, "installed.txt");
  const wanted = PYTHON_TOOLS.join("\n");
  const installed = await readFile(list, "utf8").catch(() => "");
  if (installed !== wanted) {
    await run(".", "python3", "-m", "venv", venv);
    const quiet = ["--quiet", "--no-compile", "--disable-pip-version-check"];
    await run(".", join(venv, "bin/pip"), "install", ...quiet, ...PYTHON_TOOLS);
    await writeFile(list, wanted);
  }
  return join(venv, "bin");
}

// Go: a tag with the folder of the module before the version. Go itself packs the module of a tag.

async function go(folder: string, version: string): Promise<Prepared> {
  const tag = `clients/go/v${version}`;
  const repository = join(folder, "repository");
  await copyTracked("clients/go", join(repository, "clients/go"));
  await cp(join(ROOT, "LICENSE"), join(repository, "LICENSE"));
  const git = (...args: readonly string[]) =>
    run(repository, "git", "-c", "user.name=release", "-c", "user.email=release", ...args);
  await git("init", "--quiet");
  for (const kind of ["commit", "tag"]) await git("config", `${kind}.gpgSign`, "false");
  await git("add", "--all");
  await git("commit", "--quiet", "--message", "All");
  await git("tag", tag);
  // Its own cache: in that of a person the module of a dry run would stay the one of this version.
  const settings = [
    `GOMODCACHE=${join(folder, "modules")}`,
    "GOFLAGS=-modcacherw",
    `GOPRIVATE=${GO_MODULE}`,
    "GIT_CONFIG_COUNT=1",
    `GIT_CONFIG_KEY_0=url.file://${repository}.insteadOf`,
    `GIT_CONFIG_VALUE_0=${REPOSITORY}`,
  ];
  const module = `${GO_MODULE}@v${version}`;
  const { Dir } = z
    .object({ Dir: z.string() })
    .parse(
      JSON.parse(await run(folder, "env", ...settings, "go", "mod", "download", "-json", module)),
    );
  const files = await filesIn(Dir);
  const name = `${module} of Go`;
  // A user's `go get` refuses another one.
  const isNamed = (await readFile(join(Dir, "go.mod"), "utf8")).startsWith(`module ${GO_MODULE}\n`);
  const packed: Packed = {
    name,
    files,
    // The licence is that of the repository, which Go adds to a module in a folder.
    needed: [
      "LICENSE",
      "README.md",
      "go.mod",
      "go.sum",
      "ledger/writer.go",
      "ambient/v1/sessions_grpc.pb.go",
    ],
    foreign: /^\.bin\//,
  };
  return {
    packages: [packed],
    faults: isNamed ? [] : [`${name}: go.mod names another module`],
    commands: [
      { cwd: ROOT, argv: ["git", "tag", "--annotate", "--message", `Go client ${version}`, tag] },
      commandOf(ROOT, `git push origin refs/tags/${tag}`),
      // The proxy and the checksum database take the tag when somebody asks for it.
      commandOf(folder, `env GOPROXY=https://proxy.golang.org go list -m ${module}`),
    ],
  };
}

// Maven Central: for each module the compiled jar, its sources and its documents; signed by --publish only.

async function maven(folder: string, version: string): Promise<Prepared> {
  await copyTracked("clients/java", join(folder, "clients/java"));
  await copyTracked("proto", join(folder, "proto"));
  await cp(join(ROOT, "LICENSE"), join(folder, "LICENSE"));
  const cwd = join(folder, "clients/java");
  // The jar of tests, which a module of another one needs, is not for Central.
  const settings = ["-q", "-B", "-ntp", "-Prelease,publish", "-Dmaven.test.skip=true"];
  await run(cwd, "mvn", ...settings, "-Dgpg.skip=true", "verify");
  const packages: Packed[] = [];
  const parent = await readFile(join(cwd, "pom.xml"), "utf8");
  const faults = [...pomFaults("parent", parent, parent)];
  const modules = [...parent.matchAll(/<module>(.*)<\/module>/g)].map(([, name = ""]) => name);
  for (const module of modules) {
    const pom = await readFile(join(cwd, module, "pom.xml"), "utf8");
    faults.push(...pomFaults(module, pom, parent));
    const [, artifact = ""] = /<\/parent>\s*<artifactId>(.*)<\/artifactId>/.exec(pom) ?? [];
    const target = join(cwd, module, "target");
    const jars = (await readdir(target)).filter((name) => name.endsWith(".jar"));
    const expected = ["", "-sources", "-javadoc"].map(
      (kind) => `${artifact}-${version}${kind}.jar`,
    );
    packages.push({
      name: `${module} of Maven`,
      files: jars,
      needed: expected,
      foreign: /-tests\.jar$/,
    });
    for (const jar of jars.filter((name) => !name.endsWith("-javadoc.jar"))) {
      const files = lines(await run(target, "jar", "tf", jar));
      packages.push({
        name: `${jar} of Maven`,
        files,
        needed: ["META-INF/LICENSE"],
        foreign: /\/(?:\w+Test|TestService|ConformanceDriver)\b/,
      });
    }
  }
  const deploy: Command = { cwd, argv: ["mvn", ...settings.slice(1), "deploy"] };
  return { packages, faults, commands: [deploy] };
}

/** What Central demands of each project: its own elements, and those it may have from its parent. */
export function pomFaults(module: string, pom: string, parent: string): readonly string[] {
  const own = ["name", "description"].filter((element) => !pom.includes(`<${element}>`));
  const inherited = ["url", "licenses", "developers", "scm"].filter(
    (element) => ![pom, parent].some((text) => text.includes(`\n  <${element}>`)),
  );
  return [...own, ...inherited].map((element) => `${module} of Maven: the pom has no ${element}`);
}

// The Buf Schema Registry: the contract. Definitions of Google come from their own module.

const bufSchema = z.object({
  // What it ignores are the copies of other modules.
  lint: z.object({ use: z.array(z.string()), except: z.array(z.string()) }),
  breaking: z.object({ use: z.array(z.string()) }),
});

async function bsr(folder: string, version: string): Promise<Prepared> {
  const module = join(folder, "contract");
  await copyTracked("proto/ambient", join(module, "ambient"));
  await cp(join(ROOT, "LICENSE"), join(module, "LICENSE"));
  const readme = `# session-ledger\n\nThe contract of [session-ledger](${REPOSITORY}), the durable record of AI-agent sessions.\n`;
  await writeFile(join(module, "README.md"), readme);
  const { lint, breaking } = bufSchema.parse(parse(await readFile(join(ROOT, "buf.yaml"), "utf8")));
  const google = "buf.build/googleapis/googleapis";
  const settings = { version: "v2", name: BSR_MODULE, deps: [google], lint, breaking };
  await writeFile(join(module, "buf.yaml"), stringify(settings));
  // Without the registry, the copies of this repository take the place of that module.
  const offline = join(folder, "offline");
  await cp(join(module, "ambient"), join(offline, "contract/ambient"), { recursive: true });
  await copyTracked("proto/google", join(offline, "googleapis/google"));
  const modules = [
    { path: "contract", name: BSR_MODULE },
    { path: "googleapis", name: google },
  ];
  const checks = { version: "v2", modules, lint: { ...lint, ignore: ["googleapis"] } };
  await writeFile(join(offline, "buf.yaml"), stringify(checks));
  const buf = join(ROOT, "node_modules/.bin/buf");
  await run(offline, buf, "build");
  await run(offline, buf, "lint");
  const packed: Packed = {
    name: BSR_MODULE,
    files: await filesIn(module),
    needed: ["LICENSE", "README.md", "buf.yaml", "ambient/v1/sessions.proto"],
    foreign: /^(?:google|grpc)\//,
  };
  return {
    packages: [packed],
    commands: [
      commandOf(module, "dep update", buf),
      commandOf(
        module,
        `push --label v${version} --source-control-url ${REPOSITORY}/tree/v${version}`,
        buf,
      ),
    ],
  };
}

// The image: `.ci/image` builds both variants in CI; here is how they reach a registry.

async function image(_folder: string, version: string): Promise<Prepared> {
  const revision = (await run(ROOT, "git", "rev-parse", "HEAD")).trim();
  const build =
    "docker buildx build --platform linux/amd64,linux/arm64 --provenance=mode=max --sbom=true --push";
  const variant = (embedded: string, tag: string): Command => {
    const values = `--build-arg EMBEDDED_POSTGRES=${embedded} --build-arg REVISION=${revision}`;
    return commandOf(ROOT, `${build} ${values} --tag ${IMAGE}:${tag} .`);
  };
  return {
    packages: [],
    commands: [variant("no", version), variant("yes", `${version}-embedded`)],
  };
}

/** Of words without spaces; the program may be a path with some. */
function commandOf(cwd: string, words: string, program?: string): Command {
  const [first = "", ...others] = words.split(" ");
  const argv = program === undefined ? [first, ...others] : [program, first, ...others];
  return { cwd, argv };
}

/** Why nothing may be published from this checkout. */
export function obstacles(
  version: string,
  state: { readonly status: string; readonly tags: string; readonly changelog: string },
): readonly string[] {
  const found: string[] = [];
  if (state.status !== "") found.push("the working tree has changes that are not committed");
  if (!state.tags.split("\n").includes(`v${version}`)) found.push(`HEAD has no tag v${version}`);
  if (!state.changelog.split("\n").some((line) => line.startsWith(`## [${version}] - 20`)))
    found.push(`CHANGELOG.md has no part [${version}] with a day`);
  return found;
}

/** The files of a folder that Git knows or would add, without those it ignores. */
async function copyTracked(from: string, to: string): Promise<void> {
  const listed = ["ls-files", "--cached", "--others", "--exclude-standard", "--", from];
  for (const file of lines(await run(ROOT, "git", ...listed)))
    if (existsSync(join(ROOT, file))) await cp(join(ROOT, file), join(to, file.slice(from.length)));
}

/** Links of a page to other files of the repository, for a registry that shows the page alone. */
async function linkAbsolutely(page: string, folder: string, version: string): Promise<void> {
  const text = await readFile(page, "utf8");
  const base = `${REPOSITORY}/blob/v${version}/`;
  const linked = text.replaceAll(
    /(?<=\]\()(?!https?:|#)[^)]+/g,
    (path) => base + join(folder, path),
  );
  await writeFile(page, linked);
}

async function filesIn(folder: string): Promise<readonly string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map(({ parentPath, name }) => relative(folder, join(parentPath, name)));
}

function lines(text: string): readonly string[] {
  return text.split("\n").filter((line) => line !== "");
}

/** Its standard output. What it printed is the message of its failure. */
async function run(cwd: string, program: string, ...args: readonly string[]): Promise<string> {
  const options = { cwd, maxBuffer: 64 * 1024 * 1024 };
  const ended = promisify(execFile)(program, args, options);
  const failed = (cause: { readonly stdout: string; readonly stderr: string }): never => {
    throw new Error(`${program} ${args.join(" ")}\n${cause.stdout}${cause.stderr}`, { cause });
  };
  return (await ended.catch(failed)).stdout;
}

/** A registry may ask questions: of a second factor, or of a passphrase. */
async function execute({ cwd, argv: [program = "", ...args] }: Command): Promise<void> {
  const child = spawn(program, args, { cwd, stdio: "inherit" });
  await once(child, "exit");
  if (child.exitCode !== 0) throw new Error(`${program} ended with ${child.exitCode}`);
}

/** The faults of a registry's packages; nothing is published while it has one. */
async function release(name: string, isPublished: boolean): Promise<readonly string[]> {
  const target = TARGETS[name];
  if (target === undefined) return [`expected one of ${Object.keys(TARGETS).join(", ")}`];
  const { version, faults } = await compareVersions(ROOT);
  const status = await run(ROOT, "git", "status", "--porcelain");
  const tags = await run(ROOT, "git", "tag", "--points-at", "HEAD");
  const changelog = await readFile(join(ROOT, "CHANGELOG.md"), "utf8");
  const before = isPublished ? obstacles(version, { status, tags, changelog }) : [];
  if (faults.length > 0 || before.length > 0) return [...faults, ...before];
  const folder = await mkdtemp(join(tmpdir(), "session-ledger-release-"));
  try {
    const { packages, faults: more = [], commands } = await target(folder, version);
    const found = [...packages.flatMap(faultsOf), ...more];
    if (found.length > 0) return found;
    for (const { name: packed, files } of packages) print(`${packed}: ${files.length} files`);
    for (const command of commands) {
      print(`${isPublished ? "" : "not run: "}${command.argv.join(" ")}`);
      if (isPublished) await execute(command);
    }
    return [];
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function main(): Promise<readonly string[]> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { publish: { type: "boolean", default: false } },
  });
  const [name = "", argument] = positionals;
  if (name === "changelog") {
    await datedChangelog(ROOT, argument ?? new Date().toISOString().slice(0, "2026-01-01".length));
    return [];
  }
  if (name !== "version") return release(name, values.publish);
  if (argument !== undefined) await writeVersion(ROOT, argument);
  const { version, faults } = await compareVersions(ROOT);
  print(version);
  return faults;
}

if (import.meta.main) {
  const faults = await main().catch((error: unknown) => [String(error)]);
  for (const fault of faults) process.stderr.write(`${fault}\n`);
  if (faults.length > 0) process.exitCode = 1;
}
