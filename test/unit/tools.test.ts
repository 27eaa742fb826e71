import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { planFor } from "../support/tools.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "session-ledger-tools-"));
  writeFileSync(join(folder, "present"), "");
  chmodSync(join(folder, "present"), 0o755);
  writeFileSync(join(folder, "not-executable"), "");
});
afterAll(() => rmSync(folder, { recursive: true }));

test("a test runs where its tool is installed, required or not", () => {
  const path = join(folder, "present");
  expect(planFor("present", { PATH: folder })).toEqual({ kind: "run", path });
  expect(planFor("present", { PATH: folder, REQUIRE_TOOLS: "1" })).toEqual({ kind: "run", path });
  expect(planFor("present", { PATH: "/nowhere", GOBIN: folder })).toEqual({ kind: "run", path });
});

test("a test is skipped without its tool, and fails where tools are required", () => {
  const nothing = { PATH: folder, HOME: folder };
  for (const tool of ["absent", "not-executable"]) {
    expect(planFor(tool, nothing)).toEqual({ kind: "skip" });
    expect(planFor(tool, { ...nothing, REQUIRE_TOOLS: "1" })).toEqual({ kind: "fail" });
  }
});
