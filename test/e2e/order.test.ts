import { afterAll, beforeAll, expect, test } from "vitest";
import { RpcClient } from "../support/grpc-client.ts";
import { newSession, push, rowsOf } from "../support/pushing.ts";
import { type ServiceProcess, startService } from "../support/service-process.ts";

let service: ServiceProcess;
let client: RpcClient;
beforeAll(async () => {
  service = await startService();
  client = new RpcClient(service.grpcAddress);
});
afterAll(async () => {
  client.close();
  await service.stop();
});

async function counted(rule: string): Promise<string | undefined> {
  const text = await (await fetch(`http://${service.opsAddress}/metrics`)).text();
  const line = text.split("\n").find((one) => one.includes(`violations_total{rule="${rule}"}`));
  return line?.split(" ").at(-1);
}

test("an event out of place is stored, and counted by the rule it breaks", async () => {
  const sessionId = newSession();
  const event = (payload: { readonly type: string }): Promise<unknown> =>
    push(client, "events", {
      sessionId,
      eventType: payload.type,
      payload: JSON.stringify(payload),
    });
  const content = { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "x" };
  await event(content);
  await event({ type: "RUN_STARTED", threadId: "t", runId: "r" } as { readonly type: string });
  await event(content);
  expect(await rowsOf(client, "events", sessionId)).toHaveLength(3);
  expect(await counted("outside_run")).toBe("1");
  expect(await counted("fragment_without_start")).toBe("1");
});
