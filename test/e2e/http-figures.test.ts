/** The metric of the order of events, of a running service. */
import { expect, test } from "vitest";
import { newSession, push, rowsOf } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService({});

async function counted(rule: string): Promise<number> {
  const text = await (await fetch(`http://${service.opsAddress}/metrics`)).text();
  const line = text.split("\n").find((one) => one.includes(`violations_total{rule="${rule}"}`));
  return Number(line?.split(" ").at(-1) ?? 0);
}

test("an event out of order is stored, and counted under the rule that it breaks", async () => {
  const sessionId = newSession();
  const event = (payload: { readonly type: string }): Promise<unknown> =>
    push(client, "events", {
      sessionId,
      eventType: payload.type,
      payload: JSON.stringify(payload),
    });
  const outside = await counted("outside_run");
  const withoutStart = await counted("fragment_without_start");
  const content = { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "x" };
  await event(content);
  await event({ type: "RUN_STARTED", threadId: "t", runId: "r" } as { readonly type: string });
  await event(content);
  expect(await rowsOf(client, "events", sessionId)).toHaveLength(3);
  expect(await counted("outside_run")).toBe(outside + 1);
  expect(await counted("fragment_without_start")).toBe(withoutStart + 1);
});
