/** One version everywhere, and the checks of what a registry would get. */
import { cp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { faultsOf, obstacles, pomFaults } from "../../tools/release.ts";
import {
  compareVersions,
  datedChangelog,
  versionFiles,
  writeVersion,
} from "../../tools/version.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";

afterAll(cleanUp);

const FILES = versionFiles(".");
const { version, faults } = await compareVersions(".");

test("every place has the version of package.json", () => {
  expect(faults).toEqual([]);
  expect(FILES).toEqual(expect.arrayContaining(["CHANGELOG.md", "Dockerfile", "compose.yaml"]));
});

describe("in a copy", () => {
  let copy: string;

  beforeEach(async () => {
    copy = await makeDirectory();
    for (const file of FILES) await cp(file, join(copy, file));
  });

  async function change(file: string, next: (text: string) => string): Promise<void> {
    const text = await readFile(join(copy, file), "utf8");
    await writeFile(join(copy, file), next(text));
  }

  test.each(FILES)("another version in %s is found", async (file) => {
    await change(file, (text) => text.replaceAll(version, "9.9.9"));
    const found = await compareVersions(copy);
    // All others differ from that of package.json.
    const expected = file === "package.json" ? FILES.filter((other) => other !== file) : [file];
    const named = found.faults.map((fault) => fault.slice(0, fault.indexOf(":")));
    expect([...new Set(named)]).toEqual(expected);
  });

  test("a place that lost its version is found", async () => {
    await change("Dockerfile", (text) => text.replace("image.version", "image.number"));
    const found = await compareVersions(copy);
    expect(found.faults).toEqual([`Dockerfile: no version found, ${version} expected`]);
  });

  test("the next version is written into every place, and the changelog gets its part", async () => {
    await datedChangelog(copy, "2026-12-01");
    expect(await readFile(join(copy, "CHANGELOG.md"), "utf8")).toContain(
      `\n## [${version}] - 2026-12-01\n`,
    );
    expect(await compareVersions(copy)).toEqual({ version, faults: [] });
    await writeVersion(copy, "12.3.4-rc.1");
    expect(await compareVersions(copy)).toEqual({ version: "12.3.4-rc.1", faults: [] });
    const parts = `## [Unreleased]\n\nBecomes 12.3.4-rc.1.\n\n## [${version}] - 2026-12-01\n`;
    expect(await readFile(join(copy, "CHANGELOG.md"), "utf8")).toContain(parts);
  });

  test("a version that a registry would refuse is not written", async () => {
    await expect(writeVersion(copy, "1.2")).rejects.toThrow("1.2: expected a version like 1.2.3");
    expect(await compareVersions(copy)).toEqual({ version, faults: [] });
  });

  test("a changelog without an open part gets no day", async () => {
    await datedChangelog(copy, "2026-12-01");
    await expect(datedChangelog(copy, "2026-12-02")).rejects.toThrow(
      "expected a part [Unreleased]",
    );
  });
});

test("a package without its licence, or with tests, has faults", () => {
  const packed = {
    name: "a package",
    files: ["README.md", "tests/a.py"],
    needed: ["LICENSE", "README.md"],
    foreign: /^tests\//,
  };
  expect(faultsOf(packed)).toEqual([
    "a package: LICENSE is missing",
    "a package: tests/a.py is not a part",
  ]);
});

test("a pom without an element that Maven Central demands has a fault", async () => {
  const parent = await readFile("clients/java/pom.xml", "utf8");
  const pom = await readFile("clients/java/core/pom.xml", "utf8");
  expect(pomFaults("core", pom, parent)).toEqual([]);
  expect(pomFaults("core", pom.replace(/<description>.*/, ""), parent)).toEqual([
    "core of Maven: the pom has no description",
  ]);
  for (const element of ["url", "licenses", "developers", "scm"])
    expect(pomFaults("core", pom, parent.replaceAll(`  <${element}>`, "<other>"))).toEqual([
      `core of Maven: the pom has no ${element}`,
    ]);
});

test("nothing is published from a changed tree, without a tag, or before the changelog has a day", () => {
  const ready = {
    status: "",
    tags: "clients/go/v1.2.3\nv1.2.3\n",
    changelog: "## [1.2.3] - 2026-12-01\n",
  };
  expect(obstacles("1.2.3", ready)).toEqual([]);
  expect(obstacles("1.2.3", { ...ready, status: " M README.md\n" })).toHaveLength(1);
  expect(obstacles("1.2.3", { ...ready, tags: "v1.2.30\n" })).toEqual(["HEAD has no tag v1.2.3"]);
  const changelog = "## [Unreleased]\n\nBecomes 1.2.3.\n";
  expect(obstacles("1.2.3", { ...ready, changelog })).toHaveLength(1);
});
