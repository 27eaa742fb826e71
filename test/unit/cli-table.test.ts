/** Records as JSON lines and tables, with colours only where a person sees them. */
import { Writable } from "node:stream";
import { WriteStream } from "node:tty";
import { afterEach, expect, test, vi } from "vitest";
import { type Column, type OutputFlags, printRecord, printRecords } from "../../src/cli/table.ts";

interface Lamp {
  readonly name: string;
  readonly state: string;
}

const COLUMNS: readonly Column<Lamp>[] = [
  { heading: "STATE", width: 6, text: ({ state }) => state, style: () => "green" },
  { heading: "LENGTH", width: 7, text: ({ name }) => String(name.length), isWide: true },
  { heading: "NAME", width: 0, text: ({ name }) => name },
];
const FORMS = { json: (lamp: Lamp) => JSON.stringify(lamp), columns: COLUMNS };
const LAMPS: readonly Lamp[] = [
  { name: "desk", state: "on" },
  { name: "hall\u001b[2J", state: "" },
];

afterEach(() => void vi.unstubAllEnvs());

function capture(isTerminal: boolean) {
  const chunks: string[] = [];
  const stdout = new Writable({
    write(chunk: Buffer, _encoding, done) {
      chunks.push(chunk.toString());
      done();
    },
  });
  // Node's own rules for the environment, with the variables of a usual terminal.
  const getColorDepth = () => WriteStream.prototype.getColorDepth.call(undefined);
  const io = {
    stdout: isTerminal ? Object.assign(stdout, { isTTY: true, getColorDepth }) : stdout,
    signal: new AbortController().signal,
  };
  return { io, text: () => chunks.join("") };
}

async function printed(
  flags: OutputFlags,
  { isTerminal = false }: { readonly isTerminal?: boolean } = {},
): Promise<string> {
  const { io, text } = capture(isTerminal);
  const lamps = (async function* () {
    yield* LAMPS;
  })();
  await printRecords(lamps, FORMS, { flags, io });
  return text();
}

test("a program gets JSON lines, up to the limit", async () => {
  const lines = LAMPS.map((lamp) => `${JSON.stringify(lamp)}\n`);
  expect(await printed({})).toBe(lines.join(""));
  expect(await printed({ json: true }, { isTerminal: true })).toBe(lines.join(""));
  expect(await printed({ limit: 1 })).toBe(lines[0]);
});

test("a table has aligned columns, and control characters as escapes", async () => {
  const table = "STATE   NAME\non      desk\n        hall\\u001b[2J\n";
  expect(await printed({ output: "table" })).toBe(table);
  const wide = "STATE   LENGTH   NAME\non      4        desk\n        8        hall\\u001b[2J\n";
  expect(await printed({ output: "wide" })).toBe(wide);
});

test("a terminal gets a table with colours, and without them when NO_COLOR is set", async () => {
  for (const name of ["NO_COLOR", "NODE_DISABLE_COLORS", "FORCE_COLOR", "CI"]) {
    vi.stubEnv(name, undefined);
  }
  vi.stubEnv("TERM", "xterm-256color");
  const isTerminal = true;
  const coloured = await printed({}, { isTerminal });
  expect(coloured).toContain("\u001b[1mSTATE \u001b[22m  \u001b[1mNAME\u001b[22m\n");
  expect(coloured).toContain("\u001b[32mon    \u001b[39m  desk\n");
  expect(await printed({ output: "table" })).not.toContain("\u001b");
  vi.stubEnv("NO_COLOR", "1");
  expect(await printed({}, { isTerminal })).toBe(await printed({ output: "table" }));
});

test("one record is a line a value, without its empty values", async () => {
  const [, lamp = { name: "", state: "" }] = LAMPS;
  const shown = async (flags: OutputFlags): Promise<string> => {
    const { io, text } = capture(false);
    await printRecord(lamp, FORMS, { flags, io });
    return text();
  };
  expect(await shown({ output: "wide" })).toBe("LENGTH  8\nNAME    hall\\u001b[2J\n");
  expect(await shown({ output: "table" })).toBe("NAME   hall\\u001b[2J\n");
  expect(await shown({})).toBe(`${JSON.stringify(lamp)}\n`);
});
