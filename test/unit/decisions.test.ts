/**
 * Every record of a decision is in the index, has its parts, and names existing tests and records.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const FOLDER = `${ROOT}/docs/decisions`;
const records = readdirSync(FOLDER).filter((name) => /^\d{3}-/.test(name));
const text = (name: string): string => readFileSync(`${FOLDER}/${name}`, "utf8");

/** A heading as it reads in a list: names and code keep their spelling. */
function listed(name: string): string {
  const [, title = ""] = /^# \d{3} (.+)$/m.exec(text(name)) ?? [];
  const isName = /^(?:[A-Z]{2}|`)/.test(title);
  const words = isName ? title : `${title.charAt(0).toLowerCase()}${title.slice(1)}`;
  return `- [${name.slice(0, 3)}](${name}) ${words}`;
}

test("record 042 knows the calls of gRPC, and a page for users why WebSocket is missing", () => {
  const calls = SessionService.methods.map(({ name }) => name);
  const named = ["ListRuns", "GetTranscript"];
  expect(calls).toEqual(expect.arrayContaining(named));
  for (const name of named) expect(text("042-what-only-http-serves.md")).toContain(`\`${name}\``);
  const page = readFileSync(`${ROOT}/docs/http.md`, "utf8");
  expect(page).toMatch(/There is no WebSocket, and no binary form of AG-UI: .*Last-Event-ID/);
});

/** With UPDATE_DOCS=1 this writes the list; without it, it compares the list with the records. */
test("the index lists every record, and each number is used once", () => {
  const index = text("README.md");
  const list = records.toSorted().map(listed).join("\n");
  const updated = index.replace(/(## By number\n\n)[^]*$/, (_, head: string) => `${head}${list}\n`);
  if (process.env["UPDATE_DOCS"] === "1") writeFileSync(`${FOLDER}/README.md`, updated);
  expect(text("README.md")).toBe(updated);
  const numbers = records.map((name) => name.slice(0, 3));
  expect(new Set(numbers).size).toBe(numbers.length);
});

describe.each(["README.md", ...records])("%s", (name) => {
  const page = text(name);

  test("links only to existing files", () => {
    const links = [...page.matchAll(/\]\(([\w./-]+)(?:#[\w-]+)?\)/g)].map(([, path = ""]) => path);
    expect(links.filter((path) => !existsSync(`${FOLDER}/${path}`))).toEqual([]);
  });

  test("names only existing tests", () => {
    const named = page.match(/(?<=`)test\/[\w/.-]+\.ts(?=`)/g) ?? [];
    expect(named.filter((path) => !existsSync(`${ROOT}/${path}`))).toEqual([]);
  });

  test.skipIf(name === "README.md")("has all parts of a record", () => {
    expect(page).toMatch(new RegExp(`^# ${name.slice(0, 3)} `));
    for (const part of ["Context", "Decision", "Consequences"]) {
      expect(page).toContain(`**${part}.**`);
    }
    expect(page.split(/\s+/).length).toBeLessThan(300);
  });
});
