/** Events with values that JSON cannot hold, from a runner to the table: the rest of the event is stored. */
import { describe, expect, test } from "vitest";
import { newSession } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";
import { observedWriter, payloadsOf } from "../support/writing.ts";

const { service } = useService();

describe("an event of a TypeScript agent is stored with", () => {
  const circle: Record<string, unknown> = { name: "circle" };
  circle["self"] = circle;
  const throwing = {
    toJSON() {
      throw new Error("of the agent");
    },
  };
  const hidden = {
    get key() {
      throw new Error("of the agent");
    },
    other: 1,
  };
  test.each([
    ["a BigInt", { id: 2n ** 63n }, '{"id":9223372036854775808}', "bigint"],
    ["a circle", circle, '{"name":"circle","self":"[circular]"}', "circular"],
    ["a toJSON that throws", [throwing], '["[cannot be printed]"]', "throwing"],
    ["a getter that throws", hidden, '{"key":"[cannot be printed]","other":1}', "throwing"],
    ["300 levels", nested(300), `${"[".repeat(62)}"[…]"${"]".repeat(62)}`, "depth"],
    ["100,000 levels", nested(100_000), `${"[".repeat(62)}"[…]"${"]".repeat(62)}`, "depth"],
  ])("%s", async (_, value, printed, what) => {
    const sessionId = newSession();
    const { writer, problems } = observedWriter({ address: service.grpcAddress, sessionId });
    for (const name of ["first", "second"]) {
      writer.event({ type: "CUSTOM", name, value: { text: "whole" }, rawEvent: { value } });
    }
    const { stats } = await writer.close();
    const rows = await payloadsOf(service.grpcAddress, { sessionId, stream: "events" });
    expect(rows).toEqual(
      ["first", "second"].map(
        (name) =>
          `{"type":"CUSTOM","name":"${name}","value":{"text":"whole"},"rawEvent":{"value":${printed}}}`,
      ),
    );
    expect(problems).toMatchObject([{ kind: "replaced", stream: "events", what }]);
    expect(stats).toMatchObject({ events: { committed: 2, refused: 0 }, replacedValues: 2 });
  });

  test("300 levels in its text", async () => {
    const sessionId = newSession();
    const { writer, problems } = observedWriter({ address: service.grpcAddress, sessionId });
    writer.event(`{"type":"RAW","event":${"[".repeat(300)}1.10${"]".repeat(300)}}`);
    await writer.close();
    expect(await payloadsOf(service.grpcAddress, { sessionId, stream: "events" })).toEqual([
      `{"type":"RAW","event":${"[".repeat(63)}"[…]"${"]".repeat(63)}}`,
    ]);
    expect(problems).toMatchObject([{ kind: "replaced", what: "depth" }]);
  });
});

function nested(levels: number): unknown {
  let value: unknown = [];
  for (let level = 1; level < levels; level += 1) value = [value];
  return value;
}
