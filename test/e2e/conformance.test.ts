/** Each client passes the table of cases in test/conformance, with its driver as a process. */
import { afterAll, describe, expect, test } from "vitest";
import { CASES, OPTIONAL } from "../conformance/cases.ts";
import { Suite } from "../conformance/suite.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { clientDrivers } from "../support/foreign-clients.ts";
import { needs, toolPath } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();

afterAll(cleanUp);

describe.concurrent.each(clientDrivers())("$language", ({ tool, driver, features }) => {
  const cases = CASES.filter((one) => one.needs.every((need) => features?.includes(need) ?? true));
  let suite: Promise<Suite> | undefined;
  const made = async (): Promise<Suite> =>
    new Suite({ client, address: service.grpcAddress, command: await driver() });
  afterAll(async () => (await suite)?.stop());

  test.for(cases)("$name", needs(tool), async (one, { skip }) => {
    toolPath(tool);
    const outcome = await (await (suite ??= made())).run(one);
    const isOptional = one.needs.every((feature) => OPTIONAL.has(feature));
    if (outcome === "skipped" && isOptional) skip("the client has no such feature");
    expect(outcome).toBe("passed");
  });
});
