/** The Java client: its own tests, with a service that runs and one that they kill. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { checkLegal } from "../support/agui-oracle.ts";
import { createLedgerDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { JAVA_CLIENT } from "../support/foreign-clients.ts";
import { MAIN } from "../support/service-process.ts";
import { needs, toolPath } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();
const { listSessions, listSessionEvents } = SessionService.method;

afterAll(cleanUp);

const eventSchema = z.looseObject({ type: z.string() });

describe("the Java client", { ...needs("mvn") }, () => {
  test("its own tests pass against a service", async () => {
    const { url } = await createLedgerDatabase();
    const env = {
      ...process.env,
      DATABASE_URL: url,
      LEDGER_ADDRESS: service.grpcAddress,
      LEDGER_MAIN: MAIN,
    };
    const options = { cwd: JAVA_CLIENT, env };
    const { stdout } = await promisify(execFile)(toolPath("mvn"), ["-B", "-ntp", "test"], options);
    const totals = stdout.match(/^\[.*\] Tests run: \d+, .*$/gm) ?? [];
    expect(totals).not.toEqual([]);
    for (const total of totals) expect(total).toMatch(/Failures: 0, Errors: 0, Skipped: 0/);

    // AG-UI's own clients take what the frameworks told.
    const { items: sessions } = await client.unary(listSessions, { query: "java-" });
    const ids = sessions.map(({ metadata }) => metadata?.id ?? "");
    const told = ids.filter((id) => /^java-(langchain4j|spring-ai)-/.test(id));
    expect(told).toHaveLength(2);
    for (const sessionId of told) {
      const request = { sessionId, pageSize: 1_000, expand: true };
      const { items } = await client.unary(listSessionEvents, request);
      await checkLegal(items.map(({ payload }) => eventSchema.parse(JSON.parse(payload))));
    }
  });
});
