/**
 * The Python package as its users have it: built, installed in clean environments of every supported
 * Python of this machine, and used from another folder.
 */
import { execFile } from "node:child_process";
import { cp, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { globSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { CASES } from "../conformance/cases.ts";
import { Suite } from "../conformance/suite.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { useService } from "../support/use-service.ts";

const run = promisify(execFile);
const SOURCE = fileURLToPath(new URL("../../clients/python", import.meta.url));

/** The oldest one is that of pyproject.toml. */
const MINORS = [10, 11, 12, 13, 14];

const { service, client } = useService();

let home: string;
let wheel: string;
let pip: string;
let pythons: ReadonlyMap<string, string>;

beforeAll(async () => {
  home = await makeDirectory();
  pythons = await pythonsHere();
  // The newest one: its pip also serves the older ones.
  const python = [...pythons.values()].at(-1) ?? "python3";
  const copy = join(home, "source");
  await mkdir(copy);
  for (const name of ["pyproject.toml", "README.md", "session_ledger"]) {
    await cp(join(SOURCE, name), join(copy, name), { recursive: true });
  }
  await run(python, ["-m", "venv", join(home, "build")]);
  pip = join(home, "build/bin/pip");
  await run(pip, ["wheel", "--quiet", "--no-deps", "--wheel-dir", home, copy]);
  wheel = join(home, (await readdir(home)).find((name) => name.endsWith(".whl")) ?? "");
});

test("this machine has a supported Python, and the table the cases", () => {
  expect(pythons.size).toBeGreaterThan(0);
  expect(CASES.filter(({ name }) => SHOWN.includes(name))).toHaveLength(SHOWN.length);
});

test("the wheel has the generated code, its types, and no other package", async () => {
  const { stdout } = await run("python3", ["-m", "zipfile", "--list", wheel]);
  const names = stdout.split("\n").map((line) => line.split(" ")[0] ?? "");
  expect(names).toContain("session_ledger/py.typed");
  expect(names).toContain("session_ledger/ambient/v1/turns_pb2.py");
  expect(names).toContain("session_ledger/ambient/v1/turns_pb2.pyi");
  const sources = globSync("session_ledger/**/*.{py,pyi,typed}", { cwd: SOURCE });
  const packed = names.filter((name) => name.startsWith("session_ledger/"));
  expect(packed.toSorted()).toEqual(sources.toSorted());
});

describe.each(MINORS)("Python 3.%i", (minor) => {
  test("installs the package in a clean environment and runs it", async ({ skip }) => {
    const python = pythons.get(`3.${minor}`);
    if (python === undefined) return skip("this machine does not have it");
    const environment = join(home, `3.${minor}`);
    // The pip of the other environment serves this one: making one takes longer than the installation.
    await run(python, ["-m", "venv", "--without-pip", environment]);
    const own = join(environment, "bin/python");
    await run(pip, ["--python", own, "install", "--quiet", "--no-compile", wheel]);
    const { stdout } = await run(pip, ["--python", own, "list", "--format=freeze"]);
    const names = stdout.split("\n").map((line) => line.split("==")[0] ?? "");
    expect(names.filter((name) => name !== "").toSorted()).toEqual([
      "googleapis-common-protos",
      "grpcio",
      "protobuf",
      "session-ledger",
      "typing_extensions",
    ]);
    const driver = join(environment, "driver.py");
    await writeFile(driver, await readFile(join(SOURCE, "conformance.py")));
    const suite = new Suite({ client, address: service.grpcAddress, command: [own, driver] });
    for (const one of CASES.filter(({ name }) => SHOWN.includes(name))) {
      expect([one.name, await suite.run(one)]).toEqual([one.name, "passed"]);
    }
    await suite.stop();
    return undefined;
  });
});

/** A writer, a reader and a claim. */
const SHOWN = [
  "a writer continues after lost acknowledgements and a broken connection",
  "a reader that follows has each row once after a broken connection",
  "a cancel is heard with its run and its reason",
];

/** By version: those on the path, and those of pyenv, which are often not. */
async function pythonsHere(): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>();
  for (const minor of MINORS) {
    const version = `3.${minor}`;
    const kept = globSync(join(homedir(), `.pyenv/versions/${version}.*/bin/python`));
    for (const program of [`python${version}`, "python3", ...kept]) {
      const script = "import sys, venv; print('%d.%d' % sys.version_info[:2])";
      const { stdout } = await run(program, ["-c", script]).catch(() => ({ stdout: "" }));
      if (stdout.trim() === version && !found.has(version)) found.set(version, program);
    }
  }
  return found;
}
