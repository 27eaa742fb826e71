/** What a health check and a start script learn from an exit code. */
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  endService,
  NO_OTHERS_ADDRESS,
  runCommand,
  type ServiceProcess,
  startService,
} from "../support/service-process.ts";

let service: ServiceProcess;
beforeAll(async () => {
  service = await startService({ addresses: { opsAddress: NO_OTHERS_ADDRESS } });
});
afterAll(async () => endService(service));

test("health exits with 0 while the service lives, and with 3 when it is gone", async () => {
  const env = { OPS_ADDRESS: service.opsAddress };
  expect(await runCommand(["health"], { env })).toMatchObject({ exitCode: 0, stderr: "" });
  await service.stop();
  const gone = await runCommand(["health"], { env });
  expect(gone.exitCode).toBe(3);
  expect(gone.stderr).toContain("does not answer");
});

test.each(["serve", "migrate status"])(
  "a database that cannot be reached is 3, in one line: %s",
  async (command) => {
    const env = {
      DATABASE_URL: "postgres://nobody:secret@127.0.0.1:1/none",
      GRPC_ADDRESS: "127.0.0.1:0",
      OPS_ADDRESS: "127.0.0.1:0",
    };
    const { exitCode, stderr } = await runCommand(command.split(" "), { env });
    expect(exitCode).toBe(3);
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
    expect(stderr).not.toContain("secret");
  },
);
