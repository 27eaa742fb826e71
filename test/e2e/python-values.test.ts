/** Values that JSON cannot hold in events of a Python agent: the rest of the event is stored, and they are printed. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { newSession } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";
import { payloadsOf } from "../support/writing.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const PYTHON = join(ROOT, "clients/python/.venv-frameworks/bin/python");

const { service } = useService();
const prefix = newSession();
const lineSchema = z.tuple([
  z.string(),
  z.int(),
  z.int(),
  z.array(z.tuple([z.string(), z.string()])),
]);
const told = new Map<string, z.infer<typeof lineSchema>>();

beforeAll(async () => {
  if (!existsSync(PYTHON)) return;
  const program = join(ROOT, "test/python/values.py");
  const { stdout } = await promisify(execFile)(PYTHON, [program, service.grpcAddress, prefix]);
  for (const line of stdout.trim().split("\n")) {
    const one = lineSchema.parse(JSON.parse(line));
    told.set(one[0], one);
  }
});

const LIST_OF_62 = `${"[".repeat(62)}"[…]"${"]".repeat(62)}`;

test.for<[string, string, string[], number]>([
  ["nan", "[null,null,1.5]", ["NaN"], 2],
  [
    "datetime",
    '["2026-01-02T03:04:05.000600Z","2026-01-02T00:00:00","2026-01-02T05:04:05.000600+02:00"]',
    ["datetime"],
    3,
  ],
  ["date", '["2026-01-02","03:04:00"]', ["date", "time"], 2],
  ["timedelta", '["P1DT2H3.5S","PT0S","-PT5M"]', ["timedelta"], 3],
  ["uuid", '"00000000-0000-0000-0000-000000000001"', ["UUID"], 1],
  ["decimal", '["1.10","1/3","(1+2j)"]', ["Decimal", "Fraction", "complex"], 3],
  ["enum", '["red",{"red":1}]', ["Colour"], 2],
  ["bytes", '["text","_wA=","a"]', ["bytes", "bytearray"], 3],
  ["set", '[[1],[],[2],["a"]]', ["set", "frozenset", "deque", "dict_keys"], 4],
  ["dataclass", '{"x":1,"y":{"x":2,"y":"2026-01-02T03:04:05.000600Z"}}', ["Point", "datetime"], 3],
  [
    "model",
    '{"type":"CUSTOM","name":"n","toolValue":"2026-01-02T03:04:05.000600Z","leftOut":null}',
    ["Model", "datetime"],
    2,
  ],
  ["secret", '{"key":"**********"}', ["SecretStr"], 1],
  ["mapping", '{"a":1}', [], 0],
  ["path", '["/a/b","::1"]', ["PurePosixPath", "IPv6Address"], 2],
  ["object", '"shown"', ["Shown"], 1],
  ["throwing", '["[cannot be printed]",1]', ["raises", "Throwing"], 2],
  ["circle", '{"name":"circle","self":"[circular]"}', ["circular"], 1],
  ["deep", LIST_OF_62, ["depth"], 1],
  ["shallow", `${'{"a":'.repeat(62)}"{…}"${"}".repeat(62)}`, ["depth"], 1],
  [
    "keys",
    '{"(1, 2)":"a","2026-01-02T03:04:05.000600Z":"b","3":"c","null":"d","00000000-0000-0000-0000-000000000002":"e","true":"f"}',
    ["tuple", "datetime", "UUID"],
    3,
  ],
  ["surrogate", '["\\ud83d",{"\\ude00":1},"2026-01-02T03:04:05.000600Z"]', ["datetime"], 1],
  ["big", "18446744073709551616", [], 0],
])("%s", async ([name, printed, kinds, count], { skip }) => {
  const rows = await stored(name, skip);
  const event = `{"type":"CUSTOM","name":"n","value":{"a":1},"rawEvent":{"value":${printed}}}`;
  expect(rows).toEqual([event, event]);
  expect(told.get(name)).toEqual([name, 2, 2 * count, kinds.map((kind) => ["replaced", kind])]);
});

test.for<[string, string, number]>([
  ["model_event", '{"type":"CUSTOM","name":"n","toolValue":["shown",null]}', 2],
  [
    "circular_model",
    '{"type":"CUSTOM","name":"n","toolValue":{"name":"circle","self":{"name":"circle","self":"[circular]"}}}',
    1,
  ],
  ["dataclass_event", '{"type":"CUSTOM","name":"n","value":"shown"}', 1],
  ["text_event", '{"type":"RAW","event":"\\ud83d"}', 0],
  ["deep_text", `{"type":"RAW","event":${"[".repeat(63)}"[…]"${"]".repeat(63)}}`, 1],
])("%s as the whole event", async ([name, printed, count], { skip }) => {
  expect(await stored(name, skip)).toEqual([printed, printed]);
  expect(told.get(name)?.slice(1, 3)).toEqual([2, 2 * count]);
});

test("an integer of 5,000 digits is text", async ({ skip }) => {
  const [row = ""] = await stored("integer", skip);
  expect(row).toContain(`"value":"0x${(10n ** 5000n).toString(16)}"`);
});

test("an event of the largest size, and not of one byte more", async ({ skip }) => {
  const rows = await stored("bytes_4170000", skip);
  expect(rows.map((row) => row.length)).toEqual([4_170_000, 4_170_000]);
  expect(told.get("bytes_4170001")?.slice(1, 3)).toEqual([0, 0]);
  expect(told.get("bytes_4170001")?.[3]).toContainEqual(["refused", "UNPRINTABLE"]);
});

test("messages", async ({ skip }) => {
  const messages = (name: string) =>
    payloadsOf(service.grpcAddress, { sessionId: `${prefix}-${name}`, stream: "messages" });
  await stored("message", skip);
  const message = '{"text":"half \\ud83d","at":"2026-01-02T03:04:05.000600Z"}';
  expect(await messages("message")).toEqual([message, message]);
  expect(await messages("text_message")).toEqual(["half \ufffd", "half \ufffd"]);
});

async function stored(name: string, skip: (note: string) => void): Promise<readonly string[]> {
  if (!existsSync(PYTHON)) {
    const advice = `there is no ${PYTHON}: .ci/run makes it`;
    if (process.env["REQUIRE_TOOLS"] === "1") throw new Error(advice);
    skip(advice);
  }
  const sessionId = `${prefix}-${name}`;
  return payloadsOf(service.grpcAddress, { sessionId, stream: "events" });
}
